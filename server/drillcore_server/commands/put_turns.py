"""PutTurns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drillcore_server.commands.graph_changing import GraphAt, GraphChange, change_graph
from drillcore_server.commands.ingester import Ingester
from drillcore_server.commands.revise import Target
from drillcore_server.commands.unit import Call
from drillcore_server.domain.ids import Revision, SourceId
from drillcore_server.domain.turns import Edge, Turn, check_edges, check_turns
from drillcore_server.store.records import RecordKind
from drillcore_server.store.writes import Write


@dataclass(frozen=True, slots=True)
class PutTurns:
    revision: Revision
    added: int
    replaced: int
    """Those that were there, changed or not."""
    edges_added: int


PUT_TURNS = RecordKind(PutTurns)


def put_turns(
    ingester: Ingester, call: Call, target: Target, turns: Sequence[Turn], edges: Sequence[Edge], source: SourceId
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

    return change_graph(ingester, call, target, PUT_TURNS, make)
