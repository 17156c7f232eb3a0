"""GraphService: requests to commands, results to responses."""

from __future__ import annotations

from drillcore_proto.v1 import graphs_pb2 as pb
from drillcore_server.commands.ingester import Ingester
from drillcore_server.commands.list_turns import list_turns
from drillcore_server.commands.put_edges import put_edges
from drillcore_server.commands.put_turns import put_turns
from drillcore_server.commands.remove_turns import remove_turns
from drillcore_server.commands.revise import Target
from drillcore_server.commands.slice import SliceQuestion, Slicer, slice_around
from drillcore_server.commands.unit import Call
from drillcore_server.domain.ids import SourceId
from drillcore_server.domain.turns import check_counts
from drillcore_server.rpc.graph_messages import (
    edge_message,
    edges_of,
    fill_slice,
    format_of,
    policy_of,
    turn_id,
    turn_message,
    turn_of,
)
from drillcore_server.rpc.messages import any_id, corpus_id, optional_corpus_id, optional_tenant_id
from drillcore_server.rpc.nodes import as_of


class GraphService:
    def __init__(self, slicer: Slicer, ingester: Ingester) -> None:
        self._slicer = slicer
        self._ingester = ingester

    def PutTurns(self, request: pb.PutTurnsRequest, call: Call) -> pb.PutTurnsResponse:
        check_counts(len(request.turns), len(request.edges))
        source = SourceId(request.source_id)
        turns = [turn_of(one, source, call.at) for one in request.turns]
        edges = edges_of(request.edges)
        done = put_turns(self._ingester, call, _target(request), turns, edges, source)
        return pb.PutTurnsResponse(
            revision=done.revision, added=done.added, replaced=done.replaced, edges_added=done.edges_added
        )

    def PutEdges(self, request: pb.PutEdgesRequest, call: Call) -> pb.PutEdgesResponse:
        check_counts(0, len(request.edges))
        done = put_edges(self._ingester, call, _target(request), edges_of(request.edges))
        return pb.PutEdgesResponse(revision=done.revision, added=done.added, known=done.known)

    def RemoveTurns(self, request: pb.RemoveTurnsRequest, call: Call) -> pb.RemoveTurnsResponse:
        check_counts(len(request.turn_ids), len(request.edges))
        turns = [turn_id(one, "turn_ids") for one in request.turn_ids]
        edges = edges_of(request.edges)
        done = remove_turns(self._ingester, call, _target(request), turns, edges)
        return pb.RemoveTurnsResponse(revision=done.revision, turns_removed=done.turns, edges_removed=done.edges)

    def ListTurns(self, request: pb.ListTurnsRequest, call: Call) -> pb.ListTurnsResponse:
        found = list_turns(
            self._slicer.facts.library,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            corpus=corpus_id(request.corpus_id, "corpus_id"),
            session=request.session_id,
            as_of=as_of(request.as_of),
            size=request.page_size,
            token=request.page_token,
        )
        return pb.ListTurnsResponse(
            turns=[turn_message(one.turn) for one in found.turns],
            edges=[edge_message(edge) for one in found.turns for edge in one.edges],
            next_page_token=found.next_token,
            revision=found.revision,
        )

    def Slice(self, request: pb.SliceRequest, call: Call) -> pb.SliceResponse:
        question = SliceQuestion(
            anchors=tuple(any_id(one, "anchors") for one in request.anchors),
            policy=policy_of(request.policy),
            corpus=optional_corpus_id(request.corpus_id, "corpus_id"),
            as_of=as_of(request.as_of),
            format=format_of(request.format),
        )
        found = slice_around(self._slicer, call, optional_tenant_id(request.tenant_id), question)
        response = pb.SliceResponse()
        for one in found:
            fill_slice(response.slices.add(), one)
        return response


def _target(request: pb.PutTurnsRequest | pb.PutEdgesRequest | pb.RemoveTurnsRequest) -> Target:
    return Target(optional_tenant_id(request.tenant_id), corpus_id(request.corpus_id, "corpus_id"))
