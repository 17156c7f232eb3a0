"""Conversation graphs and slices."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore._api.messages import AsOf, as_of_message, enum_member, enum_number, optional_datetime, timestamp
from drillcore._transport.call import Call, Id, Page, id_text
from drillcore_proto.v1 import graphs_pb2 as pb


class Phase(enum.Enum):
    """The phase of a conversation."""

    EXPLORATION = "exploration"
    DEBUGGING = "debugging"
    PLANNING = "planning"
    CONSOLIDATION = "consolidation"
    SYNTHESIS = "synthesis"


class TurnRole(enum.Enum):
    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"


class EdgeType(enum.Enum):
    REPLY = "reply"
    BRANCH = "branch"
    REFERENCE = "reference"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The place of a turn in its conversation."""

    depth: float = 0.0
    sibling_order: float = 0.0
    homogeneity: float = 0.0
    temporal: float = 0.0
    complexity: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a conversation. The server keeps only what slices need, not the words."""

    id: UUID
    session_id: str
    role: TurnRole
    phase: Phase
    salience: float = 0.0
    """0 to 1."""
    trajectory: Trajectory | None = None
    created_at: datetime | None = None
    """When the turn happened. None: now."""


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge between two turns, or between two nodes of a slice."""

    parent: UUID
    child: UUID
    edge_type: EdgeType = EdgeType.DEFAULT


@dataclass(frozen=True, slots=True)
class PutTurnsResult:
    revision: int
    added: int
    replaced: int
    edges_added: int


@dataclass(frozen=True, slots=True)
class PutEdgesResult:
    revision: int
    """The newest revision, if all edges existed already."""
    added: int
    known: int


@dataclass(frozen=True, slots=True)
class RemovedTurns:
    revision: int
    turns_removed: int
    edges_removed: int


@dataclass(frozen=True, slots=True)
class TurnPage(Page[Turn]):
    """Some turns of a corpus, ordered by id."""

    edges: tuple[Edge, ...]
    """The edges whose child is one of the turns."""
    revision: int


@dataclass(frozen=True, slots=True)
class PhaseWeights:
    """The weight of each phase."""

    synthesis: float = 1.0
    planning: float = 0.9
    consolidation: float = 0.6
    debugging: float = 0.5
    exploration: float = 0.3


@dataclass(frozen=True, slots=True)
class SlicePolicy:
    """The limits and weights of a slice. None: the server's default."""

    policy_id: str = ""
    """slice_policy_v1, which is the default, or slice_policy_v1_ref, which breaks ties like the reference code."""
    max_nodes: int | None = None
    """1 to 10,000; default 256."""
    max_radius: int | None = None
    """0 to 1,000; default 10."""
    phase_weights: PhaseWeights | None = None
    salience_weight: float | None = None
    """Default 0.3."""
    distance_decay: float | None = None
    """0 to 1; default 0.9."""
    include_siblings: bool | None = None
    """Default True."""
    max_siblings_per_node: int | None = None
    """0 to 1,000; default 5."""


class SliceFormat(enum.Enum):
    JSON = "json"
    """Canonical JSON."""
    BINARY = "binary"
    """Compact. `drillcore.slices` reads it."""


@dataclass(frozen=True, slots=True)
class SliceNode:
    id: UUID
    kind: str
    """turn, raw, chunk, section, master or fact."""
    phase: Phase
    salience: float
    distance: int
    """Steps from the anchor."""
    turn: Turn | None
    """Set if the node is a turn."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A bounded, reproducible neighbourhood of an anchor."""

    slice_id: str
    """16 hex digits: xxHash64 of the canonical form."""
    anchor: UUID
    policy_id: str
    params_hash: str
    schema_version: str
    nodes: tuple[SliceNode, ...]
    """Ordered by id."""
    edges: tuple[Edge, ...]
    """The edges between the nodes, ordered by parent, child and type."""
    corpus_id: UUID
    revision: int
    file: bytes
    """The slice as a file, if a format was given; else empty."""


def turn_message(turn: Turn) -> pb.Turn:
    """Raises ValueError for a time without a zone."""
    return pb.Turn(
        turn_id=id_text(turn.id),
        session_id=turn.session_id,
        role=enum_number(pb.TurnRole, turn.role),
        phase=enum_number(pb.Phase, turn.phase),
        salience=turn.salience,
        trajectory=None if turn.trajectory is None else pb.Trajectory(**dataclasses.asdict(turn.trajectory)),
        created_at=timestamp(turn.created_at),
    )


def edge_message(edge: Edge) -> pb.Edge:
    kind = enum_number(pb.EdgeType, edge.edge_type)
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
    return pb.SLICE_FORMAT_UNSPECIFIED if wanted is None else enum_number(pb.SliceFormat, wanted)


def to_turn_page(message: pb.ListTurnsResponse) -> TurnPage:
    turns, edges = tuple(map(_to_turn, message.turns)), tuple(map(_to_edge, message.edges))
    return TurnPage(turns, message.next_page_token, edges, message.revision)


def to_slices(message: pb.SliceResponse) -> tuple[Slice, ...]:
    return tuple(map(_to_slice, message.slices))


def _to_turn(message: pb.Turn) -> Turn:
    return Turn(
        id=UUID(message.turn_id),
        session_id=message.session_id,
        role=enum_member(TurnRole, pb.TurnRole, message.role),
        phase=_to_phase(message.phase),
        salience=message.salience,
        trajectory=_to_trajectory(message.trajectory) if message.HasField("trajectory") else None,
        created_at=optional_datetime(message, "created_at"),
    )


