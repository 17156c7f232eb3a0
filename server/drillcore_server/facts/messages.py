"""Facts between messages and the domain's types."""

from __future__ import annotations

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import facts_pb2 as pb
from drillcore_proto.v1 import nodes_pb2
from drillcore_server.facts.drafts import FactDraft
from drillcore_server.facts.model import FactFilters, FactStatus, FoundFact
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.messages import any_id, document_id, node_id, timestamp, utc
from drillcore_server.storage.ids import CommunityId, FactId, SourceId, Span


def fact_message(found: FoundFact) -> pb.Fact:
    fact = found.fact
    return pb.Fact(
        fact_id=str(fact.id),
        corpus_id=str(found.corpus),
        content=fact.content,
        content_hash=fact.content_hash,
        embedding=found.embedding,
        embedding_model=found.embedding_model or fact.embedding_model,
        source_id=fact.source,
        source_location=fact.source_location,
        importance_weight=fact.importance,
        community_label=found.community_label,
        community_id=str(found.community) if found.community else "",
        ingested_at=timestamp(fact.ingested_at),
        modified_at=timestamp(fact.modified_at),
        access_count=found.access_count,
        last_accessed_at=timestamp(found.last_accessed_at) if found.last_accessed_at else None,
        ttl=fact.ttl,
        status=pb.FactStatus.ValueType(fact.status),
        metadata=fact.metadata,
        chunk_id=str(fact.chunk) if fact.chunk else "",
        document_id=str(fact.document) if fact.document else "",
        span=nodes_pb2.Span(start=fact.span.start, end=fact.span.end) if fact.span else None,
        version=fact.version,
        tokens=fact.tokens,
        archived=fact.archived_at is not None,
        created_by=fact.created_by,
        status_reason=fact.status_reason,
        session_only=found.session_only,
        lead_spans=[nodes_pb2.Span(start=one.start, end=one.end) for one in fact.leads],
    )


def fact_id(text: str, field: str = "fact_id") -> FactId:
    return FactId(any_id(text, field))


def fact_status(value: int, field: str = "status") -> FactStatus:
    try:
        return FactStatus(value)
    except ValueError as error:
        message = f"{field} must be active, stale, deleted or quarantined"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field=field) from error


def fact_draft(message: pb.FactDraft) -> FactDraft:
    return FactDraft(
        content=message.content,
        source=SourceId(message.source_id),
        id=fact_id(message.fact_id) if message.fact_id else None,
        source_location=message.source_location,
        importance=message.importance_weight if message.HasField("importance_weight") else None,
        ttl=message.ttl,
        metadata=dict(message.metadata),
        chunk=node_id(message.chunk_id, "chunk_id") if message.chunk_id else None,
        span=Span(message.span.start, message.span.end) if message.HasField("span") else None,
        embedding=tuple(message.embedding),
    )


def fact_filters(message: pb.FactFilters) -> FactFilters:
    return FactFilters(
        sources=frozenset(map(SourceId, message.source_ids)),
        statuses=frozenset(fact_status(one, "statuses") for one in message.statuses),
        communities=frozenset(CommunityId(any_id(one, "community_ids")) for one in message.community_ids),
        metadata=dict(message.metadata),
        ingested_after=utc(message.ingested_after, "ingested_after") if message.HasField("ingested_after") else None,
        ingested_before=(
            utc(message.ingested_before, "ingested_before") if message.HasField("ingested_before") else None
        ),
        documents=frozenset(document_id(one, "document_ids") for one in message.document_ids),
        chunks=frozenset(node_id(one, "chunk_ids") for one in message.chunk_ids),
    )
