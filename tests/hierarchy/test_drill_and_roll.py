"""DrillDown, RollUp and GetNode: from every node to those below it and above it."""

from __future__ import annotations

import math
from itertools import combinations, product
from unittest import mock
from uuid import uuid4

import pytest

from drillcore_proto.reasons import Reason
from drillcore_proto.v1.nodes_pb2 import Node
from drillcore_server.hierarchy import reader as viewing
from tests.support.callers.knowledge import CHUNK, LEVELS, MASTER, RAW, SECTION, Caller, File, refused
from tests.support.data.texts import REGULATIONS, notice
from tests.support.fixtures import Filled, new_corpus
from tests.support.servers.running import Running
from tests.support.servers.trees import Tree, assert_whole

DOWN = [(upper, lower) for upper, lower in product(LEVELS, LEVELS) if upper > lower]
NOT_DOWN = [(upper, lower) for upper, lower in product(LEVELS, LEVELS) if upper <= lower]


def nodes_at(tree: Tree, level: int) -> list[Node]:
    return {
        MASTER: [tree.master],
        SECTION: list(tree.sections.values()),
        CHUNK: list(tree.chunks.values()),
        RAW: list(tree.raws.values()),
    }[level]


def ancestors(tree: Tree, node: Node) -> list[Node]:
    """The node and those above it, the master last."""
    above = [node]
    known = {candidate.id: candidate for level in LEVELS for candidate in nodes_at(tree, level)}
    while above[-1].parent_id:
        above.append(known[above[-1].parent_id])
    return above


def test_the_regulations_make_a_tree_of_several_sections_that_is_whole(filled: Filled) -> None:
    assert len(filled.tree.sections) >= 3
    assert len(filled.tree.chunks) >= len(REGULATIONS)
    assert_whole(filled.tree)


@pytest.mark.parametrize("level", LEVELS)
def test_every_node_is_found_by_its_id_alone(library: Caller, filled: Filled, level: int) -> None:
    for node in nodes_at(filled.tree, level)[:10]:
        found = library.node(node.id)
        assert (found.id, found.level, found.parent_id) == (node.id, level, node.parent_id)
        assert (found.corpus_id, found.version, found.created_by) == (filled.corpus, 1, "ann@acme")
        children = (
            {child.id for child in nodes_at(filled.tree, level - 1) if child.parent_id == node.id} if level > 1 else ()
        )
        assert set(found.child_ids) == set(children)
        assert len(found.child_ids) == found.child_count == len(children)


def test_a_node_with_many_children_names_the_first_and_says_how_many(library: Caller, filled: Filled) -> None:
    whole = library.node(filled.tree.master.id)
    with mock.patch.object(viewing, "CHILDREN_MAX", 2):
        found = library.node(whole.id)
    assert list(found.child_ids) == list(whole.child_ids)[:2]
    assert found.child_count == whole.child_count == len(filled.tree.sections) > 2


def test_a_chunk_has_its_embedding_if_it_is_asked_for(library: Caller, filled: Filled) -> None:
    chunk = next(iter(filled.tree.chunks))
    without, having = library.node(chunk).chunk, library.node(chunk, with_embedding=True).chunk
    assert (list(without.embedding), without.embedding_model) == ([], having.embedding_model)
    assert math.isclose(math.sqrt(sum(x * x for x in having.embedding)), 1.0, abs_tol=0.01)


def test_a_node_that_never_existed_is_not_found(library: Caller) -> None:
    for attempt in (
        lambda: library.node(str(uuid4())),
        lambda: library.below(str(uuid4()), RAW),
        lambda: library.roll_up(str(uuid4()), target=MASTER),
        lambda: library.history(node_id=str(uuid4())),
    ):
        with refused(Reason.NODE_NOT_FOUND):
            attempt()


def test_a_raw_after_the_last_of_its_chunk_is_not_found(library: Caller, filled: Filled) -> None:
    """Ids of raws are made from the id of their chunk. The id after the last raw must not be found."""
    known = set(filled.tree.raws)
    for raw in list(known)[:5]:
        beyond = raw[:-1] + format((int(raw[-1], 16) + 7) % 16, "x")
        if beyond not in known:
            with refused(Reason.NODE_NOT_FOUND):
                library.node(beyond)


