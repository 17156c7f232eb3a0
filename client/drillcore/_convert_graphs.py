"""Protocol messages about conversation graphs and slices to results, and turns, edges and policies to messages."""

from __future__ import annotations

import dataclasses
from typing import Final
from uuid import UUID

from drillcore._call import id_text
from drillcore._convert import optional_datetime
from drillcore._convert_nodes import timestamp
from drillcore._graph_results import (
    Edge,
    EdgeType,
    Phase,
    PhaseWeights,
    Slice,
    SliceFormat,
    SliceNode,
    SlicePolicy,
    Trajectory,
    Turn,
    TurnPage,
    TurnRole,
)
from drillcore_proto.v1 import graphs_pb2 as pb

FORMATS: Final = {SliceFormat.JSON: pb.SLICE_FORMAT_JSON, SliceFormat.BINARY: pb.SLICE_FORMAT_BINARY}


def turn_message(turn: Turn) -> pb.Turn:
    """Raises ValueError for a time without zone."""
    return pb.Turn(
        turn_id=id_text(turn.id),
        session_id=turn.session_id,
        role=pb.TurnRole.Value(f"TURN_ROLE_{turn.role.name}"),
        phase=pb.Phase.Value(f"PHASE_{turn.phase.name}"),
        salience=turn.salience,
        trajectory=None if turn.trajectory is None else pb.Trajectory(**dataclasses.asdict(turn.trajectory)),
        created_at=timestamp(turn.created_at),
    )


def edge_message(edge: Edge) -> pb.Edge:
    kind = pb.EdgeType.Value(f"EDGE_TYPE_{edge.edge_type.name}")
    return pb.Edge(parent=id_text(edge.parent), child=id_text(edge.child), edge_type=kind)


def policy_message(policy: SlicePolicy | None) -> pb.SlicePolicy | None:
    if policy is None:
        return None
    return pb.SlicePolicy(
        policy_id=policy.policy_id,
        max_nodes=policy.max_nodes,
        max_radius=policy.max_radius,
        phase_weights=_weights_message(policy.phase_weights),
        salience_weight=policy.salience_weight,
        distance_decay=policy.distance_decay,
        include_siblings=policy.include_siblings,
        max_siblings_per_node=policy.max_siblings_per_node,
    )


def _weights_message(weights: PhaseWeights | None) -> pb.PhaseWeights | None:
    return None if weights is None else pb.PhaseWeights(**dataclasses.asdict(weights))


def format_message(wanted: SliceFormat | None) -> pb.SliceFormat.ValueType:
    return pb.SLICE_FORMAT_UNSPECIFIED if wanted is None else FORMATS[wanted]


def turn_page(message: pb.ListTurnsResponse) -> TurnPage:
    turns, edges = tuple(map(_turn, message.turns)), tuple(map(_edge, message.edges))
    return TurnPage(turns, message.next_page_token, edges, message.revision)


def slices(message: pb.SliceResponse) -> tuple[Slice, ...]:
    return tuple(map(_slice, message.slices))


def _turn(message: pb.Turn) -> Turn:
    return Turn(
        id=UUID(message.turn_id),
        session_id=message.session_id,
        role=TurnRole[pb.TurnRole.Name(message.role).removeprefix("TURN_ROLE_")],
        phase=_phase(message.phase),
        salience=message.salience,
        trajectory=_trajectory(message.trajectory) if message.HasField("trajectory") else None,
        created_at=optional_datetime(message, "created_at"),
    )


def _phase(message: pb.Phase.ValueType) -> Phase:
    return Phase[pb.Phase.Name(message).removeprefix("PHASE_")]


def _trajectory(message: pb.Trajectory) -> Trajectory:
    return Trajectory(message.depth, message.sibling_order, message.homogeneity, message.temporal, message.complexity)


def _edge(message: pb.Edge) -> Edge:
    kind = EdgeType[pb.EdgeType.Name(message.edge_type).removeprefix("EDGE_TYPE_")]
    return Edge(UUID(message.parent), UUID(message.child), kind)


def _slice(message: pb.Sliced) -> Slice:
    return Slice(
        slice_id=message.slice_id,
        anchor=UUID(message.anchor),
        policy_id=message.policy_id,
        params_hash=message.params_hash,
        schema_version=message.schema_version,
        nodes=tuple(map(_node, message.nodes)),
        edges=tuple(map(_edge, message.edges)),
        corpus_id=UUID(message.corpus_id),
        revision=message.revision,
        file=message.file,
    )


def _node(message: pb.SliceNode) -> SliceNode:
    return SliceNode(
        id=UUID(message.id),
        kind=message.kind,
        phase=_phase(message.phase),
        salience=message.salience,
        distance=message.distance,
        turn=_turn(message.turn) if message.HasField("turn") else None,
    )
