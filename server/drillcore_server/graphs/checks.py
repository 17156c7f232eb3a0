"""The part of fsck for graphs: checks the turns and edges of a corpus with their index, and its quads with theirs.

Quads are not held in memory, so a corpus may have any number. If every quad has its six index entries, and there are
six times as many entries as quads, then every entry leads to a quad.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from drillcore_fdb.errors import EngineError
from drillcore_server.graphs import turn_store as turns
from drillcore_server.graphs.quad_store import PLACE_BYTES, QuadHashes, decode_record, index_keys, indexed_place
from drillcore_server.graphs.turn_model import Edge
from drillcore_server.graphs.turn_store import TURN, TurnWrites, edge_of
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import SourceId, TurnId
from drillcore_server.storage.keyring import Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.versioned import Entry


class GraphCheck:
    """Checks one corpus at one revision. Holds the ids and index keys of turns in memory, not their content."""

    def __init__(self, snapshot: BatchedReads, keys: Keyspace, keyring: Keyring, corpus: Corpus) -> None:
        self._snapshot = snapshot
        self._keyspace = keys
        self._corpus = corpus
        self._writes = TurnWrites(keys, corpus.tenant_id, corpus.number, keyring)
        self._ids: set[TurnId] = set()
        self._index_keys: set[bytes] = set()
        """The keys that the index must have."""
        self._sources: set[SourceId] = set()

    def problems(self) -> Iterator[str]:
        for entry in self._snapshot.entries(self._snapshot.keys.turns()):
            yield from self._turn(entry)
        for entry in self._snapshot.entries(self._snapshot.keys.all_edges()):
            yield from self._edge(edge_of(entry.key))
        yield from self._index()
        yield from self._locators()
        yield from self._registered()

    def _turn(self, entry: Entry) -> Iterator[str]:
        try:
            turn = TURN.decode(self._snapshot.sealed.opened(entry).value)
        except EngineError as error:
            yield error.message
            return
        if turns.turn_id(entry.key) != turn.id:
            yield f"turn {turn.id} is stored under the key of another turn"
        self._ids.add(turn.id)
        self._index_keys.add(self._writes.session_key(turn.session, turn.id))
        if turn.source:
            self._sources.add(turn.source)

    def _edge(self, edge: Edge) -> Iterator[str]:
        self._index_keys.add(self._snapshot.keys.edge_to(edge.child, edge.parent, edge.type))
        for turn in (edge.parent, edge.child):
            if turn not in self._ids:
                yield f"the edge from {edge.parent} to {edge.child} needs the missing turn {turn}"

    def _index(self) -> Iterator[str]:
        stored = {entry.key for entry in self._snapshot.entries(self._snapshot.keys.all_graph_entries())}
        yield from (f"the graph's index lacks {key.hex()}" for key in self._index_keys - stored)
        yield from (f"the graph's index has {key.hex()}, which leads nowhere" for key in stored - self._index_keys)

    def _locators(self) -> Iterator[str]:
        ids = sorted(self._ids)
        for turn, number in zip(ids, self._snapshot.find(ids, self._located), strict=True):
            if number != self._corpus.number:
                yield f"the locator of turn {turn} does not lead to it"

    def _located(self, view: CorpusAtRevision, turn: TurnId) -> int | None:
        return turns.locate(view.tr, self._keyspace, self._corpus.tenant_id, turn)

    def _registered(self) -> Iterator[str]:
        """Checks that every source is registered. Nobody could erase an unregistered source."""
        sources = sorted(self._sources)
        known = self._snapshot.find(sources, lambda view, source: HierarchyReader(view).source(source) is not None)
        if missing := sum(not is_known for is_known in known):
            yield f"{missing} sources of turns are not registered"


_BATCH: Final = 200
"""Quads whose index entries are read in one transaction."""


class QuadCheck:
    """Checks the quads of one corpus at one revision."""

    def __init__(self, snapshot: BatchedReads, keyring: Keyring, corpus: Corpus) -> None:
        self._snapshot = snapshot
        self._hashes = QuadHashes.of(keyring, corpus.number)
        self._sources: set[SourceId] = set()

    def problems(self) -> Iterator[str]:
        records = 0
        stored = self._snapshot.entries(self._snapshot.keys.quads())
        while batch := list(islice(stored, _BATCH)):
            records += len(batch)
            for entry in batch:
                yield from self._record(entry)
            yield from self._snapshot.read(lambda view, b=batch: list(_missing(view, b)))  # type: ignore[misc]
        yield from self._leading_nowhere(records)
        yield from self._unregistered()

    def _record(self, entry: Entry) -> Iterator[str]:
        try:
            quad, source = decode_record(self._snapshot.sealed.opened(entry).value)
        except EngineError as error:
            yield error.message
            return
        if source:
            self._sources.add(source)
        if self._hashes.place(quad, source) != entry.key[-PLACE_BYTES:]:
            yield f"a quad is stored under the key of another quad: {entry.key.hex()}"

    def _leading_nowhere(self, records: int) -> Iterator[str]:
        entries = self._snapshot.keys.all_quad_entries()
        if sum(1 for _ in self._snapshot.entries(entries)) == 6 * records:
            return
        stored = self._snapshot.entries(entries)
        while batch := list(islice(stored, _BATCH)):
            there = self._snapshot.read(lambda view, b=batch: _lead_to_records(view, b))  # type: ignore[misc]
            for entry, leads in zip(batch, there, strict=True):
                if not leads:
                    yield f"the quads' index has {entry.key.hex()}, which leads nowhere"

    def _unregistered(self) -> Iterator[str]:
        sources = sorted(self._sources)
        known = self._snapshot.find(
            sources, lambda view, source: HierarchyReader(view).source_unless_erased(source) is not None
        )
        if missing := sum(not is_known for is_known in known):
            yield f"{missing} sources of quads are not registered"


def _missing(view: CorpusAtRevision, records: list[Entry]) -> Iterator[str]:
    keys = [key for record in records for key in index_keys(view.keys, record.key[-PLACE_BYTES:])]
    for key, is_there in zip(keys, versioned.are_there(view.tr, keys, view.revision), strict=True):
        if not is_there:
            yield f"the quads' index lacks {key.hex()}"


def _lead_to_records(view: CorpusAtRevision, entries: list[Entry]) -> list[bool]:
    """For each entry of the quads' index, whether its record is there."""
    keys = [view.keys.quad(indexed_place(view.keys, entry.key)) for entry in entries]
    return versioned.are_there(view.tr, keys, view.revision)