@pytest.mark.parametrize(("upper", "lower"), DOWN)
def test_a_drill_down_gives_the_nodes_below(library: Caller, filled: Filled, upper: int, lower: int) -> None:
    found: list[str] = []
    for top in nodes_at(filled.tree, upper):
        below = library.below(top.id, lower)
        assert all(top.id in [ancestor.id for ancestor in ancestors(filled.tree, node)] for node in below)
        found += [node.id for node in below]
    assert sorted(found) == sorted(node.id for node in nodes_at(filled.tree, lower))


@pytest.mark.parametrize(("upper", "lower"), DOWN)
@pytest.mark.parametrize("page_size", [1, 2, 5])
def test_a_drill_down_in_pages_is_the_same(
    library: Caller, filled: Filled, upper: int, lower: int, page_size: int
) -> None:
    top = max(nodes_at(filled.tree, upper), key=lambda node: len(library.below(node.id, lower)) if upper > 2 else 0)
    pages = list(library.pages_below(top.id, lower, page_size=page_size))
    assert [node for page in pages for node in page.nodes] == library.below(top.id, lower)
    assert all(len(page.nodes) == page_size for page in pages[:-1])
    assert pages[-1].nodes


def test_a_drill_down_is_in_reading_order(library: Caller, filled: Filled) -> None:
    for section in filled.tree.sections:
        raws = [(raw.raw.document_id, raw.raw.span.start) for raw in library.below(section, RAW)]
        documents = list(dict.fromkeys(document for document, _ in raws))
        assert raws == sorted(raws, key=lambda raw: (documents.index(raw[0]), raw[1]))


@pytest.mark.parametrize(("upper", "lower"), NOT_DOWN)
def test_a_drill_down_to_the_same_level_or_up_is_refused(
    library: Caller, filled: Filled, upper: int, lower: int
) -> None:
    with refused(Reason.INVALID_ARGUMENT, field="target"):
        library.below(nodes_at(filled.tree, upper)[0].id, lower)


@pytest.mark.parametrize(("upper", "lower"), NOT_DOWN)
def test_a_roll_up_to_the_same_level_or_down_is_refused(
    library: Caller, filled: Filled, upper: int, lower: int
) -> None:
    with refused(Reason.INVALID_ARGUMENT, field="target"):
        library.roll_up(nodes_at(filled.tree, upper)[0].id, target=lower if lower < upper else upper)


def test_a_level_must_be_named(library: Caller, filled: Filled) -> None:
    with refused(Reason.INVALID_ARGUMENT, field="target"):
        library.below(filled.tree.master.id, 0)
    with refused(Reason.INVALID_ARGUMENT, field="target"):
        library.roll_up(next(iter(filled.tree.raws)), target=0)


def test_a_drill_down_stays_at_its_revision(library: Caller, corpus: str) -> None:
    added = library.add_texts(corpus, {f"{number}.txt": notice(number) for number in range(5)})
    master = library.master(corpus).id
    whole, found = library.below(master, RAW), []
    for number, page in enumerate(library.pages_below(master, RAW, page_size=3)):
        assert page.revision == 1
        found += page.nodes
        library.add(corpus, File(f"more {number}.txt", notice(50 + number)))
        if number == 0:
            library.remove(corpus, added["2.txt"])
    assert found == whole


def test_a_token_of_a_drill_down_is_valid_for_its_node_and_level_only(library: Caller, filled: Filled) -> None:
    master = filled.tree.master.id
    token = next(library.pages_below(master, CHUNK, page_size=1)).next_page_token
    section = next(iter(filled.tree.sections))
    for start, target, wrong in (
        (master, RAW, token),
        (section, CHUNK, token),
        (master, CHUNK, token[:-2]),
        (master, CHUNK, "made up"),
    ):
        with refused(Reason.INVALID_PAGE_TOKEN, field="page_token"):
            library.below(start, target, page_token=wrong)