def _to_phase(message: pb.Phase.ValueType) -> Phase:
    return enum_member(Phase, pb.Phase, message)


def _to_trajectory(message: pb.Trajectory) -> Trajectory:
    return Trajectory(message.depth, message.sibling_order, message.homogeneity, message.temporal, message.complexity)


def _to_edge(message: pb.Edge) -> Edge:
    kind = enum_member(EdgeType, pb.EdgeType, message.edge_type)
    return Edge(UUID(message.parent), UUID(message.child), kind)


def _to_slice(message: pb.Sliced) -> Slice:
    return Slice(
        slice_id=message.slice_id,
        anchor=UUID(message.anchor),
        policy_id=message.policy_id,
        params_hash=message.params_hash,
        schema_version=message.schema_version,
        nodes=tuple(map(_to_node, message.nodes)),
        edges=tuple(map(_to_edge, message.edges)),
        corpus_id=UUID(message.corpus_id),
        revision=message.revision,
        file=message.file,
    )


def _to_node(message: pb.SliceNode) -> SliceNode:
    return SliceNode(
        id=UUID(message.id),
        kind=message.kind,
        phase=_to_phase(message.phase),
        salience=message.salience,
        distance=message.distance,
        turn=_to_turn(message.turn) if message.HasField("turn") else None,
    )


TurnPart = Turn | pb.Turn
EdgePart = Edge | pb.Edge
"""A turn or an edge, or a message of the protocol with one."""
_GRAPHS: Final = "/drillcore_proto.v1.GraphService/"


def put_turns(
    corpus_id: Id,
    turns: Iterable[TurnPart],
    edges: Iterable[EdgePart] = (),
    *,
    source_id: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[PutTurnsResult]:
    """Store at most 10,000 turns of conversations, and edges between them, as one revision: all of them or none.

    Existing turns are replaced. With a `source_id`, they are erased with that source. Raises InvalidArgument, whose
    message names the turn or edge; NotFound if an edge begins or ends at a turn that does not exist.
    """

    def decode(answer: bytes) -> PutTurnsResult:
        response = pb.PutTurnsResponse.FromString(answer)
        return PutTurnsResult(response.revision, response.added, response.replaced, response.edges_added)

    request = pb.PutTurnsRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        turns=(turn if isinstance(turn, pb.Turn) else turn_message(turn) for turn in turns),
        edges=map(_edge, edges),
        source_id=source_id,
    )
    return Call(f"{_GRAPHS}PutTurns", request, decode, request_id, timeout_s)


def put_edges(
    corpus_id: Id,
    edges: Iterable[EdgePart],
    *,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[PutEdgesResult]:
    """Store at most 10,000 edges between turns of a corpus as one revision: all of them or none."""

    def decode(answer: bytes) -> PutEdgesResult:
        response = pb.PutEdgesResponse.FromString(answer)
        return PutEdgesResult(response.revision, response.added, response.known)

    request = pb.PutEdgesRequest(tenant_id=id_text(tenant_id), corpus_id=id_text(corpus_id), edges=map(_edge, edges))
    return Call(f"{_GRAPHS}PutEdges", request, decode, request_id, timeout_s)


def remove_turns(
    corpus_id: Id,
    turn_ids: Collection[Id] = (),
    *,
    edges: Iterable[EdgePart] = (),
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[RemovedTurns]:
    """Remove turns with all their edges, and single edges, as one revision. Earlier revisions keep them all."""

    def decode(answer: bytes) -> RemovedTurns:
        response = pb.RemoveTurnsResponse.FromString(answer)
        return RemovedTurns(response.revision, response.turns_removed, response.edges_removed)

    request = pb.RemoveTurnsRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        turn_ids=map(id_text, turn_ids),
        edges=map(_edge, edges),
    )
    return Call(f"{_GRAPHS}RemoveTurns", request, decode, request_id, timeout_s)


def list_turns(
    corpus_id: Id,
    *,
    session_id: str = "",
    as_of: AsOf | None = None,
    page_size: int = 0,
    page_token: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[TurnPage]:
    """One page of the turns of a corpus or of one session, ordered by id, with the edges that lead to them."""

    def decode(answer: bytes) -> TurnPage:
        return to_turn_page(pb.ListTurnsResponse.FromString(answer))

    request = pb.ListTurnsRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        session_id=session_id,
        as_of=as_of_message(as_of),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_GRAPHS}ListTurns", request, decode, request_id, timeout_s)


def slice(  # noqa: A001 - the usual name
    anchors: Collection[Id],
    *,
    corpus_id: Id | None = None,
    policy: SlicePolicy | None = None,
    as_of: AsOf | None = None,
    format: SliceFormat | None = None,  # noqa: A002 - the usual name
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[tuple[Slice, ...]]:
    """A bounded neighbourhood of each anchor: turns, nodes of the hierarchy and facts. Slices come in anchor order.

    Anchors are at most 100 ids of turns, nodes or facts; with a `corpus_id`, all must be in that corpus. The same
    policy on the same state gives the same slice and the same `slice_id`. With a `format`, each slice also comes as a
    file. Raises NotFound, whose message names the anchor.
    """

    def decode(answer: bytes) -> tuple[Slice, ...]:
        return to_slices(pb.SliceResponse.FromString(answer))

    request = pb.SliceRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        anchors=map(id_text, anchors),
        policy=policy_message(policy),
        as_of=as_of_message(as_of),
        format=format_message(format),
    )
    return Call(f"{_GRAPHS}Slice", request, decode, request_id, timeout_s)


def _edge(edge: EdgePart) -> pb.Edge:
    return edge if isinstance(edge, pb.Edge) else edge_message(edge)
