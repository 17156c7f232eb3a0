"""The turns of a corpus as a graph that slices are taken from.

`TurnGraphs` keeps the graph at the head of each corpus in memory and follows the feed of its changes. `StoredTurnGraph`
reads the graph at any revision from the store, as a slice needs it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple
from uuid import UUID

from drillcore_fdb.engine import Engine, RangeRead
from drillcore_server.graphs.slice_model import SliceEdge, check_read, most_salient
from drillcore_server.graphs.turn_model import Edge, EdgeType, Phase, Turn
from drillcore_server.graphs.turn_store import TURN, TurnReader
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.revisions import RevisionRecord
from drillcore_server.storage.ids import Revision, TurnId
from drillcore_server.vectors.corpus_follower import Follower, Sharded

_PAGE: Final = 20_000
"""Entries of the feed that are read in one transaction."""
_TURNS_AHEAD_MAX: Final = 250
"""Turns that are read ahead together. What is beyond that is read when it is needed."""
_STEPS_AHEAD: Final = 6
_STEPS_TO_SIBLINGS: Final = 2
"""A sibling is two edges away. So a turn is ready once what lies this far from it was read."""
_LOCKS: Final = 64
_EDGE_BYTES: Final = 33
_TYPES: Final = {int(edge_type): edge_type for edge_type in EdgeType}
Incoming = tuple[tuple[bytes, int], ...]
"""The edges that lead to a turn, by parent and type. Types are plain numbers, which the garbage collector need not
visit."""


class TurnNode:
    """A turn with its edges. Never changes, except that it caches the order of its children."""

    __slots__ = ("children", "id", "incoming", "phase", "ranked", "record", "salience")
    kind: Final = "turn"

    def __init__(
        self, node: bytes, phase: Phase, salience: float, record: bytes, incoming: Incoming, children: Iterable[bytes]
    ) -> None:
        self.id = node
        self.phase = phase
        self.salience = salience
        self.record = record
        """The turn in its stored form, which takes a quarter of the memory of an object."""
        self.incoming = incoming
        self.children = tuple(children)
        """Ids in order, each once."""
        self.ranked: tuple[tuple[float, bytes], ...] | None = None
        """The children as pairs of negative salience and id, the most salient first. None until it is first needed."""

    def turn(self) -> Turn:
        return TURN.decode(self.record)

    def with_children(self, children: Iterable[bytes]) -> TurnNode:
        return TurnNode(self.id, self.phase, self.salience, self.record, self.incoming, children)


class TurnGraph:
    """All turns of a corpus at one revision, in memory. Implements `slice_model.Graph`."""

    def __init__(self, nodes: Sharded[TurnNode]) -> None:
        self._nodes = nodes
        self.node = nodes.get

    def turn(self, node: bytes) -> Turn:
        found = self.node(node)
        assert found is not None, "callers only ask for turns of a slice"
        return found.turn()

    def parents(self, node: bytes) -> list[bytes]:
        found = self.node(node)
        return [] if found is None else [parent for parent, _ in found.incoming]

    def children(self, node: bytes) -> Iterable[bytes]:
        found = self.node(node)
        return () if found is None else found.children

    def siblings(self, node: bytes, limit: int) -> list[bytes]:
        """Looks only at the first children of each parent, because a parent may have very many."""
        parents = self.parents(node)
        if len(parents) == 1:
            first = self._ranked(parents[0])[: limit + 1]
        else:
            first = sorted({child for parent in set(parents) for child in self._ranked(parent)[: limit + 1]})
        return [sibling for _, sibling in first if sibling != node][:limit]

    def edges(self, nodes: Collection[bytes]) -> Iterator[SliceEdge]:
        for child in nodes:
            found = self.node(child)
            for parent, edge_type in () if found is None else found.incoming:
                if parent in nodes:
                    yield SliceEdge(parent, child, _TYPES[edge_type])

    def changed(self, now: Mapping[bytes, TurnNode | None]) -> TurnGraph:
        """The graph with these turns in their new state; None removes a turn. Children are worked out here."""
        links = {child: self._links(child, node) for child, node in now.items()}
        touched = {parent for before, after in links.values() for parent in before | after}
        fresh: dict[bytes, TurnNode | None] = {}
        for id_ in now.keys() | touched:
            node = now[id_] if id_ in now else self.node(id_)
            fresh[id_] = None if node is None else node.with_children(self._children(id_))
        gained: dict[bytes, set[bytes]] = {}
        lost: dict[bytes, set[bytes]] = {}
        for child, (before, after) in links.items():
            for parent in after:
                gained.setdefault(parent, set()).add(child)
            for parent in before - after:
                lost.setdefault(parent, set()).add(child)
        for parent in gained.keys() | lost.keys():
            node = fresh[parent]
            if node is not None:
                children = (set(node.children) - lost.get(parent, set())) | gained.get(parent, set())
                fresh[parent] = node.with_children(sorted(children))
        return TurnGraph(self._nodes.changed(fresh))

    def _links(self, child: bytes, now: TurnNode | None) -> tuple[set[bytes], set[bytes]]:
        """The parents of a turn before and now.

        Parents that stay are included, because they rank the turn by its salience, which may have changed.
        """
        after = set() if now is None else {parent for parent, _ in now.incoming}
        return set(self.parents(child)), after

    def _children(self, node: bytes) -> Iterable[bytes]:
        before = self.node(node)
        return () if before is None else before.children

    def _ranked(self, parent: bytes) -> Sequence[tuple[float, bytes]]:
        found = self.node(parent)
        if found is None:
            return ()
        if found.ranked is None:
            nodes = (self.node(child) for child in found.children)
            found.ranked = tuple(sorted((-child.salience, child.id) for child in nodes if child is not None))
        return found.ranked


class TurnGraphs(Follower[TurnGraph]):
    """The graph at the head of each corpus that somebody has asked for."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, load, follow)
        self._reading = tuple(threading.Lock() for _ in range(_LOCKS))

    def newest(self, view: CorpusAtRevision) -> TurnGraph | None:
        """The graph at the view's revision, which must have been the head when its transaction began.

        None if the kept graph is already at a later revision, because reading everything again would take long. While
        one thread reads or updates the graph of a corpus, other threads wait for it.
        """
        number = view.corpus.number
        with self._reading[number % _LOCKS]:
            with self._lock:
                kept = self._kept.get(number)
            return None if kept is not None and kept[0] > view.revision else self.at(view)


