"""NodeService: converts requests to commands and results to responses."""

from __future__ import annotations

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import nodes_pb2 as pb
from drillcore_server.hierarchy.digests import Entity
from drillcore_server.hierarchy.messages import level_of, node_message
from drillcore_server.hierarchy.navigate import drill_down, get_history, get_node, roll_up
from drillcore_server.hierarchy.nodes import Filters
from drillcore_server.hierarchy.query import NodeSearch, Question, query
from drillcore_server.kernel.corpus_at_revision import AsOf
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.messages import corpus_id, document_id, node_id, optional_tenant_id, timestamp, utc
from drillcore_server.kernel.revisions import RevisionRecord
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import Revision, SourceId


class NodeService:
    def __init__(self, search: NodeSearch) -> None:
        self._search = search
        self._reads = search.reads

    def GetNode(self, request: pb.GetNodeRequest, call: Call) -> pb.GetNodeResponse:
        found = get_node(
            self._reads,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            node=node_id(request.id),
            as_of=as_of(request.as_of),
            with_embedding=request.with_embedding,
        )
        return pb.GetNodeResponse(node=node_message(found.nodes[0]), revision=found.revision)

    def Query(self, request: pb.QueryRequest, call: Call) -> pb.QueryResponse:
        question = Question(
            corpora=tuple(dict.fromkeys(corpus_id(corpus, "corpus_ids") for corpus in request.corpus_ids)),
            level=level_of(request.level, "level"),
            text=request.text,
            filters=_filters(request.filters),
            as_of=as_of(request.as_of),
            vector=tuple(request.vector),
            embedding_model=request.embedding_model,
        )
        found = query(
            self._search,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            question=question,
            size=request.page_size,
            token=request.page_token,
        )
        return pb.QueryResponse(
            hits=[pb.QueryHit(node=node_message(hit.node), score=hit.score) for hit in found.hits],
            next_page_token=found.next_token,
            revisions={str(corpus): revision for corpus, revision in found.revisions.items()},
        )

    def DrillDown(self, request: pb.DrillDownRequest, call: Call) -> pb.DrillDownResponse:
        found = drill_down(
            self._reads,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            node=node_id(request.id),
            target=level_of(request.target, "target"),
            as_of=as_of(request.as_of),
            size=request.page_size,
            token=request.page_token,
        )
        return pb.DrillDownResponse(
            nodes=map(node_message, found.nodes), next_page_token=found.next_token, revision=found.revision
        )

    def RollUp(self, request: pb.RollUpRequest, call: Call) -> pb.RollUpResponse:
        found = roll_up(
            self._reads,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            nodes=[node_id(node, "ids") for node in request.ids],
            target=level_of(request.target, "target"),
            as_of=as_of(request.as_of),
        )
        return pb.RollUpResponse(
            nodes=map(node_message, found.ancestors), common=node_message(found.common), revision=found.revision
        )

    def GetHistory(self, request: pb.GetHistoryRequest, call: Call) -> pb.GetHistoryResponse:
        found = get_history(
            self._reads,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            corpus=corpus_id(request.corpus_id, "corpus_id") if request.corpus_id else None,
            node=node_id(request.node_id, "node_id") if request.node_id else None,
            size=request.page_size,
            token=request.page_token,
        )
        return pb.GetHistoryResponse(
            revisions=[_revision(record, found.oldest) for record in found.revisions],
            next_page_token=found.next_token,
            oldest_revision=found.oldest,
        )


def as_of(message: pb.AsOf) -> AsOf:
    moment = message.WhichOneof("moment")
    if moment == "revision":
        if message.revision >= 1 << 48:
            raise BadInput(Reason.INVALID_ARGUMENT, "there is no such revision", field="as_of")
        return AsOf(revision=Revision(message.revision))
    return AsOf(time=utc(message.time, "as_of")) if moment == "time" else AsOf()


def _filters(message: pb.Filters) -> Filters:
    return Filters(
        categories=frozenset(message.categories),
        entities=frozenset(Entity(entity.type, entity.value) for entity in message.entities),
        documents=frozenset(document_id(document, "document_ids") for document in message.document_ids),
        sources=frozenset(map(SourceId, message.source_ids)),
        created_after=utc(message.created_after, "created_after") if message.HasField("created_after") else None,
        created_before=utc(message.created_before, "created_before") if message.HasField("created_before") else None,
    )


def _revision(record: RevisionRecord, oldest: Revision) -> pb.Revision:
    return pb.Revision(
        revision=record.revision,
        at=timestamp(record.at),
        by=record.by,
        request_id=record.request_id,
        action=record.action,
        documents_added=len(record.documents_added),
        documents_removed=len(record.documents_removed),
        section_ids=map(str, record.sections),
        trimmed=record.revision < oldest,
        facts_changed=record.facts,
        communities_computed=record.communities,
    )
