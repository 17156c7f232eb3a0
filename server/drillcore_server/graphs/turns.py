"""ListTurns.

What the commands that change conversation graphs share: what is there, and making a change a revision.

PutTurns.

PutEdges.

RemoveTurns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar
from uuid import UUID

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.graphs.turn_model import Edge, Turn, check_edges, check_turns
from drillcore_server.graphs.turn_store import TurnReader, TurnWrites, edges_touching, session_hash, turn_id
from drillcore_server.hierarchy.source_model import registered
from drillcore_server.hierarchy.store import HierarchyReader, HierarchyWrites
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.accounts import Permission
from drillcore_server.kernel.corpora import Corpus
from drillcore_server.kernel.corpus_at_revision import AsOf, BatchedReads, CorpusAtRevision, CorpusReads
from drillcore_server.kernel.errors import BadInput, Missing
from drillcore_server.kernel.pages import PageLimit, fill_page, make_token, page_size, read_token
from drillcore_server.kernel.revise import NothingToChange, Plan, Reviser, Target
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.kernel.writes import Write
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import CorpusId, Level, NodeId, Revision, SourceId, TenantId, TurnId
from drillcore_server.storage.records import RecordKind

_KEYS_MORE: Final = 500
"""Stored keys that a page looks at beyond what was asked for, whether its revision sees them or not."""
_TURN_BYTES: Final = 250
_EDGE_BYTES: Final = 90
"""About what each takes in an answer."""


@dataclass(frozen=True, slots=True)
class ListedTurn:
    turn: Turn
    edges: tuple[Edge, ...]
    """That lead to it."""

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
    """Turns by id, all or those of one session, and their revision, which is that of later pages too.

    A page may have fewer turns than were asked for, or none, and others follow: see `_KEYS_MORE`.
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
        ids, following = _page(reads, view, session, after, limit.items + _KEYS_MORE)
        items, more = fill_page(((one, one.size_bytes) for one in _listed(view, ids)), limit)
        trail.touch_node_ids(NodeId(one.turn.id) for one in items)
        last = items[-1].turn.id if more else following
        next_token = "" if last is None else make_token(listing, view.revision.to_bytes(6, "big") + last.bytes)
        return ListedTurns(items, view.revision, next_token)

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _page(
    reads: CorpusReads, view: CorpusAtRevision, session: str, after: TurnId | None, keys_max: int
) -> tuple[list[TurnId], TurnId | None]:
    """The next turns, and the last one that was looked at if there may be more."""
    keys = view.keys.turns(after)
    if session:
        keys = view.keys.session_turns(session_hash(reads.keyring, view.corpus.number, session), after)
    entries, following = versioned.page(view.tr, *keys, view.revision, keys_max)
    last = None if following is None else turn_id(versioned.before(following))
    return [turn_id(entry.key) for entry in entries], last


def _listed(view: CorpusAtRevision, ids: list[TurnId]) -> Iterator[ListedTurn]:
    turns = TurnReader(view)
    for one in ids:
        turn = turns.turn_left(one)
        if turn is not None:
            yield ListedTurn(turn, tuple(turns.edges_to(one)))


R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class GraphChange(Generic[R]):
    """What a call makes of the graph as it is at a revision."""

    writes: Sequence[Write]
    """Without any there is no revision."""
    turns: Iterable[TurnId]
    """That it is about, for the audit record."""
    result: Callable[[Revision], R]
    counts: Mapping[str, int]
    sources: Sequence[SourceId] = field(default=())


@dataclass(frozen=True, slots=True)
class GraphAt:
    """The conversation graph of a corpus at a revision, to plan on."""

    reviser: Reviser
    corpus: Corpus
    base: Revision

    @property
    def snapshot(self) -> BatchedReads:
        return self.reviser.batched(self.corpus, self.base)

    @property
    def make(self) -> TurnWrites:
        keys = self.reviser.keys
        return TurnWrites(keys, self.corpus.tenant_id, self.corpus.number, self.reviser.keyring)

    def turns(self, wanted: Iterable[TurnId]) -> dict[TurnId, Turn]:
        """Those that are there."""
        ids = sorted(set(wanted))
        found = self.snapshot.find(ids, lambda view, one: TurnReader(view).turn(one))
        return {one: turn for one, turn in zip(ids, found, strict=True) if turn is not None}

    def known_edges(self, edges: Iterable[Edge]) -> set[Edge]:
        """Those that are there."""
        wanted = sorted(set(edges))
        found = self.snapshot.find(wanted, lambda view, one: TurnReader(view).has_edge(one))
        return {edge for edge, is_there in zip(wanted, found, strict=True) if is_there}

    def check_ends(self, edges: Sequence[Edge], new: Iterable[TurnId] = ()) -> None:
        """Raises `Missing` unless every edge is between turns that are there, or will be."""
        ends = {one for edge in edges for one in (edge.parent, edge.child)} - set(new)
        there = self.turns(ends)
        for one in sorted(ends):
            if one not in there:
                raise missing_turn(one)

    def source_writes(self, source: SourceId, call: Call) -> Iterator[Write]:
        """Registers a source that turns are put of, so that it can be erased."""
        if source and self.snapshot.read(lambda view: HierarchyReader(view).source(source)) is None:
            keys, keyring = self.reviser.keys, self.reviser.keyring
            make = HierarchyWrites(keys, self.corpus.tenant_id, self.corpus.number, keyring)
            yield from make.put_source(registered(source, call.at))