def load(snapshot: BatchedReads) -> TurnGraph:
    """Every turn that was not erased. Edges of erased turns remain, and slices ignore them."""
    incoming: dict[bytes, list[tuple[bytes, int]]] = {}
    children: dict[bytes, dict[bytes, None]] = {}
    for entry in snapshot.entries(snapshot.keys.all_edges()):
        edge = entry.key[-_EDGE_BYTES:]
        parent, child = edge[:16], edge[16:32]
        incoming.setdefault(child, []).append((parent, edge[32]))
        children.setdefault(parent, {})[child] = None
    nodes: dict[bytes, TurnNode] = {}
    for entry in snapshot.entries(snapshot.keys.turns()):
        for opened in snapshot.sealed.opened_all([entry]):
            id_ = opened.key[-16:]
            nodes[id_] = _node(opened.value, tuple(incoming.get(id_, ())), children.get(id_, ()))
    return TurnGraph(Sharded.of(nodes))


def follow(kept: TurnGraph, since: Sequence[RevisionRecord], snapshot: BatchedReads) -> TurnGraph:
    """The graph with the changes that the revisions since then made to turns and edges."""
    changed = sorted(_changed(snapshot, Revision(since[0].revision - 1)))
    if not changed:
        return kept
    now: dict[bytes, TurnNode | None] = dict.fromkeys(turn.bytes for turn in changed)
    now |= {node.id: node for node in snapshot.together(changed, _read)}
    return kept.changed(now)


def _changed(snapshot: BatchedReads, after: Revision) -> set[TurnId]:
    """The turns that changed, or whose incoming edges changed, after a revision and up to the snapshot's."""
    found: set[TurnId] = set()
    begin, end = snapshot.keys.graph_changes_between(after, snapshot.revision)
    following: bytes | None = begin
    while following is not None:
        page = snapshot.read(lambda view, at=following: list(view.tr.range(at, end, limit=_PAGE)))  # type: ignore[misc]
        found.update(snapshot.keys.parse_graph_change(key)[1] for key, _ in page)
        following = page[-1][0] + b"\0" if len(page) == _PAGE else None
    return found


