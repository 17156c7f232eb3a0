"""FactService: messages to commands and back. Other services also use the conversions of facts."""

from __future__ import annotations

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import facts_pb2 as pb
from drillcore_proto.v1 import nodes_pb2
from drillcore_server.facts.archive import archive_facts, restore_facts
from drillcore_server.facts.cache_directives import parse_directives
from drillcore_server.facts.change import FactPlanner
from drillcore_server.facts.fact_reads import FactReads
from drillcore_server.facts.model import FactFilters, FactStatus, FoundFact
from drillcore_server.facts.put import FactDraft, put_facts, put_session_facts
from drillcore_server.facts.read import get_facts, get_state, list_facts
from drillcore_server.facts.search import FactQuestion, search_facts
from drillcore_server.facts.session_fact_store import checked_session
from drillcore_server.facts.session_facts import end_session
from drillcore_server.facts.update import FactUpdate, QuarantineReviews, StatusChange, set_fact_status, update_fact
from drillcore_server.hierarchy.service import as_of
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.messages import (
    any_id,
    corpus_id,
    document_id,
    node_id,
    optional_tenant_id,
    optional_uuid,
    timestamp,
    utc,
)
from drillcore_server.kernel.revise import Target
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import CommunityId, FactId, SourceId, Span


class FactService:
    def __init__(self, reads: FactReads, planner: FactPlanner, reviews: QuarantineReviews) -> None:
        self._reads = reads
        self._planner = planner
        self._reviews = reviews

    def PutFacts(self, request: pb.PutFactsRequest, call: Call) -> pb.PutFactsResponse:
        target = Target(optional_tenant_id(request.tenant_id), corpus_id(request.corpus_id, "corpus_id"))
        drafts = [fact_draft(draft) for draft in request.facts]
        if parse_directives(request.cache_control).no_store:
            session = checked_session(request.session_id)
            done = put_session_facts(
                self._planner, self._reads.sessions, call, target, drafts, request.embedding_model, session
            )
        else:
            _check_no_session(request)
            done = put_facts(self._planner, call, target, drafts, request.embedding_model)
        return pb.PutFactsResponse(fact_ids=map(str, done.facts), revision=done.revision)

    def GetFacts(self, request: pb.GetFactsRequest, call: Call) -> pb.GetFactsResponse:
        found = get_facts(
            self._reads,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            wanted=[fact_id(text, "fact_ids") for text in request.fact_ids],
            as_of=as_of(request.as_of),
            with_embedding=request.with_embedding,
        )
        revisions = {str(corpus): revision for corpus, revision in found.revisions.items()}
        return pb.GetFactsResponse(facts=map(fact_message, found.facts), revisions=revisions)

    def ListFacts(self, request: pb.ListFactsRequest, call: Call) -> pb.ListFactsResponse:
        page, revision = list_facts(
            self._reads,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            corpus=corpus_id(request.corpus_id, "corpus_id"),
            filters=fact_filters(request.filters),
            as_of=as_of(request.as_of),
            size=request.page_size,
            token=request.page_token,
        )
        return pb.ListFactsResponse(
            facts=map(fact_message, page.items), next_page_token=page.next_token, revision=revision
        )

    def UpdateFact(self, request: pb.UpdateFactRequest, call: Call) -> pb.UpdateFactResponse:
        update = FactUpdate(
            content=request.content if request.HasField("content") else None,
            source_location=request.source_location if request.HasField("source_location") else None,
            importance=request.importance_weight if request.HasField("importance_weight") else None,
            ttl=request.ttl if request.HasField("ttl") else None,
            set_metadata=dict(request.set_metadata),
            remove_metadata=tuple(request.remove_metadata),
            expected_version=request.expected_version if request.HasField("expected_version") else None,
            embedding=tuple(request.embedding),
            embedding_model=request.embedding_model,
        )
        tenant, fact = optional_tenant_id(request.tenant_id), fact_id(request.fact_id)
        done = update_fact(self._planner, call, tenant=tenant, fact=fact, update=update)
        return pb.UpdateFactResponse(version=done.version, revision=done.revision)

    def SetFactStatus(self, request: pb.SetFactStatusRequest, call: Call) -> pb.SetFactStatusResponse:
        change = StatusChange(
            status=fact_status(request.status),
            reason=request.reason,
            signature=optional_uuid(request.signature_id, "signature_id"),
            expected_version=request.expected_version if request.HasField("expected_version") else None,
        )
        facts = [fact_id(text, "fact_ids") for text in request.fact_ids]
        done = set_fact_status(
            self._planner, self._reviews, call, tenant=optional_tenant_id(request.tenant_id), facts=facts, change=change
        )
        return pb.SetFactStatusResponse(changed=done.changed, revision=done.revision)

    def SearchFacts(self, request: pb.SearchFactsRequest, call: Call) -> pb.SearchFactsResponse:
        question = FactQuestion(
            corpora=tuple(dict.fromkeys(corpus_id(text, "corpus_ids") for text in request.corpus_ids)),
            text=request.text,
            vector=tuple(request.vector),
            embedding_model=request.embedding_model,
            filters=fact_filters(request.filters),
            limit=request.limit,
            exact=request.exact,
            as_of=as_of(request.as_of),
            with_embedding=request.with_embedding,
            directives=parse_directives(request.cache_control),
            session=checked_session(request.session_id) if request.session_id else "",
        )
        found = search_facts(self._reads, call, tenant=optional_tenant_id(request.tenant_id), question=question)
        return pb.SearchFactsResponse(
            hits=[pb.FactHit(fact=fact_message(hit.found), score=hit.score, stale=hit.stale) for hit in found.hits],
            revisions={str(corpus): revision for corpus, revision in found.revisions.items()},
            exact=found.exact,
            headers={"CRP-Memory-CKF-Hits": str(sum(not hit.found.session_only for hit in found.hits))},
        )

    def ArchiveFacts(self, request: pb.ArchiveFactsRequest, call: Call) -> pb.ArchiveFactsResponse:
        facts = [fact_id(text, "fact_ids") for text in request.fact_ids]
        done = archive_facts(self._planner, call, tenant=optional_tenant_id(request.tenant_id), facts=facts)
        return pb.ArchiveFactsResponse(archived=done.facts, revision=done.revision)

    def RestoreFacts(self, request: pb.RestoreFactsRequest, call: Call) -> pb.RestoreFactsResponse:
        facts = [fact_id(text, "fact_ids") for text in request.fact_ids]
        done = restore_facts(self._planner, call, tenant=optional_tenant_id(request.tenant_id), facts=facts)
        return pb.RestoreFactsResponse(restored=done.facts, revision=done.revision)

    def EndSession(self, request: pb.EndSessionRequest, call: Call) -> pb.EndSessionResponse:
        tenant, session = optional_tenant_id(request.tenant_id), checked_session(request.session_id)
        return pb.EndSessionResponse(facts_forgotten=end_session(self._reads.sessions, call, tenant, session))

    def GetState(self, request: pb.GetStateRequest, call: Call) -> pb.GetStateResponse:
        found = get_state(
            self._reads,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            corpora=[corpus_id(text, "corpus_ids") for text in request.corpus_ids],
            revision_only=request.revision_only,
        )
        states = [
            pb.CorpusState(
                corpus_id=str(state.corpus),
                state_revision=state.revision,
                state_hash=state.state_hash,
                facts=state.facts,
                shared=state.shared,
            )
            for state in found.states
        ]
        return pb.GetStateResponse(states=states, combined_hash=found.combined_hash)


def _check_no_session(request: pb.PutFactsRequest) -> None:
    if request.session_id:
        message = "session_id needs cache_control no-store; without it the facts are stored in the corpus"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="session_id")


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
        lead_spans=[nodes_pb2.Span(start=lead.start, end=lead.end) for lead in fact.leads],
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
        statuses=frozenset(fact_status(status, "statuses") for status in message.statuses),
        communities=frozenset(CommunityId(any_id(text, "community_ids")) for text in message.community_ids),
        metadata=dict(message.metadata),
        ingested_after=utc(message.ingested_after, "ingested_after") if message.HasField("ingested_after") else None,
        ingested_before=(
            utc(message.ingested_before, "ingested_before") if message.HasField("ingested_before") else None
        ),
        documents=frozenset(document_id(text, "document_ids") for text in message.document_ids),
        chunks=frozenset(node_id(text, "chunk_ids") for text in message.chunk_ids),
    )
