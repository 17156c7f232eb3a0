"""Turns, edges and slices between messages and the domain's types."""

from __future__ import annotations

from datetime import datetime

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import graphs_pb2 as pb
from drillcore_server.commands.slice import Sliced, SliceFormat
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.ids import SourceId, TurnId
from drillcore_server.domain.slice_policies import PhaseWeights, Policy
from drillcore_server.domain.slices import SCHEMA_VERSION, SlicedNode, id_text
from drillcore_server.domain.turns import Edge, EdgeType, Phase, Trajectory, Turn, TurnRole, invalid
from drillcore_server.rpc.messages import any_id, timestamp, utc


def turn_id(text: str, field: str) -> TurnId:
    return TurnId(any_id(text, field))


def turn_of(message: pb.Turn, source: SourceId, now: datetime) -> Turn:
    given = message.trajectory
    return Turn(
        id=turn_id(message.turn_id, "turn_id"),
        session=message.session_id,
        role=_role(message.role),
        phase=_phase(message.phase),
        salience=message.salience,
        trajectory=Trajectory(given.depth, given.sibling_order, given.homogeneity, given.temporal, given.complexity),
        created_at=utc(message.created_at, "created_at") if message.HasField("created_at") else now,
        source=source,
    )


def edge_of(message: pb.Edge) -> Edge:
    parent, child = turn_id(message.parent, "parent"), turn_id(message.child, "child")
    try:
        return Edge(parent, child, EdgeType(message.edge_type))
    except ValueError:
        raise invalid("edge_type must be reply, branch, reference or default", "edge_type") from None


def turn_message(turn: Turn) -> pb.Turn:
    trajectory = turn.trajectory
    return pb.Turn(
        turn_id=str(turn.id),
        session_id=turn.session,
        role=pb.TurnRole.ValueType(turn.role),
        phase=pb.Phase.ValueType(turn.phase),
        salience=turn.salience,
        trajectory=pb.Trajectory(
            depth=trajectory.depth,
            sibling_order=trajectory.sibling_order,
            homogeneity=trajectory.homogeneity,
            temporal=trajectory.temporal,
            complexity=trajectory.complexity,
        ),
        created_at=timestamp(turn.created_at),
    )


def edge_message(edge: Edge) -> pb.Edge:
    return pb.Edge(parent=str(edge.parent), child=str(edge.child), edge_type=pb.EdgeType.ValueType(edge.type))


def policy_of(message: pb.SlicePolicy) -> Policy:
    """What is not given has its default."""
    given = {name: getattr(message, name) for name in _OPTIONAL if message.HasField(name)}  # type: ignore[arg-type]
    if message.policy_id:
        given["id"] = message.policy_id
    if message.HasField("phase_weights"):
        weights = message.phase_weights
        given["phase_weights"] = PhaseWeights(
            weights.synthesis, weights.planning, weights.consolidation, weights.debugging, weights.exploration
        )
    return Policy(**given)


_OPTIONAL = (
    "max_nodes",
    "max_radius",
    "salience_weight",
    "distance_decay",
    "include_siblings",
    "max_siblings_per_node",
)


def format_of(value: int) -> SliceFormat | None:
    if not value:
        return None
    try:
        return SliceFormat(value)
    except ValueError as error:
        raise BadInput(Reason.INVALID_ARGUMENT, "format must be json or binary", field="format") from error


def slice_message(sliced: Sliced) -> pb.Sliced:
    made, found = sliced.made, sliced.made.slice
    texts = {node.id: id_text(node.id) for node in found.nodes}
    return pb.Sliced(
        slice_id=found.slice_id,
        anchor=texts[found.anchor],
        policy_id=found.policy.id,
        params_hash=found.params_hash,
        schema_version=SCHEMA_VERSION,
        nodes=[_node(one, texts[one.id], made.turns.get(one.id)) for one in found.nodes],
        edges=[
            pb.Edge(parent=texts[one.parent], child=texts[one.child], edge_type=pb.EdgeType.ValueType(one.type))
            for one in found.edges
        ],
        corpus_id=str(made.corpus),
        revision=made.revision,
        file=sliced.file,
    )


def _node(node: SlicedNode, text: str, turn: Turn | None) -> pb.SliceNode:
    return pb.SliceNode(
        id=text,
        kind=node.kind,
        phase=pb.Phase.ValueType(node.phase),
        salience=node.salience,
        distance=node.distance,
        turn=None if turn is None else turn_message(turn),
    )


def _role(value: int) -> TurnRole:
    try:
        return TurnRole(value)
    except ValueError:
        raise invalid("role must be user, assistant, system or tool", "role") from None


def _phase(value: int) -> Phase:
    try:
        return Phase(value)
    except ValueError:
        message = "phase must be exploration, debugging, planning, consolidation or synthesis"
        raise invalid(message, "phase") from None
