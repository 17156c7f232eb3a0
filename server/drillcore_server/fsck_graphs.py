"""Proves that the conversation graph of a corpus agrees with itself: turns, edges, and what leads to both."""

from __future__ import annotations

from collections.abc import Iterator

from drillcore_fdb.errors import EngineError
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.ids import SourceId, TurnId
from drillcore_server.domain.turns import Edge
from drillcore_server.store import turns
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.keyring import Keyring
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.turns import TURN, TurnWrites, edge_of
from drillcore_server.store.versioned import Entry


class GraphCheck:
    """One corpus at one revision. Of turns their ids and what leads to them are held."""

    def __init__(self, snapshot: Snapshot, keys: Keyspace, keyring: Keyring, corpus: Corpus) -> None:
        self._snapshot = snapshot
        self._keyspace = keys
        self._corpus = corpus
        self._writes = TurnWrites(keys, corpus.tenant_id, corpus.number, keyring)
        self._ids: set[TurnId] = set()
        self._leading: set[bytes] = set()
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
            yield f"turn {turn.id} is kept as another"
        self._ids.add(turn.id)
        self._leading.add(self._writes.session_key(turn.session, turn.id))
        if turn.source:
            self._sources.add(turn.source)

    def _edge(self, edge: Edge) -> Iterator[str]:
        self._leading.add(self._snapshot.keys.edge_to(edge.child, edge.parent, edge.type))
        for one in (edge.parent, edge.child):
            if one not in self._ids:
                yield f"the edge from {edge.parent} to {edge.child} is of turn {one}, which is not there"

    def _index(self) -> Iterator[str]:
        there = {entry.key for entry in self._snapshot.entries(self._snapshot.keys.all_graph_entries())}
        yield from (f"the graph's index lacks {key.hex()}" for key in self._leading - there)
        yield from (f"the graph's index has {key.hex()}, which leads nowhere" for key in there - self._leading)

    def _locators(self) -> Iterator[str]:
        ids = sorted(self._ids)
        for turn, number in zip(ids, self._snapshot.find(ids, self._located), strict=True):
            if number != self._corpus.number:
                yield f"the locator of turn {turn} does not lead to it"

    def _located(self, view: CorpusView, turn: TurnId) -> int | None:
        return turns.locate(view.tr, self._keyspace, self._corpus.tenant_id, turn)

    def _registered(self) -> Iterator[str]:
        """Or nobody could erase them with their source."""
        sources = sorted(self._sources)
        found = self._snapshot.find(sources, lambda view, one: view.source(one) is not None)
        if missing := [one for one, is_there in zip(sources, found, strict=True) if not is_there]:
            yield f"{len(missing)} sources of turns are not registered"
