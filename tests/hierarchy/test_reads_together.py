"""Nodes are read in batches: few round trips, and the same answers whatever the size of the batches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from unittest import mock

import pytest

from drillcore_proto.v1.nodes_pb2 import AsOf, Entity, Filters
from drillcore_server.hierarchy import query as querying
from drillcore_server.hierarchy import store, walk
from tests.support.callers.knowledge import CHUNK, LEVELS, MASTER, RAW, SECTION, Caller
from tests.support.data.texts import REGULATIONS
from tests.support.fixtures import Filled
from tests.support.round_trips.measured import cost_of
from tests.support.servers.running import ACME, Running

Reads = Callable[[Caller, Filled], object]


def first_of(filled: Filled, level: int) -> str:
    tree = filled.tree
    return {MASTER: tree.master.id, SECTION: min(tree.sections), CHUNK: min(tree.chunks), RAW: min(tree.raws)}[level]


CALLS: dict[str, tuple[str, int, Reads]] = {
    "a master": ("GetNode", 6, lambda library, filled: library.node(first_of(filled, MASTER))),
    "a section": ("GetNode", 6, lambda library, filled: library.node(first_of(filled, SECTION))),
    "a chunk": ("GetNode", 6, lambda library, filled: library.node(first_of(filled, CHUNK), with_embedding=True)),
    "a raw": ("GetNode", 6, lambda library, filled: library.node(first_of(filled, RAW))),
    "all sections": ("Query", 7, lambda library, filled: library.query(filled.corpus, level=SECTION)),
    "all chunks": ("Query", 7, lambda library, filled: library.query(filled.corpus, level=CHUNK)),
    "100 raws": (
        "Query",
        7,
        lambda library, filled: next(library.pages_of_query(filled.corpus, level=RAW, page_size=100)),
    ),
    "by meaning": ("Query", 7, lambda library, filled: library.query(filled.corpus, level=CHUNK, text="reports")),
    "by document": (
        "Query",
        9,
        lambda library, filled: library.query(
            filled.corpus,
            level=CHUNK,
            filters=Filters(document_ids=list(filled.ids.values()), entities=[Entity(type="regulation")]),
        ),
    ),
    "down to chunks": ("DrillDown", 7, lambda library, filled: library.below(first_of(filled, MASTER), CHUNK)),
    "down to raws": ("DrillDown", 7, lambda library, filled: library.below(first_of(filled, SECTION), RAW)),
    "up": (
        "RollUp",
        7,
        lambda library, filled: library.roll_up(*sorted(filled.tree.raws)[:50], target=SECTION),
    ),
    "documents": ("ListDocuments", 5, lambda library, filled: library.list_documents(filled.corpus)),
    "history": ("GetHistory", 5, lambda library, filled: library.history(node_id=first_of(filled, SECTION))),
}


@pytest.mark.parametrize(("rpc", "budget", "call"), CALLS.values(), ids=CALLS.keys())
def test_a_call_takes_few_round_trips(
    shared: Running, library: Caller, filled: Filled, rpc: str, budget: int, call: Reads
) -> None:
    call(library, filled)
    assert cost_of(shared, rpc, lambda: call(library, filled)).round_trips <= budget


def test_the_text_of_a_document_takes_few_round_trips(shared: Running, library: Caller, corpus: str) -> None:
    text = "\n\n".join(REGULATIONS.values())
    document = library.add_texts(corpus, {"long.txt": text})["long.txt"]
    assert len(library.query(corpus, level=CHUNK)) > 2
    assert library.text(corpus, document) == text
    assert cost_of(shared, "GetDocument", lambda: library.text(corpus, document)).round_trips <= 6


@pytest.mark.parametrize("at_once", [1, 2])
def test_batches_of_any_size_give_the_same_nodes(library: Caller, filled: Filled, at_once: int) -> None:
    master = filled.tree.master.id
    filters = Filters(entities=[Entity(type="regulation")])

    def read() -> list[object]:
        return [
            *(library.query(filled.corpus, level=level, page_size=7) for level in LEVELS),
            *(library.query(filled.corpus, level=level, filters=filters) for level in LEVELS),
            *(library.below(master, level, page_size=7) for level in (SECTION, CHUNK, RAW)),
            library.query(filled.corpus, level=CHUNK, text="reports", page_size=7),
        ]

    whole = read()
    with ExitStack() as patches:
        for module, name in (
            (store, "KEYS_AT_ONCE"),
            (walk, "_SECTIONS_AT_ONCE_MAX"),
            (walk, "_NODES_AT_ONCE_MAX"),
            (querying, "_PARENTS_MAX"),
            (querying, "_READ_AT_ONCE"),
        ):
            patches.enter_context(mock.patch.object(module, name, at_once))
        assert read() == whole


def test_entities_are_found_alike_by_their_index_and_in_the_chunks_themselves(library: Caller, filled: Filled) -> None:
    named = {(entity.type, entity.value) for chunk in filled.tree.chunks.values() for entity in chunk.chunk.entities}
    kinds = {(kind, "") for kind, _ in named}
    documents = list(filled.ids.values())
    for kind, value in sorted(named)[::5] + sorted(kinds):
        filters = Filters(document_ids=documents, entities=[Entity(type=kind.upper(), value=value.upper())])
        from_chunks = library.query(filled.corpus, level=CHUNK, filters=filters)
        with mock.patch.object(querying, "_LOOKED_AT_MAX", 0):
            assert library.query(filled.corpus, level=CHUNK, filters=filters) == from_chunks != []


@pytest.mark.parametrize("level", [SECTION, CHUNK, RAW])
@pytest.mark.parametrize("text", ["", "reports"])
def test_pages_with_erased_nodes_show_every_other_node_once(
    shared: Running, library: Caller, corpus: str, level: int, text: str
) -> None:
    if text and level == RAW:
        pytest.skip("raws are not searched by meaning")
    library.add_texts(corpus, dict(list(REGULATIONS.items())[:3]))
    with shared.client(ACME) as client:
        client.erase_source(corpus, list(REGULATIONS)[1], reason="asked for")
    before = AsOf(revision=1)
    whole = library.query(corpus, level=level, text=text, as_of=before)
    paged = library.query(corpus, level=level, text=text, as_of=before, page_size=1)
    assert [node.id for node in paged] == [node.id for node in whole]
    assert len({node.id for node in whole}) == len(whole) > 0