def change_graph(
    reviser: Reviser, call: Call, target: Target, kind: RecordKind[R], make: Callable[[GraphAt], GraphChange[R]]
) -> R:
    """Makes the change as one revision; without any change what was found, at the head."""

    def plan(corpus: Corpus, base: Revision) -> Plan[R] | NothingToChange[R]:
        change = make(GraphAt(reviser, corpus, base))
        if not change.writes:
            return NothingToChange(change.result(base), reviser.make_keys(corpus, []))
        return _plan(reviser, corpus, base, change)

    return reviser.revise(call, target, kind, plan)


def missing_turn(turn: TurnId) -> Missing:
    return Missing(Reason.TURN_NOT_FOUND, f"there is no turn {turn}", turn=str(turn))


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
    """Those that were there, changed or not."""
    edges_added: int


PUT_TURNS = RecordKind(PutTurns)


def put_turns(
    reviser: Reviser, call: Call, target: Target, turns: Sequence[Turn], edges: Sequence[Edge], source: SourceId
) -> PutTurns:
    """Stores turns, which are all of one source or none, with edges; all or none. Raises `Refused`."""
    check_turns(turns)
    check_edges(edges)
    ids = [turn.id for turn in turns]

    def make(at: GraphAt) -> GraphChange[PutTurns]:
        at.check_ends(edges, ids)
        known, fresh = at.turns(ids), sorted(set(edges) - at.known_edges(edges))
        writes: list[Write] = []
        for turn in turns:
            before = known.get(turn.id)
            writes += at.make.put(turn, before) if turn != before else ()
        for edge in fresh:
            writes += at.make.add_edge(edge)
        added = len(turns) - len(known)
        return GraphChange(
            writes=[*writes, *at.source_writes(source, call)] if writes else (),
            turns=ids,
            result=lambda revision: PutTurns(revision, added, len(known), len(fresh)),
            counts={"turns_put": len(turns), "edges_added": len(fresh)},
            sources=[source] if source else (),
        )

    return change_graph(reviser, call, target, PUT_TURNS, make)


@dataclass(frozen=True, slots=True)
class PutEdges:
    revision: Revision
    added: int
    known: int
    """That were there already."""


PUT_EDGES = RecordKind(PutEdges)


def put_edges(reviser: Reviser, call: Call, target: Target, edges: Sequence[Edge]) -> PutEdges:
    """Stores edges between turns that are there; all or none. Raises `Refused`."""
    if not edges:
        raise BadInput(Reason.INVALID_ARGUMENT, "there are no edges to put", field="edges")
    check_edges(edges)
    wanted = set(edges)

    def make(at: GraphAt) -> GraphChange[PutEdges]:
        at.check_ends(edges)
        fresh = sorted(wanted - at.known_edges(edges))
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
    """Removes turns with all their edges, and further edges; those that are not there are passed over.

    Raises `Missing` for a turn that is not there: nothing is removed then.
    """
    ids = list(dict.fromkeys(turns))
    _check(ids, edges)

    def make(at: GraphAt) -> GraphChange[RemovedTurns]:
        known = at.turns(ids)
        for one in ids:
            if one not in known:
                raise missing_turn(one)
        touching = at.snapshot.find(ids, lambda view, one: edges_touching(TurnReader(view), one))
        gone = at.known_edges(edges).union(*touching)
        writes: list[Write] = []
        for one in ids:
            writes += at.make.remove(known[one], ())
        for edge in sorted(gone):
            writes += at.make.remove_edge(edge)
        return GraphChange(
            writes=writes,
            turns=[*ids, *(edge.child for edge in sorted(gone))],
            result=lambda revision: RemovedTurns(revision, len(ids), len(gone)),
            counts={"turns_removed": len(ids), "edges_removed": len(gone)},
        )

    return change_graph(reviser, call, target, REMOVED_TURNS, make)


def _check(turns: Sequence[TurnId], edges: Sequence[Edge]) -> None:
    if not turns and not edges:
        raise BadInput(Reason.INVALID_ARGUMENT, "name the turns or the edges to remove", field="turn_ids")
