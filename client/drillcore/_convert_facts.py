"""Protocol messages about facts to results, and new facts and filters to messages."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from drillcore._call import id_text
from drillcore._convert import optional_datetime, to_datetime, to_id
from drillcore._convert_nodes import timestamp
from drillcore._fact_results import (
    CorpusState,
    Fact,
    FactFilter,
    FactHit,
    FactPage,
    FactSearch,
    FactStatus,
    NewFact,
    PutFactsResult,
    State,
)
from drillcore._node_results import Span
from drillcore_proto.v1 import facts_pb2 as pb
from drillcore_proto.v1 import nodes_pb2


def draft(fact: NewFact) -> pb.FactDraft:
    return pb.FactDraft(
        fact_id=id_text(fact.id),
        content=fact.content,
        source_id=fact.source_id,
        source_location=fact.source_location,
        importance_weight=fact.importance_weight,
        ttl=fact.ttl,
        metadata=fact.metadata,
        chunk_id=id_text(fact.chunk_id),
        span=None if fact.span is None else nodes_pb2.Span(start=fact.span.start, end=fact.span.end),
        embedding=fact.embedding,
    )


def filters_message(wanted: FactFilter) -> pb.FactFilters:
    """Raises ValueError for a time without zone."""
    return pb.FactFilters(
        source_ids=wanted.source_ids,
        statuses=map(status_message, wanted.statuses),
        community_ids=map(id_text, wanted.community_ids),
        metadata=wanted.metadata,
        ingested_after=timestamp(wanted.ingested_after),
        ingested_before=timestamp(wanted.ingested_before),
        document_ids=map(id_text, wanted.document_ids),
        chunk_ids=map(id_text, wanted.chunk_ids),
    )


def status_message(status: FactStatus) -> pb.FactStatus.ValueType:
    return pb.FactStatus.Value(f"FACT_STATUS_{status.name}")


def fact(message: pb.Fact, revision: int) -> Fact:
    return Fact(
        id=UUID(message.fact_id),
        corpus_id=UUID(message.corpus_id),
        content=message.content,
        content_hash=message.content_hash,
        status=FactStatus[pb.FactStatus.Name(message.status).removeprefix("FACT_STATUS_")],
        status_reason=message.status_reason,
        source_id=message.source_id,
        source_location=message.source_location,
        importance_weight=message.importance_weight,
        community_id=to_id(message.community_id),
        community_label=message.community_label,
        ingested_at=to_datetime(message.ingested_at),
        modified_at=to_datetime(message.modified_at),
        access_count=message.access_count,
        last_accessed_at=optional_datetime(message, "last_accessed_at"),
        ttl=message.ttl,
        metadata=dict(message.metadata),
        chunk_id=to_id(message.chunk_id),
        document_id=to_id(message.document_id),
        span=Span(message.span.start, message.span.end) if message.HasField("span") else None,
        lead_spans=tuple(Span(one.start, one.end) for one in message.lead_spans),
        tokens=message.tokens,
        archived=message.archived,
        session_only=message.session_only,
        created_by=message.created_by,
        version=message.version,
        embedding_model=message.embedding_model,
        embedding=tuple(message.embedding),
        revision=revision,
    )


def put_result(message: pb.PutFactsResponse) -> PutFactsResult:
    return PutFactsResult(tuple(map(UUID, message.fact_ids)), message.revision)


def facts_by_id(message: pb.GetFactsResponse) -> tuple[Fact, ...]:
    return tuple(_of_corpora(one, message.revisions) for one in message.facts)


def page(message: pb.ListFactsResponse) -> FactPage:
    facts = tuple(fact(one, message.revision) for one in message.facts)
    return FactPage(facts, message.next_page_token, message.revision)


def search(message: pb.SearchFactsResponse) -> FactSearch:
    return FactSearch(
        hits=tuple(FactHit(_of_corpora(one.fact, message.revisions), one.score, one.stale) for one in message.hits),
        revisions={UUID(corpus): revision for corpus, revision in message.revisions.items()},
        exact=message.exact,
        headers=dict(message.headers),
    )


def state(message: pb.GetStateResponse) -> State:
    return State(tuple(map(_corpus_state, message.states)), message.combined_hash)


def _corpus_state(message: pb.CorpusState) -> CorpusState:
    return CorpusState(
        corpus_id=UUID(message.corpus_id),
        revision=message.state_revision,
        hash=message.state_hash,
        facts=message.facts,
        shared=message.shared,
    )


def _of_corpora(message: pb.Fact, revisions: Mapping[str, int]) -> Fact:
    return fact(message, revisions.get(message.corpus_id, 0))  # a fact of a session only is of no revision
