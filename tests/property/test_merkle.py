"""Trees and proofs follow RFC 6962: checked against a recursive tree, foreign test vectors, and damage."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_formats.audit.findings import ProofFailed
from drillcore_formats.audit.merkle import EMPTY_ROOT, Frontier, check_consistency, check_inclusion, leaf_hash
from tests.support.data import audit_trees
from tests.support.paths import GOLDEN_FILES

VECTORS = json.loads((GOLDEN_FILES / "rfc6962_proofs.json").read_text())

# From the test log of transparency-dev/tessera (Apache-2.0): its entries, and roots from its signed checkpoints.
TESSERAS_ENTRIES = "one,two,three,four,five,six,seven,eit,nain,ten,ileven,twelf,threeten,fourten,fivten"
TESSERAS_ROOTS = {
    1: "0Nc2CrefWKseHj/mStd+LqC8B+NrX0btIiPt2SmN+ek=",
    5: "gy5gl3aksFyiCO95a/1vLXz88A3dRq+0l9Sxte8ZqZQ=",
    15: "rKbDipCvhuX1GZ7g5BBe8sA6BbJ7ja/1nk427v383cs=",
}

trees = st.lists(st.binary(max_size=4), min_size=1, max_size=70)


def frontier_of(leaves: list[bytes]) -> Frontier:
    frontier = Frontier()
    for leaf in leaves:
        frontier.append(leaf_hash(leaf))
    return frontier


def decoded(text: str | None) -> bytes:
    return base64.b64decode(text or "")


@pytest.mark.parametrize("vector", VECTORS["inclusion"], ids=lambda vector: vector["desc"])
def test_inclusion_proofs_of_another_implementation_are_checked_correctly(vector: dict[str, Any]) -> None:
    proof = list(map(decoded, vector["proof"] or []))
    given = decoded(vector["leafHash"]), vector["leafIdx"], vector["treeSize"], proof, decoded(vector["root"])
    if vector["wantErr"]:
        with pytest.raises(ProofFailed):
            check_inclusion(*given)
    else:
        check_inclusion(*given)


@pytest.mark.parametrize("vector", VECTORS["consistency"], ids=lambda vector: vector["desc"])
def test_consistency_proofs_of_another_implementation_are_checked_correctly(vector: dict[str, Any]) -> None:
    proof = list(map(decoded, vector["proof"] or []))
    given = vector["size1"], vector["size2"], proof, decoded(vector["root1"]), decoded(vector["root2"])
    if vector["wantErr"]:
        with pytest.raises(ProofFailed):
            check_consistency(*given)
    else:
        check_consistency(*given)


def test_a_tree_of_another_implementation_has_the_same_roots() -> None:
    frontier = Frontier()
    assert frontier.root() == EMPTY_ROOT == audit_trees.root([])
    roots = {}
    for entry in TESSERAS_ENTRIES.split(","):
        frontier.append(leaf_hash(entry.encode()))
        roots[frontier.size] = base64.b64encode(frontier.root()).decode()
    assert {size: roots[size] for size in TESSERAS_ROOTS} == TESSERAS_ROOTS


@given(trees)
def test_a_growing_tree_has_the_root_of_the_definition(leaves: list[bytes]) -> None:
    frontier = frontier_of(leaves)
    assert frontier.root() == audit_trees.root(leaves)
    assert Frontier(frontier.size, frontier.subtrees).root() == frontier.root()


def test_a_frontier_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(ValueError, match="a tree of 5 leaves has 2 complete subtrees, not 1"):
        Frontier(5, [bytes(32)])


@given(trees, st.data())
def test_every_leaf_is_included_and_only_at_its_place(leaves: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(leaves) - 1))
    proof, root = audit_trees.inclusion(index, leaves), audit_trees.root(leaves)
    check_inclusion(leaf_hash(leaves[index]), index, len(leaves), proof, root)
    wrong_index = data.draw(st.integers(-1, len(leaves)))
    if wrong_index not in range(len(leaves)) or leaves[wrong_index] != leaves[index]:
        with pytest.raises(ProofFailed):
            check_inclusion(leaf_hash(leaves[index]), wrong_index, len(leaves), proof, root)


@given(trees, st.data())
def test_every_tree_is_consistent_with_its_earlier_sizes(leaves: list[bytes], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(leaves)))
    proof = audit_trees.consistency(first, leaves)
    check_consistency(first, len(leaves), proof, audit_trees.root(leaves[:first]), audit_trees.root(leaves))


@given(trees, st.data())
def test_a_tree_with_a_changed_leaf_is_not_consistent_with_its_past(leaves: list[bytes], data: st.DataObject) -> None:
    first = data.draw(st.integers(1, len(leaves)))
    changed = data.draw(st.integers(0, first - 1))
    changed_leaves = [leaf + b"x" if place == changed else leaf for place, leaf in enumerate(leaves)]
    for proof in (audit_trees.consistency(first, leaves), audit_trees.consistency(first, changed_leaves)):
        with pytest.raises(ProofFailed):
            check_consistency(
                first, len(leaves), proof, audit_trees.root(leaves[:first]), audit_trees.root(changed_leaves)
            )


@given(trees, st.data())
def test_a_damaged_proof_proves_nothing(leaves: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(leaves) - 1))
    first = data.draw(st.integers(1, len(leaves)))
    root, first_root = audit_trees.root(leaves), audit_trees.root(leaves[:first])
    included, consistent = audit_trees.inclusion(index, leaves), audit_trees.consistency(first, leaves)
    for damaged in damages(included, data):
        with pytest.raises(ProofFailed):
            check_inclusion(leaf_hash(leaves[index]), index, len(leaves), damaged, root)
    for damaged in damages(consistent, data):
        with pytest.raises(ProofFailed):
            check_consistency(first, len(leaves), damaged, first_root, root)


def damages(proof: list[bytes], data: st.DataObject) -> list[list[bytes]]:
    """The proof with a bit flipped, with a hash less, with a hash more, and with a hash cut short."""
    if not proof:
        return [[bytes(32)]]
    place = data.draw(st.integers(0, len(proof) - 1))
    bit = data.draw(st.integers(0, 255))
    flipped = (int.from_bytes(proof[place], "big") ^ 1 << bit).to_bytes(32, "big")
    before, after = proof[:place], proof[place + 1 :]
    return [
        [*before, flipped, *after],
        [*before, *after],
        [*before, proof[place], proof[place], *after],
        [*before, proof[place][:31], *after],
    ]
