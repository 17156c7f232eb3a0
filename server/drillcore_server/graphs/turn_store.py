"""Reads the turns and edges of a corpus at one revision, and makes the writes that change them."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import RangeRead, Reader
from drillcore_fdb.tuples import KeyRange
from drillcore_server.graphs.turn_model import Edge, EdgeType, Turn
from drillcore_server.hierarchy.model import chunk_of_raw
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.kernel.holdings import Holdings
from drillcore_server.kernel.writes import LOCATOR_BYTES, TURN_MARK, Write, turn_locator
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import CorpusNumber, NodeId, SourceId, TenantId, TurnId
from drillcore_server.storage.keyring import CORPUS_SCOPE, KeyNumber, Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.spaces import Space
from drillcore_server.storage.versioned import Entry

TURN = RecordKind(Turn)
_SESSION_HASH_BYTES: Final = 16
_REMOVED_AT_ONCE: Final = 100
"""How many turns of a source are removed with one look at their edges."""


@dataclass(frozen=True, slots=True)
class TurnReader:
    """Reads the turns and edges of one corpus at one revision, in the order of ids."""

    view: CorpusAtRevision

    def turn_left(self, turn: TurnId) -> Turn | None:
        """A turn; None if it is missing or erased."""
        return self.turns_left([turn])[0]

    def turns_left(self, turns: Sequence[TurnId]) -> list[Turn | None]:
        """Several turns, read together. None for those that are missing or erased."""
        keys = [self.view.keys.turn(turn) for turn in turns]
        found = self.view.sealed.get_many_unless_erased(self.view.tr, keys, self.view.revision)
        return [None if entry is None else TURN.decode(entry.value) for entry in found]

    def turns(self, after: TurnId | None = None) -> Iterator[Turn]:
        for entry in self.view.sealed.scan(self.view.tr, *self.view.keys.turns(after), self.view.revision):
            yield TURN.decode(entry.value)

    def edges_from(self, parent: TurnId) -> Iterator[Edge]:
        return (edge_of(entry.key) for entry in self._scan(self.view.keys.edges(parent)))

    def edges_to(self, child: TurnId) -> Iterator[Edge]:
        return (edge_to_of(entry.key) for entry in self._scan(self.view.keys.edges_to(child)))

    def edges(self) -> Iterator[Edge]:
        """All edges, by parent, child and type."""
        return (edge_of(entry.key) for entry in self._scan(self.view.keys.all_edges()))

    def turns_with_edges(self, turns: Sequence[TurnId]) -> Iterator[tuple[TurnId, Turn, list[Edge]]]:
        """Those of several turns that are left, each with the edges that lead to it. Read together."""
        keys = self.view.keys
        self.view.read_ahead(list(map(keys.turn, turns)), [RangeRead(*keys.edges_to(turn)) for turn in turns])
        for id_, turn, edges in zip(turns, self.turns_left(turns), self.edges_to_each(turns), strict=True):
            if turn is not None:
                yield id_, turn, edges

    def edges_to_each(self, children: Sequence[TurnId]) -> list[list[Edge]]:
        """The edges that lead to each of several turns, read together."""
        found = versioned.scan_many(self.view.tr, list(map(self.view.keys.edges_to, children)), self.view.revision)
        return [[edge_to_of(entry.key) for entry in entries] for entries in found]

    def edges_touching(self, turns: Sequence[TurnId]) -> list[list[Edge]]:
        """All edges of each of several turns, in both directions, each once. Read together."""
        keys, count = self.view.keys, len(turns)
        ranges = [*map(keys.edges, turns), *map(keys.edges_to, turns)]
        found = versioned.scan_many(self.view.tr, ranges, self.view.revision)
        from_each = ([edge_of(entry.key) for entry in entries] for entries in found[:count])
        to_each = ([edge_to_of(entry.key) for entry in entries] for entries in found[count:])
        return [[*away, *to] for away, to in zip(from_each, to_each, strict=True)]

    def _scan(self, keys: KeyRange) -> Iterator[Entry]:
        return versioned.scan(self.view.tr, *keys, self.view.revision)


def turn_id(key: bytes) -> TurnId:
    """The id at the end of a key."""
    return TurnId(UUID(bytes=key[-16:]))


def edge_of(key: bytes) -> Edge:
    """The edge of a key that ends with parent, child and type."""
    parent, child = key[-33:-17], key[-17:-1]
    return Edge(TurnId(UUID(bytes=parent)), TurnId(UUID(bytes=child)), EdgeType(key[-1]))


def edge_to_of(key: bytes) -> Edge:
    """The edge of a key that ends with child, parent and type."""
    child, parent = key[-33:-17], key[-17:-1]
    return Edge(TurnId(UUID(bytes=parent)), TurnId(UUID(bytes=child)), EdgeType(key[-1]))


def session_hash(keyring: Keyring, corpus: CorpusNumber, session: str) -> bytes:
    """The keyed hash that stands for a session in keys. Without the key, nobody can test for a session id."""
    (number,) = keyring.numbers(corpus, [CORPUS_SCOPE])
    return hmac.digest(keyring.derived(number, b"sessions"), session.encode(), "sha256")[:_SESSION_HASH_BYTES]


def locate(tr: Reader, keys: Keyspace, tenant: TenantId, turn: TurnId) -> CorpusNumber | None:
    """The corpus that has, or had, a turn of the tenant."""
    stored = tr.get(keys.locator(tenant, NodeId(turn)))
    if stored is None or stored[:1] != TURN_MARK:
        return None
    return CorpusNumber(int.from_bytes(stored[1:LOCATOR_BYTES], "big"))


class TurnWrites:
    """Makes the writes of turns and edges, with their index entries and their entries in the feed of changes.

    The feed names only the child of a changed edge. Followers read all edges to that child again.
    """

    def __init__(self, keys: Keyspace, tenant: TenantId, number: CorpusNumber, keyring: Keyring) -> None:
        self._keyspace = keys
        self._keys = keys.of_corpus(number)
        self._tenant = tenant
        self._number = number
        self._keyring = keyring

    def put(self, turn: Turn, before: Turn | None = None) -> Iterator[Write]:
        """Puts a turn. `before` is the turn with the same id that it replaces.

        If that is of another source, all its edges must be added again.
        """
        yield Write(self._keys.turn(turn.id), TURN.encode(turn), self._source_key(turn.source))
        if before is not None and before.session != turn.session:
            yield Write(self._session_key(before), None)
        if before is None or (before.session, before.source) != (turn.session, turn.source):
            yield Write(self._session_key(turn), b"")
        if before is None:
            yield self._locator(turn.id)
        yield self._feed_entry(turn.id)

    def remove(self, turn: Turn, edges: Iterable[Edge]) -> Iterator[Write]:
        """Removes a turn. `edges` must be all edges of the turn that still have to be removed."""
        yield Write(self._keys.turn(turn.id), None)
        yield Write(self._session_key(turn), None)
        yield self._feed_entry(turn.id)
        for edge in edges:
            yield from self.remove_edge(edge)

    def add_edge(self, edge: Edge) -> Iterator[Write]:
        return self._edge(edge, b"")

    def remove_edge(self, edge: Edge) -> Iterator[Write]:
        return self._edge(edge, None)

    def without_source(self, held: Holdings) -> Iterator[Write]:
        """Removes the turns of a source with all their edges."""
        turns = (TURN.decode(held.snapshot.sealed.opened(entry).value) for entry in held.entries(Space.TURNS))
        while batch := list(islice(turns, _REMOVED_AT_ONCE)):
            ids = [turn.id for turn in batch]
            touching = held.snapshot.together(ids, lambda view, some: TurnReader(view).edges_touching(some))
            for turn, edges in zip(batch, touching, strict=True):
                yield from self.remove(turn, edges)

    def session_key(self, session: str, turn: TurnId) -> bytes:
        """The key of a turn's entry in the index of sessions."""
        return self._keys.session_turn(session_hash(self._keyring, self._number, session), turn)

    def _edge(self, edge: Edge, value: bytes | None) -> Iterator[Write]:
        yield Write(self._keys.edge(edge.parent, edge.child, edge.type), value)
        yield Write(self._keys.edge_to(edge.child, edge.parent, edge.type), value)
        yield self._feed_entry(edge.child)

    def _session_key(self, turn: Turn) -> bytes:
        return self.session_key(turn.session, turn.id)

    def _feed_entry(self, turn: TurnId) -> Write:
        return Write(self._keys.graph_changes(), b"", feed=turn.bytes)

    def _locator(self, turn: TurnId) -> Write:
        """Writes the locator of a turn, unless the id that the caller gave is that of a raw text.

        A raw text has no locator of its own, so the write names the locator of its chunk as `block`.
        """
        owner, place = chunk_of_raw(NodeId(turn))
        block = self._keyspace.locator(self._tenant, owner) if place >= 0 else None
        key = self._keyspace.locator(self._tenant, NodeId(turn))
        return Write(key, turn_locator(self._number), versioned=False, block=block)

    def _source_key(self, source: SourceId) -> KeyNumber:
        (number,) = self._keyring.numbers(self._number, [source])
        return number
