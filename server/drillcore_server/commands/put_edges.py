"""PutEdges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drillcore_proto.reasons import Reason
from drillcore_server.commands.graph_changing import GraphAt, GraphChange, change_graph
from drillcore_server.commands.ingester import Ingester
from drillcore_server.commands.revise import Target
from drillcore_server.commands.unit import Call
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.ids import Revision
from drillcore_server.domain.turns import Edge, check_edges
from drillcore_server.store.records import RecordKind


@dataclass(frozen=True, slots=True)
class PutEdges:
    revision: Revision
    added: int
    known: int
    """That were there already."""


PUT_EDGES = RecordKind(PutEdges)


def put_edges(ingester: Ingester, call: Call, target: Target, edges: Sequence[Edge]) -> PutEdges:
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

    return change_graph(ingester, call, target, PUT_EDGES, make)
