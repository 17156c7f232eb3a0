"""ListTurns, PutTurns, PutEdges and RemoveTurns. A change makes one revision, or none if the graph stays the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar
from uuid import UUID

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.graphs.turn_model import Edge, Turn, check_edges, check_turns
from drillcore_server.graphs.turn_store import TURN, TurnReader, TurnWrites, session_hash, turn_id
from drillcore_server.hierarchy.source_model import source_without_document
from drillcore_server.hierarchy.store import HierarchyWrites
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, BatchedReads, CorpusAtRevision, CorpusReads
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import BadInput, Missing
from drillcore_server.kernel.pages import PageLimit, fill_page, make_token, page_size, read_together, read_token
from drillcore_server.kernel.revise import NothingToChange, Plan, Reviser, Target
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.kernel.writes import Write
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import CorpusId, Level, NodeId, Revision, SourceId, TenantId, TurnId
from drillcore_server.storage.records import RecordKind

_EXTRA_KEYS: Final = 500
"""Stored keys that a page reads beyond its size, because its revision may not see all of them."""
_LISTED_AT_ONCE: Final = 200
"""How many turns, with their edges, are read together."""
_TURN_BYTES: Final = 250
"""Rough size of a turn in an answer."""
_EDGE_BYTES: Final = 90
"""Rough size of an edge in an answer."""


@dataclass(frozen=True, slots=True)
class ListedTurn:
    turn: Turn
    edges: tuple[Edge, ...]
    """The edges that lead to the turn."""

    @property
    def size_bytes(self) -> int:
        return _TURN_BYTES + 4 * len(self.turn.session) + _EDGE_BYTES * len(self.edges)


@dataclass(frozen=True, slots=True)
class ListedTurns:
    turns: list[ListedTurn]
    revision: Revision
    next_token: str


def list_turns(
    reads: CorpusReads,
    call: Call,
    *,
    tenant: TenantId | None,
    corpus: CorpusId,
    session: str,
    as_of: AsOf,
    size: int,
    token: str,
) -> ListedTurns:
    """Turns by id, of one session or of all if `session` is empty, with the revision that all pages read.

    A page may have fewer turns than its size, or none, before the last page: only an empty `next_token` means the end.
    """
    limit = PageLimit(page_size(size), reads.unit.page_bytes_max)
    listing = f"turns of {corpus} {hashlib.sha256(session.encode()).hexdigest()}"
    cursor = read_token(listing, token)
    after: TurnId | None = None
    if cursor is not None:
        as_of, after = AsOf(Revision(int.from_bytes(cursor[:6], "big"))), TurnId(UUID(bytes=cursor[6:]))

    def work(tr: Reader, granted: InTenant, trail: Trail) -> ListedTurns:
        view = reads.at(tr, granted, trail, corpus, as_of)
        granted.check_level(corpus, *Level)
        ids, following = _page(reads, view, session, after, limit.items + _EXTRA_KEYS)
        listed_turns = read_together(ids, min(limit.items + 1, _LISTED_AT_ONCE), lambda some: _listed(view, some))
        items, more = fill_page(((listed, listed.size_bytes) for listed in listed_turns), limit)
        trail.touch_node_ids(NodeId(listed.turn.id) for listed in items)
        last = items[-1].turn.id if more else following
        next_token = "" if last is None else make_token(listing, view.revision.to_bytes(6, "big") + last.bytes)
        return ListedTurns(items, view.revision, next_token)

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _page(
    reads: CorpusReads, view: CorpusAtRevision, session: str, after: TurnId | None, keys_max: int
) -> tuple[list[TurnId], TurnId | None]:
    """The ids of the next turns, and the last id that was read if there may be more."""
    keys = view.keys.turns(after)
    if session:
        keys = view.keys.session_turns(session_hash(reads.keyring, view.corpus.number, session), after)
    entries, following = versioned.page(view.tr, *keys, view.revision, keys_max)
    last = None if following is None else turn_id(versioned.before(following))
    return [turn_id(entry.key) for entry in entries], last


def _listed(view: CorpusAtRevision, ids: list[TurnId]) -> Iterator[ListedTurn]:
    return (ListedTurn(turn, tuple(edges)) for _, turn, edges in TurnReader(view).turns_with_edges(ids))


R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class GraphChange(Generic[R]):
    """The change that a call makes to the graph at a revision."""

    writes: Sequence[Write]
    """If empty, no revision is made."""
    turns: Iterable[TurnId]
    """The turns that the audit record names."""
    result: Callable[[Revision], R]
    counts: Mapping[str, int]
    """Numbers for the audit record."""
    sources: Sequence[SourceId] = field(default=())


@dataclass(frozen=True, slots=True)
class Known:
    """What a call names and the graph has."""

    turns: Mapping[TurnId, Turn]
    edges: set[Edge]
    has_source: bool
    """Whether the source exists, if the call names one."""

    def check_turns(self, wanted: Iterable[TurnId]) -> None:
        """Raises `Missing` unless all of these turns exist."""
        for turn in wanted:
            if turn not in self.turns:
                raise Missing(Reason.TURN_NOT_FOUND, f"there is no turn {turn}", turn=str(turn))


@dataclass(frozen=True, slots=True)
class GraphAt:
    """The conversation graph of a corpus at the revision that a change is planned on."""

    reviser: Reviser
    snapshot: BatchedReads

    @property
    def corpus(self) -> Corpus:
        return self.snapshot.corpus

    @property
    def make(self) -> TurnWrites:
        keys = self.reviser.keys
        return TurnWrites(keys, self.corpus.tenant_id, self.corpus.number, self.reviser.keyring)

    def known(self, turns: Iterable[TurnId], edges: Iterable[Edge], source: SourceId | None = None) -> Known:
        """Those of the turns and edges that exist, and whether the source does, read together."""
        snapshot, keys = self.snapshot, self.snapshot.keys
        turn_at = {keys.turn(id_): id_ for id_ in set(turns)}
        edge_at = {keys.edge(*edge): edge for edge in set(edges)}
        source_at = [keys.source(snapshot.sealed.hashed(source))] if source else []
        wanted = sorted([*turn_at, *edge_at, *source_at])
        found = snapshot.together(wanted, lambda view, some: versioned.get_many(view.tr, some, view.revision))
        stored = {key: entry for key, entry in zip(wanted, found, strict=True) if entry is not None}
        opened = {key: snapshot.sealed.opened(stored[key]).value for key in (*turn_at, *source_at) if key in stored}
        return Known(
            {id_: TURN.decode(opened[key]) for key, id_ in turn_at.items() if key in opened},
            {edge for key, edge in edge_at.items() if key in stored},
            has_source=all(key in opened for key in source_at),
        )

    def edges_touching(self, turns: Sequence[TurnId]) -> set[Edge]:
        """All edges of these turns, in both directions."""
        found = self.snapshot.together(turns, lambda view, ids: TurnReader(view).edges_touching(ids))
        return set().union(*found)

    def source_writes(self, source: SourceId, call: Call) -> Iterator[Write]:
        """Registers a source of turns, so that it can be erased."""
        keys, keyring = self.reviser.keys, self.reviser.keyring
        make = HierarchyWrites(keys, self.corpus.tenant_id, self.corpus.number, keyring)
        return make.put_source(source_without_document(source, call.at))


def change_graph(
    reviser: Reviser, call: Call, target: Target, kind: RecordKind[R], make: Callable[[GraphAt], GraphChange[R]]
) -> R:
    """Makes the change as one revision. Without writes, returns the result for the head and makes no revision."""

    def plan(snapshot: BatchedReads) -> Plan[R] | NothingToChange[R]:
        corpus, base = snapshot.corpus, snapshot.revision
        change = make(GraphAt(reviser, snapshot))
        if not change.writes:
            return NothingToChange(change.result(base), reviser.make_keys(corpus, []))
        return _plan(reviser, corpus, base, change)

    return reviser.revise(call, target, kind, plan)


def ends_of(edges: Iterable[Edge]) -> set[TurnId]:
    return {end for edge in edges for end in (edge.parent, edge.child)}


def _plan(reviser: Reviser, corpus: Corpus, base: Revision, change: GraphChange[R]) -> Plan[R]:
    def finish(_tr: Transaction, trail: Trail, _revision: Revision) -> None:
        trail.touch_node_ids(map(NodeId, change.turns))
        trail.detail |= change.counts

    return Plan(
        base=base,
        number=reviser.make_keys(corpus, change.sources),
        writes=change.writes,
        sections=(),
        documents_added=(),
        documents_removed=(),
        sources=change.sources,
        result=change.result,
        finish=finish,
    )


@dataclass(frozen=True, slots=True)
class PutTurns:
    revision: Revision
    added: int
    replaced: int
    """Turns whose ids existed before, whether they changed or not."""
    edges_added: int


PUT_TURNS = RecordKind(PutTurns)


def put_turns(
    reviser: Reviser, call: Call, target: Target, turns: Sequence[Turn], edges: Sequence[Edge], source: SourceId
) -> PutTurns:
    """Stores turns with edges: all or none. The turns have one common source, or none.

    A repeated request returns its first result. Raises `Refused`, with TURN_NOT_FOUND if an end of an edge is missing.
    """
    check_turns(turns)
    check_edges(edges)
    ids = [turn.id for turn in turns]

    def make(at: GraphAt) -> GraphChange[PutTurns]:
        given, ends = set(ids), ends_of(edges)
        known = at.known(given | ends, edges, source)
        known.check_turns(sorted(ends - given))
        before = {id_: known.turns[id_] for id_ in ids if id_ in known.turns}
        fresh = sorted(set(edges) - known.edges)
        writes: list[Write] = []
        for turn in turns:
            writes += at.make.put(turn, before.get(turn.id)) if turn != before.get(turn.id) else ()
        moved = [turn.id for turn in turns if turn.id in before and before[turn.id].source != turn.source]
        for edge in sorted({*fresh, *at.edges_touching(moved)}):
            writes += at.make.add_edge(edge)
        if writes and not known.has_source:
            writes += at.source_writes(source, call)
        added = len(turns) - len(before)
        return GraphChange(
            writes=writes,
            turns=ids,
            result=lambda revision: PutTurns(revision, added, len(before), len(fresh)),
            counts={"turns_put": len(turns), "edges_added": len(fresh)},
            sources=[source] if source else (),
        )

    return change_graph(reviser, call, target, PUT_TURNS, make)


@dataclass(frozen=True, slots=True)
class PutEdges:
    revision: Revision
    added: int
    known: int
    """Edges that existed before."""


PUT_EDGES = RecordKind(PutEdges)


def put_edges(reviser: Reviser, call: Call, target: Target, edges: Sequence[Edge]) -> PutEdges:
    """Stores edges between existing turns: all or none.

    A repeated request returns its first result. Raises `Refused`, with TURN_NOT_FOUND if an end of an edge is missing.
    """
    if not edges:
        raise BadInput(Reason.INVALID_ARGUMENT, "edges must have at least one edge", field="edges")
    check_edges(edges)
    wanted = set(edges)

    def make(at: GraphAt) -> GraphChange[PutEdges]:
        known = at.known(ends_of(edges), edges)
        known.check_turns(sorted(ends_of(edges)))
        fresh = sorted(wanted - known.edges)
        return GraphChange(
            writes=[write for edge in fresh for write in at.make.add_edge(edge)],
            turns=dict.fromkeys(edge.child for edge in fresh),
            result=lambda revision: PutEdges(revision, len(fresh), len(wanted) - len(fresh)),
            counts={"edges_added": len(fresh)},
        )

    return change_graph(reviser, call, target, PUT_EDGES, make)


@dataclass(frozen=True, slots=True)
class RemovedTurns:
    revision: Revision
    turns: int
    edges: int


REMOVED_TURNS = RecordKind(RemovedTurns)


def remove_turns(
    reviser: Reviser, call: Call, target: Target, turns: Sequence[TurnId], edges: Sequence[Edge]
) -> RemovedTurns:
    """Removes turns with all their edges, and the given edges. Edges that do not exist are skipped.

    A repeated request returns its first result. Raises `Missing` for an unknown turn, and then removes nothing.
    """
    if not turns and not edges:
        raise BadInput(Reason.INVALID_ARGUMENT, "give turn_ids or edges to remove", field="turn_ids")
    ids = list(dict.fromkeys(turns))

    def make(at: GraphAt) -> GraphChange[RemovedTurns]:
        known = at.known(ids, edges)
        known.check_turns(ids)
        gone = {*known.edges, *at.edges_touching(ids)}
        writes: list[Write] = []
        for id_ in ids:
            writes += at.make.remove(known.turns[id_], ())
        for edge in sorted(gone):
            writes += at.make.remove_edge(edge)
        return GraphChange(
            writes=writes,
            turns=[*ids, *(edge.child for edge in sorted(gone))],
            result=lambda revision: RemovedTurns(revision, len(ids), len(gone)),
            counts={"turns_removed": len(ids), "edges_removed": len(gone)},
        )

    return change_graph(reviser, call, target, REMOVED_TURNS, make)
