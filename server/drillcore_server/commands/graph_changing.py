"""What the commands that change conversation graphs share: what is there, and making a change a revision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.commands.ingester import Ingester
from drillcore_server.commands.revise import Plan, Target
from drillcore_server.commands.unit import Call
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.errors import Missing
from drillcore_server.domain.ids import NodeId, Revision, SourceId, TurnId
from drillcore_server.domain.sources import registered
from drillcore_server.domain.turns import Edge, Turn
from drillcore_server.store.hierarchy import HierarchyWrites
from drillcore_server.store.records import RecordKind
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.turns import TurnsView, TurnWrites
from drillcore_server.store.writes import Write

R = TypeVar("R")


class _Unchanged(Exception, Generic[R]):  # noqa: N818 - a turn of events, not an error
    def __init__(self, corpus: Corpus, found: R) -> None:
        super().__init__()
        self.corpus = corpus
        self.found = found


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

    ingester: Ingester
    corpus: Corpus
    base: Revision

    @property
    def snapshot(self) -> Snapshot:
        return self.ingester.snapshot(self.corpus, self.base)

    @property
    def make(self) -> TurnWrites:
        keys = self.ingester.unit.keys
        return TurnWrites(keys, self.corpus.tenant_id, self.corpus.number, self.ingester.keyring)

    def turns(self, wanted: Iterable[TurnId]) -> dict[TurnId, Turn]:
        """Those that are there."""
        ids = sorted(set(wanted))
        found = self.snapshot.find(ids, lambda view, one: TurnsView(view).turn(one))
        return {one: turn for one, turn in zip(ids, found, strict=True) if turn is not None}

    def known_edges(self, edges: Iterable[Edge]) -> set[Edge]:
        """Those that are there."""
        wanted = sorted(set(edges))
        found = self.snapshot.find(wanted, lambda view, one: TurnsView(view).has_edge(one))
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
        if source and self.snapshot.read(lambda view: view.source(source)) is None:
            keys, keyring = self.ingester.unit.keys, self.ingester.keyring
            make = HierarchyWrites(keys, self.corpus.tenant_id, self.corpus.number, keyring)
            yield from make.put_source(registered(source, call.at))


def change_graph(
    ingester: Ingester, call: Call, target: Target, kind: RecordKind[R], make: Callable[[GraphAt], GraphChange[R]]
) -> R:
    """Makes the change as one revision; without any change what was found, at the head."""

    def plan(corpus: Corpus, base: Revision) -> Plan[R]:
        change = make(GraphAt(ingester, corpus, base))
        if not change.writes:
            raise _Unchanged(corpus, change.result(base))
        return _plan(ingester, corpus, base, change)

    try:
        return ingester.reviser.revise(call, target, kind, plan)
    except _Unchanged as unchanged:
        number = ingester.make_keys(unchanged.corpus, [])
        found: R = unchanged.found
        return ingester.reviser.leave(call, target, kind, number, found)


def missing_turn(turn: TurnId) -> Missing:
    return Missing(Reason.TURN_NOT_FOUND, f"there is no turn {turn}", turn=str(turn))


def _plan(ingester: Ingester, corpus: Corpus, base: Revision, change: GraphChange[R]) -> Plan[R]:
    def finish(_tr: Transaction, trail: Trail, _revision: Revision) -> None:
        trail.touch_node_ids(map(NodeId, change.turns))
        trail.detail |= change.counts

    return Plan(
        base=base,
        number=ingester.make_keys(corpus, change.sources),
        writes=change.writes,
        sections=(),
        documents_added=(),
        documents_removed=(),
        sources=change.sources,
        result=change.result,
        finish=finish,
    )
