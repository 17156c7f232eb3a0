"""Turns, edges and slices between messages and the domain's types."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import graphs_pb2 as pb
from drillcore_server.commands.slice import Sliced, SliceFormat
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.ids import SourceId, TurnId
from drillcore_server.domain.slice_policies import PhaseWeights, Policy
from drillcore_server.domain.slices import SCHEMA_VERSION, SlicedNode, id_text
from drillcore_server.domain.times import to_microseconds
from drillcore_server.domain.turns import Edge, EdgeType, Phase, Trajectory, Turn, TurnRole, invalid
from drillcore_server.rpc.messages import any_id, utc


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


def edges_of(messages: Iterable[pb.Edge]) -> list[Edge]:
    return [_edge_of(one, place) for place, one in enumerate(messages)]


def _edge_of(message: pb.Edge, place: int) -> Edge:
    parent, child = turn_id(message.parent, "parent"), turn_id(message.child, "child")
    try:
        return Edge(parent, child, EdgeType(message.edge_type))
    except ValueError:
        raise invalid(f"edges[{place}]: edge_type must be reply, branch, reference or default", "edge_type") from None


def turn_message(turn: Turn) -> pb.Turn:
    message = pb.Turn()
    _fill_turn(message, str(turn.id), turn)
    return message


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


def fill_slice(message: pb.Sliced, sliced: Sliced) -> None:
    """Messages are filled where they stand: to make each by itself and have it copied takes twice as long."""
    made, found = sliced.made, sliced.made.slice
    texts = {node.id: id_text(node.id) for node in found.nodes}
    message.slice_id = found.slice_id
    message.anchor = texts[found.anchor]
    message.policy_id = found.policy.id
    message.params_hash = found.params_hash
    message.schema_version = SCHEMA_VERSION
    message.corpus_id = str(made.corpus)
    message.revision = made.revision
    message.file = sliced.file
    for node in found.nodes:
        _fill_node(message.nodes.add(), node, texts[node.id], made.turns.get(node.id))
    for parent, child, kind in found.edges:
        message.edges.add(parent=texts[parent], child=texts[child], edge_type=pb.EdgeType.ValueType(kind))


def _fill_node(message: pb.SliceNode, node: SlicedNode, text: str, turn: Turn | None) -> None:
    message.id = text
    message.kind = node.kind
    message.phase = pb.Phase.ValueType(node.phase)
    message.salience = node.salience
    message.distance = node.distance
    if turn is not None:
        _fill_turn(message.turn, text, turn)


def _fill_turn(message: pb.Turn, text: str, turn: Turn) -> None:
    message.turn_id = text
    message.session_id = turn.session
    message.role = pb.TurnRole.ValueType(turn.role)
    message.phase = pb.Phase.ValueType(turn.phase)
    message.salience = turn.salience
    shown, told = message.trajectory, turn.trajectory
    shown.depth = told.depth
    shown.sibling_order = told.sibling_order
    shown.homogeneity = told.homogeneity
    shown.temporal = told.temporal
    shown.complexity = told.complexity
    message.created_at.seconds, microseconds = divmod(to_microseconds(turn.created_at), 1_000_000)
    message.created_at.nanos = 1_000 * microseconds


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
