"""Tiles: roots and proofs of every size equal those of a literal implementation of RFC 6962."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

import pytest

from drillcore_fdb.errors import StoreCorruptError
from drillcore_formats.audit.merkle import EMPTY_ROOT, Frontier, check_consistency, check_inclusion
from drillcore_server.audit.tiles import Coordinates, GrowingTree, Tree, edge, full_tiles

SIZE = 600
LEAVES = [hashlib.sha256(b"\0%d" % number).digest() for number in range(SIZE)]


def split(count: int) -> int:
    power = 1
    while power * 2 < count:
        power *= 2
    return power


def reference_root(leaves: Sequence[bytes]) -> bytes:
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return leaves[0]
    half = split(len(leaves))
    return hashlib.sha256(b"\1" + reference_root(leaves[:half]) + reference_root(leaves[half:])).digest()


def reference_inclusion(index: int, leaves: Sequence[bytes]) -> list[bytes]:
    if len(leaves) == 1:
        return []
    half = split(len(leaves))
    if index < half:
        return [*reference_inclusion(index, leaves[:half]), reference_root(leaves[half:])]
    return [*reference_inclusion(index - half, leaves[half:]), reference_root(leaves[:half])]


def reference_consistency(first: int, leaves: Sequence[bytes], whole: bool = True) -> list[bytes]:
    if first == len(leaves):
        return [] if whole else [reference_root(leaves)]
    half = split(len(leaves))
    if first <= half:
        return [*reference_consistency(first, leaves[:half], whole), reference_root(leaves[half:])]
    return [*reference_consistency(first - half, leaves[half:], False), reference_root(leaves[:half])]


class Tiles(dict[Coordinates, bytes]):
    """Keeps tiles and counts how often they are loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def load(self, places: Sequence[Coordinates]) -> list[bytes | None]:
        self.asked += 1
        return [self.get(place) for place in places]

    def grow(self, size: int, leaves: Sequence[bytes]) -> bytes:
        tree = GrowingTree(size, self.load(edge(size)))
        for leaf in leaves:
            tree.append(leaf)
        self.update(tree.tiles())
        return tree.root()


@pytest.fixture(scope="module")
def tiles() -> Tiles:
    kept = Tiles()
    kept.grow(0, LEAVES)
    return kept


def test_the_root_of_every_size_is_that_of_the_rfc_however_it_grew() -> None:
    kept, dice, size = Tiles(), random.Random(4), 0
    frontier = Frontier()
    assert Tree(0, kept.load).root() == EMPTY_ROOT
    while size < SIZE:
        batch = LEAVES[size : size + dice.choice([1, 1, 2, 7, 40])]
        root = kept.grow(size, batch)
        size += len(batch)
        for leaf in batch:
            frontier.append(leaf)
        assert root == frontier.root() == reference_root(LEAVES[:size]) == Tree(size, kept.load).root()


def test_inclusion_proofs_of_every_size_are_those_of_the_rfc(tiles: Tiles) -> None:
    tree = Tree(SIZE, tiles.load)
    dice = random.Random(5)
    for size in range(1, SIZE + 1):
        root = tree.root(size)
        for index in {0, size - 1, size // 2, dice.randrange(size), dice.randrange(size)}:
            proof = tree.inclusion(index, size)
            assert proof == reference_inclusion(index, LEAVES[:size])
            check_inclusion(LEAVES[index], index, size, proof, root)


def test_consistency_proofs_of_every_size_are_those_of_the_rfc(tiles: Tiles) -> None:
    tree = Tree(SIZE, tiles.load)
    dice = random.Random(6)
    for second in range(1, SIZE + 1):
        for first in {1, second, dice.randint(1, second), dice.randint(1, second)}:
            proof = tree.consistency(first, second)
            assert proof == ([] if first == second else reference_consistency(first, LEAVES[:second]))
            check_consistency(first, second, proof, tree.root(first), tree.root(second))
    assert tree.consistency(0, SIZE) == []


def test_a_large_tree_has_three_levels_and_proofs_that_need_few_tiles_in_one_round_trip() -> None:
    size = 70_000
    leaves = [number.to_bytes(32, "big") for number in range(size)]
    kept = Tiles()
    root = kept.grow(0, leaves)
    frontier = Frontier()
    for leaf in leaves:
        frontier.append(leaf)
    assert root == frontier.root()
    assert {level for level, _ in kept} == {0, 1, 2}
    kept.asked = 0
    tree = Tree(size, kept.load)
    proof = tree.inclusion(65_536, size)
    assert kept.asked == 1
    check_inclusion(leaves[65_536], 65_536, size, proof, root)
    assert tree.root() == root
    old = Frontier()
    for leaf in leaves[:66_000]:
        old.append(leaf)
    check_consistency(66_000, size, tree.consistency(66_000, size), old.root(), root)


def test_a_tile_that_is_changed_or_gone_is_found(tiles: Tiles) -> None:
    broken = Tiles()
    broken.update(tiles)
    assert full_tiles(SIZE, 0) == 2
    assert Tree(SIZE, broken.load).check_tiles([(0, 0), (0, 1)]) == []
    broken[0, 1] = bytes([broken[0, 1][0] ^ 1]) + broken[0, 1][1:]
    assert Tree(SIZE, broken.load).check_tiles([(0, 0), (0, 1)]) == [(0, 1)]
    broken[0, 2] = broken[0, 2][:32]
    for use in (lambda: GrowingTree(SIZE, broken.load(edge(SIZE))), lambda: Tree(SIZE, broken.load).root()):
        with pytest.raises(StoreCorruptError):
            use()
    del broken[1, 0]
    with pytest.raises(StoreCorruptError):
        Tree(SIZE, broken.load).root()
