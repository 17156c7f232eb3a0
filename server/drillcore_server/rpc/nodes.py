"""NodeService: requests to commands, results to responses."""

from __future__ import annotations

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import nodes_pb2 as pb
from drillcore_server.commands.drill_down import drill_down
from drillcore_server.commands.get_history import get_history
from drillcore_server.commands.get_node import get_node
from drillcore_server.commands.query import Question, query
from drillcore_server.commands.roll_up import roll_up
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.digests import Entity
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.filters import Filters
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.ids import Revision, SourceId
from drillcore_server.domain.nodes import Level
from drillcore_server.domain.revisions import RevisionRecord
from drillcore_server.rpc.messages import corpus_id, document_id, node_id, optional_tenant_id, timestamp, utc
from drillcore_server.rpc.node_messages import node_message

_LEVELS = {
    pb.LEVEL_RAW: Level.RAW,
    pb.LEVEL_CHUNK: Level.CHUNK,
    pb.LEVEL_SECTION: Level.SECTION,
    pb.LEVEL_MASTER: Level.MASTER,
}


class NodeService:
    def __init__(self, library: Library) -> None:
        self._library = library

    def GetNode(self, request: pb.GetNodeRequest, call: Call) -> pb.GetNodeResponse:
        found = get_node(
            self._library,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            node=node_id(request.id),
            as_of=as_of(request.as_of),
            with_embedding=request.with_embedding,
        )
        return pb.GetNodeResponse(node=node_message(found.nodes[0]), revision=found.revision)

    def Query(self, request: pb.QueryRequest, call: Call) -> pb.QueryResponse:
        question = Question(
            corpora=tuple(dict.fromkeys(corpus_id(one, "corpus_ids") for one in request.corpus_ids)),
            level=_level(request.level, "level"),
            text=request.text,
            filters=_filters(request.filters),
            as_of=as_of(request.as_of),
            vector=tuple(request.vector),
            embedding_model=request.embedding_model,
        )
        found = query(
            self._library,
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
            self._library,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            node=node_id(request.id),
            target=_level(request.target, "target"),
            as_of=as_of(request.as_of),
            size=request.page_size,
            token=request.page_token,
        )
        return pb.DrillDownResponse(
            nodes=map(node_message, found.nodes), next_page_token=found.next_token, revision=found.revision
        )

    def RollUp(self, request: pb.RollUpRequest, call: Call) -> pb.RollUpResponse:
        found = roll_up(
            self._library,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            nodes=[node_id(one, "ids") for one in request.ids],
            target=_level(request.target, "target"),
            as_of=as_of(request.as_of),
        )
        return pb.RollUpResponse(
            nodes=map(node_message, found.ancestors), common=node_message(found.common), revision=found.revision
        )

    def GetHistory(self, request: pb.GetHistoryRequest, call: Call) -> pb.GetHistoryResponse:
        found = get_history(
            self._library,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            corpus=corpus_id(request.corpus_id, "corpus_id") if request.corpus_id else None,
            node=node_id(request.node_id, "node_id") if request.node_id else None,
            size=request.page_size,
            token=request.page_token,
        )
        return pb.GetHistoryResponse(
            revisions=[_revision(one, found.oldest) for one in found.revisions],
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


def _level(value: pb.Level.ValueType, field: str) -> Level:
    if value not in _LEVELS:
        raise BadInput(Reason.INVALID_ARGUMENT, f"{field} must be raw, chunk, section or master", field=field)
    return _LEVELS[value]


def _filters(message: pb.Filters) -> Filters:
    return Filters(
        categories=frozenset(message.categories),
        entities=frozenset(Entity(one.type, one.value) for one in message.entities),
        documents=frozenset(document_id(one, "document_ids") for one in message.document_ids),
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