@pytest.mark.parametrize(("target", "level"), DOWN)
def test_a_node_rolls_up_to_its_ancestor(library: Caller, filled: Filled, target: int, level: int) -> None:
    for node in nodes_at(filled.tree, level)[:6]:
        found = library.roll_up(node.id, target=target)
        (expected,) = [ancestor for ancestor in ancestors(filled.tree, node) if ancestor.level == target]
        assert [upper.id for upper in found.nodes] == [expected.id]
        assert found.common.id == expected.id
        assert found.revision == 1


def test_nodes_of_one_section_have_it_in_common(library: Caller, filled: Filled) -> None:
    section = max(filled.tree.sections.values(), key=lambda candidate: len(candidate.child_ids))
    chunks = [filled.tree.chunks[child] for child in section.child_ids]
    raws = [raw for raw in filled.tree.raws.values() if raw.parent_id in section.child_ids]
    found = library.roll_up(*(node.id for node in (*chunks, *raws)), target=SECTION)
    assert [upper.id for upper in found.nodes] == [section.id]
    assert found.common.id == section.id


def test_nodes_of_several_sections_have_the_master_in_common(library: Caller, filled: Filled) -> None:
    chunks = [section.child_ids[0] for section in filled.tree.sections.values()]
    found = library.roll_up(*chunks, *chunks, target=SECTION)
    assert [upper.id for upper in found.nodes] == list(filled.tree.sections), (
        "each section once, in the order of the nodes"
    )
    assert found.common.id == filled.tree.master.id
    assert found.common.level == MASTER


def test_the_common_node_is_the_lowest_that_all_nodes_share(library: Caller, corpus: str) -> None:
    """Raws of two chunks of one section have the section in common, though their chunks were asked for."""
    library.add_texts(corpus, {"long.txt": "\n\n".join([REGULATIONS["records.txt"].strip()] * 12)})
    (section,) = library.query(corpus, level=SECTION)
    by_chunk = {chunk.id: library.below(chunk.id, RAW) for chunk in library.query(corpus, level=CHUNK)}
    first, second = list(by_chunk.values())[:2]
    found = library.roll_up(first[0].id, second[0].id, target=CHUNK)
    assert [upper.id for upper in found.nodes] == list(by_chunk)[:2]
    assert (found.common.level, found.common.id) == (SECTION, section.id)


def test_a_roll_up_to_the_master_gives_the_master(library: Caller, filled: Filled) -> None:
    mixed = [next(iter(nodes)) for nodes in (filled.tree.raws, filled.tree.chunks, filled.tree.sections)]
    found = library.roll_up(*mixed, target=MASTER)
    assert [upper.id for upper in found.nodes] == [filled.tree.master.id] == [found.common.id]


def test_every_pair_of_chunks_rolls_up_to_the_same_nodes_in_either_order(library: Caller, filled: Filled) -> None:
    for first, second in list(combinations(filled.tree.chunks.values(), 2))[:12]:
        found = library.roll_up(first.id, second.id, target=SECTION)
        assert found.common.id == (first.parent_id if first.parent_id == second.parent_id else filled.tree.master.id)
        assert library.roll_up(second.id, first.id, target=SECTION).common == found.common


def test_nodes_of_different_corpora_have_nothing_in_common(library: Caller, filled: Filled, shared: Running) -> None:
    other_corpus = new_corpus(shared)
    library.add_texts(other_corpus, {"a.txt": notice(1)})
    (theirs,) = library.query(other_corpus, level=CHUNK, page_size=1)[:1]
    for target in (SECTION, MASTER):
        with refused(Reason.INVALID_ARGUMENT, field="ids"):
            library.roll_up(next(iter(filled.tree.chunks)), theirs.id, target=target)


def test_a_roll_up_of_unknown_nodes_is_refused(library: Caller, filled: Filled) -> None:
    chunk = next(iter(filled.tree.chunks))
    with refused(Reason.INVALID_ARGUMENT, field="ids"):
        library.roll_up(target=SECTION)
    with refused(Reason.INVALID_ARGUMENT, field="ids"):
        library.roll_up(*[chunk] * 1_001, target=SECTION)
    with refused(Reason.NODE_NOT_FOUND):
        library.roll_up(chunk, str(uuid4()), target=SECTION)
