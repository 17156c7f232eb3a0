"""RemoveTurns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drillcore_proto.reasons import Reason
from drillcore_server.commands.graph_changing import GraphAt, GraphChange, change_graph, missing_turn
from drillcore_server.commands.ingester import Ingester
from drillcore_server.commands.revise import Target
from drillcore_server.commands.unit import Call
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.ids import Revision, TurnId
from drillcore_server.domain.turns import Edge
from drillcore_server.store.records import RecordKind
from drillcore_server.store.turns import TurnsView, edges_touching
from drillcore_server.store.writes import Write


@dataclass(frozen=True, slots=True)
class RemovedTurns:
    revision: Revision
    turns: int
    edges: int


REMOVED_TURNS = RecordKind(RemovedTurns)


def remove_turns(
    ingester: Ingester, call: Call, target: Target, turns: Sequence[TurnId], edges: Sequence[Edge]
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
        touching = at.snapshot.find(ids, lambda view, one: edges_touching(TurnsView(view), one))
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

    return change_graph(ingester, call, target, REMOVED_TURNS, make)


def _check(turns: Sequence[TurnId], edges: Sequence[Edge]) -> None:
    if not turns and not edges:
        raise BadInput(Reason.INVALID_ARGUMENT, "name the turns or the edges to remove", field="turn_ids")
