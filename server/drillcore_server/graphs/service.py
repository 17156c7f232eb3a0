"""GraphService and ProvenanceService: turn requests into calls of the commands, and results into responses."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import graphs_pb2 as pb
from drillcore_proto.v1 import nodes_pb2, provenance_pb2
from drillcore_server.graphs.explain import Step, explain
from drillcore_server.graphs.quad_model import Named, named_by
from drillcore_server.graphs.slice import Sliced, SliceFormat, SliceQuestion, Slicer, slice_around
from drillcore_server.graphs.slice_model import SCHEMA_VERSION, PhaseWeights, Policy, SlicedNode, id_text
from drillcore_server.graphs.turn_commands import list_turns, put_edges, put_turns, remove_turns
from drillcore_server.graphs.turn_model import Edge, EdgeType, Phase, Trajectory, Turn, TurnRole, check_counts, invalid
from drillcore_server.hierarchy.service import as_of
from drillcore_server.kernel.corpus_at_revision import CorpusReads
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.messages import any_id, corpus_id, optional_corpus_id, optional_tenant_id, utc
from drillcore_server.kernel.revise import Reviser, Target
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import SourceId, TurnId, to_microseconds


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
    return [_edge_of(message, place) for place, message in enumerate(messages)]


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
    """The policy of a request. Fields that the request leaves out have their defaults."""
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
    """Fills a message in place. Messages that are made first and then copied take twice as long."""
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
    trajectory = turn.trajectory
    message.trajectory.depth = trajectory.depth
    message.trajectory.sibling_order = trajectory.sibling_order
    message.trajectory.homogeneity = trajectory.homogeneity
    message.trajectory.temporal = trajectory.temporal
    message.trajectory.complexity = trajectory.complexity
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


class GraphService:
    def __init__(self, slicer: Slicer, reviser: Reviser) -> None:
        self._slicer = slicer
        self._reviser = reviser

    def PutTurns(self, request: pb.PutTurnsRequest, call: Call) -> pb.PutTurnsResponse:
        check_counts(len(request.turns), len(request.edges))
        source = SourceId(request.source_id)
        turns = [turn_of(turn, source, call.at) for turn in request.turns]
        edges = edges_of(request.edges)
        done = put_turns(self._reviser, call, _target(request), turns, edges, source)
        return pb.PutTurnsResponse(
            revision=done.revision, added=done.added, replaced=done.replaced, edges_added=done.edges_added
        )

    def PutEdges(self, request: pb.PutEdgesRequest, call: Call) -> pb.PutEdgesResponse:
        check_counts(0, len(request.edges))
        done = put_edges(self._reviser, call, _target(request), edges_of(request.edges))
        return pb.PutEdgesResponse(revision=done.revision, added=done.added, known=done.known)

    def RemoveTurns(self, request: pb.RemoveTurnsRequest, call: Call) -> pb.RemoveTurnsResponse:
        check_counts(len(request.turn_ids), len(request.edges))
        turns = [turn_id(text, "turn_ids") for text in request.turn_ids]
        edges = edges_of(request.edges)
        done = remove_turns(self._reviser, call, _target(request), turns, edges)
        return pb.RemoveTurnsResponse(revision=done.revision, turns_removed=done.turns, edges_removed=done.edges)

    def ListTurns(self, request: pb.ListTurnsRequest, call: Call) -> pb.ListTurnsResponse:
        found = list_turns(
            self._slicer.reads,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            corpus=corpus_id(request.corpus_id, "corpus_id"),
            session=request.session_id,
            as_of=as_of(request.as_of),
            size=request.page_size,
            token=request.page_token,
        )
        return pb.ListTurnsResponse(
            turns=[turn_message(listed.turn) for listed in found.turns],
            edges=[edge_message(edge) for listed in found.turns for edge in listed.edges],
            next_page_token=found.next_token,
            revision=found.revision,
        )

    def Slice(self, request: pb.SliceRequest, call: Call) -> pb.SliceResponse:
        question = SliceQuestion(
            anchors=tuple(any_id(anchor, "anchors") for anchor in request.anchors),
            policy=policy_of(request.policy),
            corpus=optional_corpus_id(request.corpus_id, "corpus_id"),
            as_of=as_of(request.as_of),
            format=format_of(request.format),
        )
        found = slice_around(self._slicer, call, optional_tenant_id(request.tenant_id), question)
        response = pb.SliceResponse()
        for sliced in found:
            fill_slice(response.slices.add(), sliced)
        return response


def _target(request: pb.PutTurnsRequest | pb.PutEdgesRequest | pb.RemoveTurnsRequest) -> Target:
    return Target(optional_tenant_id(request.tenant_id), corpus_id(request.corpus_id, "corpus_id"))


class ProvenanceService:
    def __init__(self, reads: CorpusReads) -> None:
        self._reads = reads

    def Explain(self, request: provenance_pb2.ExplainRequest, call: Call) -> provenance_pb2.ExplainResponse:
        explained = explain(
            self._reads,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            wanted=_wanted(request.node),
            corpus=optional_corpus_id(request.corpus_id, "corpus_id"),
            as_of=as_of(request.as_of),
        )
        return provenance_pb2.ExplainResponse(
            steps=map(_step_message, explained.steps),
            revision=explained.revision,
            corpus_id="" if explained.corpus is None else str(explained.corpus),
            truncated=explained.truncated,
        )


def _wanted(node: str) -> Named | UUID | None:
    """Text with a colon is an IRI. None for an IRI that is not one of Drillcore's."""
    return named_by(node) if ":" in node else any_id(node, "node")


def _step_message(step: Step) -> provenance_pb2.Explained:
    return provenance_pb2.Explained(
        iri=step.iri,
        kind=step.kind,
        id=str(step.id),
        title=step.title,
        derived_from=step.derived_from,
        document_id="" if step.document is None else str(step.document),
        span=None if step.span is None else nodes_pb2.Span(start=step.span.start, end=step.span.end),
        text=step.text,
        gone=step.gone,
    )