def _read(view: CorpusAtRevision, turns: Sequence[TurnId]) -> list[TurnNode]:
    """Reads those turns that are left. Does not read their children: a child that changed too is among the turns."""
    return [
        _node(TURN.encode(turn), tuple((edge.parent.bytes, int(edge.type)) for edge in edges), ())
        for _, turn, edges in TurnReader(view).turns_with_edges(turns)
    ]


def _node(record: bytes, incoming: Incoming, children: Iterable[bytes]) -> TurnNode:
    turn = TURN.decode(record)
    return TurnNode(turn.id.bytes, turn.phase, turn.salience, record, incoming, children)


class _StoredNode(NamedTuple):
    kind: str
    phase: Phase
    salience: float
    turn: Turn


@dataclass(frozen=True, slots=True)
class StoredTurnGraph:
    """The turns at one revision, read on demand. Implements `slice_model.Graph` and `slice_model.ReadAhead`.

    Caches all it reads; use one per call.
    """

    turns: TurnReader
    _ready: set[bytes] = field(default_factory=set)
    _nodes: dict[bytes, _StoredNode | None] = field(default_factory=dict)
    _to: dict[bytes, list[Edge]] = field(default_factory=dict)
    _from: dict[bytes, list[Edge]] = field(default_factory=dict)

    def node(self, node: bytes) -> _StoredNode | None:
        if node not in self._nodes:
            check_read(len(self._nodes) + 1)
            turn = self.turns.turn_left(_turn_id(node))
            self._nodes[node] = None if turn is None else _StoredNode("turn", turn.phase, turn.salience, turn)
        return self._nodes[node]

    def is_ready(self, node: bytes) -> bool:
        return node in self._ready

    def prepare(self, nodes: Sequence[bytes]) -> None:
        """Reads ahead the nodes and what lies within a few edges of them: one edge farther in each round trip."""
        around = [node for node in nodes if node not in self._ready]
        for step in range(_STEPS_AHEAD):
            if not around:
                return
            self._read_ahead(around)
            if step < _STEPS_AHEAD - _STEPS_TO_SIBLINGS:
                self._ready.update(around)
            near = (other for node in around for other in (*self.parents(node), *self.children(node)))
            unread = (other for other in near if other not in self._ready)
            around = list(dict.fromkeys(islice(unread, _TURNS_AHEAD_MAX)))

    def _read_ahead(self, nodes: Sequence[bytes]) -> None:
        """Reads ahead turns with the edges in both directions."""
        turns, keys = list(map(_turn_id, nodes)), self.turns.view.keys
        edges = [RangeRead(*of(turn)) for turn in turns for of in (keys.edges, keys.edges_to)]
        self.turns.view.read_ahead(list(map(keys.turn, turns)), edges)

    def turn(self, node: bytes) -> Turn:
        found = self.node(node)
        assert found is not None, "callers only ask for turns of a slice"
        return found.turn

    def parents(self, node: bytes) -> list[bytes]:
        return [edge.parent.bytes for edge in self._edges_to(node)]

    def children(self, node: bytes) -> list[bytes]:
        if node not in self._from:
            self._from[node] = list(self.turns.edges_from(_turn_id(node)))
        return [edge.child.bytes for edge in self._from[node]]

    def siblings(self, node: bytes, limit: int) -> list[bytes]:
        others = {child for parent in self.parents(node) if self.node(parent) for child in self.children(parent)}
        return most_salient(self, others - {node}, limit)

    def edges(self, nodes: Collection[bytes]) -> Iterator[SliceEdge]:
        for child in nodes:
            for edge in self._edges_to(child):
                if edge.parent.bytes in nodes:
                    yield SliceEdge(edge.parent.bytes, child, edge.type)

    def _edges_to(self, node: bytes) -> list[Edge]:
        if node not in self._to:
            self._to[node] = list(self.turns.edges_to(_turn_id(node)))
        return self._to[node]


def _turn_id(node: bytes) -> TurnId:
    return TurnId(UUID(bytes=node))
