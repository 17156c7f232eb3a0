"""EnvelopeService: turns requests into commands, and results into responses."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import IntEnum
from typing import TypeVar
from uuid import UUID

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import envelopes_pb2 as pb
from drillcore_proto.v1 import nodes_pb2
from drillcore_server.envelopes.issue import EnvelopeAnswer
from drillcore_server.envelopes.model import (
    MEMORY_TIER_STORE,
    CandidateOutcome,
    Envelope,
    GroundingMode,
    Packed,
    Provenance,
    QualityTier,
    RenderFormat,
    TierCap,
)
from drillcore_server.envelopes.pack import continue_envelope, pack_envelope, preview_envelope
from drillcore_server.envelopes.read import get_envelope
from drillcore_server.envelopes.request import EnvelopeQuestion, EnvelopeReads
from drillcore_server.envelopes.scoring_policy import ScoringOptions
from drillcore_server.envelopes.token_packer import BudgetRequest
from drillcore_server.facts.cache_directives import parse_directives
from drillcore_server.facts.service import fact_filters, fact_id
from drillcore_server.facts.session_fact_store import checked_session
from drillcore_server.hierarchy.service import as_of
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.messages import any_id, corpus_id, optional_tenant_id, timestamp
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import EnvelopeId, Span

Named = TypeVar("Named", bound=IntEnum)


def question_of(message: pb.EnvelopeQuestion) -> EnvelopeQuestion:
    """Returns the question of a message. Raises `BadInput` for a field that cannot be used."""
    return EnvelopeQuestion(
        query=message.query,
        corpora=tuple(dict.fromkeys(corpus_id(text, "corpus_ids") for text in message.corpus_ids)),
        filters=fact_filters(message.filters),
        budget=_budget(message.budget),
        model=message.budget.model,
        mode=_named(GroundingMode, message.grounding_mode or GroundingMode.CONTEXT_PREFERRED, "grounding_mode"),
        scoring=_scoring(message.scoring),
        accepted=frozenset(_named(QualityTier, number, "accept_tiers") for number in message.accept_tiers),
        directives=parse_directives(message.cache_control),
        session=checked_session(message.session_id) if message.session_id else "",
        exact=message.exact,
        as_of=as_of(message.as_of),
        format=_named(RenderFormat, message.format or RenderFormat.MARKDOWN, "format"),
        window_facts=tuple(dict.fromkeys(fact_id(text, "window_fact_ids") for text in message.window_fact_ids)),
        memory_tier_max=message.memory_tier_max if message.HasField("memory_tier_max") else MEMORY_TIER_STORE,
    )


def _budget(message: pb.TokenBudget) -> BudgetRequest:
    names = (
        "tokens",
        "context_window",
        "system_prompt_tokens",
        "expected_response_tokens",
        "safety_margin_tokens",
    )
    given = {name: getattr(message, name) for name in names if message.HasField(name)}  # type: ignore[arg-type]
    return BudgetRequest(system_prompt=message.system_prompt, **given)


def _scoring(message: pb.ScoringOptions) -> ScoringOptions:
    given = {field.name: value for field, value in message.ListFields() if field.name != "policy"}
    return ScoringOptions(policy=message.policy or None, **given)


def _named(kind: type[Named], value: int, field: str) -> Named:
    try:
        return kind(value)
    except ValueError as error:
        known = ", ".join(member.name for member in kind)
        raise BadInput(Reason.INVALID_ARGUMENT, f"{field} must be one of {known}", field=field) from error


def envelope_message(envelope: Envelope) -> pb.Envelope:
    quality, packing, weights, budget = envelope.quality, envelope.packing, envelope.weights, envelope.budget
    return pb.Envelope(
        session_id=envelope.session,
        window_number=envelope.window,
        facts=[_fact(envelope, packed) for packed in packing.included],
        total_facts_available=envelope.available,
        total_facts_included=len(packing.included),
        token_count=packing.tokens,
        token_budget=budget.tokens,
        saturation=quality.saturation,
        quality_tier=pb.QualityTier.ValueType(quality.tier),
        etag=envelope.etag,
        strategy=envelope.strategy,
        grounding_mode=pb.GroundingMode.ValueType(envelope.mode),
        ckf_communities=envelope.communities,
        memory_tier_hit=envelope.memory_tier_hit,
        quality_score=quality.score,
        coverage_score=quality.coverage,
        relevance_mean=quality.relevance_mean,
        caps=map(cap_message, quality.caps),
        warnings=envelope.warnings,
        sub_queries=envelope.sub_queries,
        time_sensitive=envelope.time_sensitive,
        grounding_instruction=envelope.instruction,
        format=pb.RenderFormat.ValueType(envelope.format),
        text=packing.text,
        revisions={str(corpus): revision for corpus, revision in envelope.revisions.items()},
        scoring_policy=envelope.policy,
        weights=pb.ScoringWeights(
            relevance=weights.relevance,
            importance=weights.importance,
            freshness=weights.freshness,
            diversity=weights.diversity,
            freshness_horizon_days=weights.horizon_days,
            relevance_floor=envelope.relevance_floor,
        ),
        exact=envelope.exact,
        ranked_on=envelope.ranked_on.isoformat(),
        tokenizer=envelope.tokenizer,
        budget=pb.BudgetParts(
            context_window=budget.context_window,
            system_prompt=budget.system_prompt,
            query=budget.query,
            expected_response=budget.expected_response,
            safety_margin=budget.safety_margin,
        ),
        deferred_fact_ids=map(str, envelope.deferred),
    )


class SentEnvelope:
    """The message of the envelope in an answer. It is made once, then hashed and sent."""

    def __init__(self) -> None:
        self._made: tuple[Envelope, pb.Envelope] | None = None

    def message(self, envelope: Envelope) -> pb.Envelope:
        if self._made is None or self._made[0] is not envelope:
            self._made = envelope, envelope_message(envelope)
        return self._made[1]

    def digest(self, envelope: Envelope) -> bytes:
        """Returns the SHA-256 of the message: the same for the same envelope."""
        return hashlib.sha256(self.message(envelope).SerializeToString(deterministic=True)).digest()


def _fact(envelope: Envelope, packed: Packed) -> pb.EnvelopeFact:
    ranked, candidate = packed.ranked, packed.ranked.candidate
    provenance = envelope.provenance.get(candidate.id)
    return pb.EnvelopeFact(
        fact_id=str(candidate.id),
        content=candidate.content,
        source_id=candidate.source,
        relevance_score=candidate.relevance,
        importance_weight=candidate.importance,
        composite_score=ranked.composite,
        token_count=packed.tokens,
        position=packed.position,
        community=candidate.community_label,
        ingested_at=timestamp(candidate.ingested_at),
        freshness_score=ranked.freshness,
        diversity_bonus=ranked.diversity,
        memory_tier=candidate.memory_tier,
        stale=candidate.stale,
        version=candidate.version,
        corpus_id="" if candidate.is_answer else str(candidate.corpus),
        provenance=None if provenance is None else _provenance(provenance),
        session_only=candidate.session_only,
        answer_summary=candidate.is_answer,
    )


def _provenance(provenance: Provenance) -> pb.Provenance:
    return pb.Provenance(
        source_id=provenance.source,
        source_location=provenance.location,
        document_id=str(provenance.document) if provenance.document else "",
        document_title=provenance.document_title,
        chunk_id=str(provenance.chunk) if provenance.chunk else "",
        span=_span(provenance.span) if provenance.span else None,
        raws=[pb.RawSpan(raw_id=str(raw.raw), span=_span(raw.span)) for raw in provenance.raws],
        lead_spans=list(map(_span, provenance.leads)),
    )


def _span(span: Span) -> nodes_pb2.Span:
    return nodes_pb2.Span(start=span.start, end=span.end)


def cap_message(cap: TierCap) -> pb.TierCap:
    return pb.TierCap(tier=pb.QualityTier.ValueType(cap.tier), reason=cap.reason, detail=cap.detail)


def candidate_messages(outcomes: Iterable[CandidateOutcome]) -> list[pb.Candidate]:
    return [
        pb.Candidate(
            fact_id=str(outcome.candidate.id),
            relevance_score=outcome.candidate.relevance,
            composite_score=outcome.composite,
            outcome=outcome.outcome.value,
            detail=outcome.detail,
            found_by=[search.value for search in outcome.candidate.found_by],
            token_count=outcome.tokens,
            position=outcome.position,
        )
        for outcome in outcomes
    ]


class EnvelopeService:
    def __init__(self, reads: EnvelopeReads) -> None:
        self._reads = reads

    def PreviewEnvelope(self, request: pb.PreviewEnvelopeRequest, call: Call) -> pb.PreviewEnvelopeResponse:
        tenant = optional_tenant_id(request.tenant_id)
        previewed = preview_envelope(self._reads, call, tenant=tenant, asked=question_of(request.question))
        envelope, quality = previewed.envelope, previewed.envelope.quality
        return pb.PreviewEnvelopeResponse(
            facts_available=envelope.available,
            facts_included=len(envelope.packing.included),
            estimated_tokens=envelope.packing.tokens,
            quality_tier=pb.QualityTier.ValueType(quality.tier),
            saturation=quality.saturation,
            etag=envelope.etag,
            communities=envelope.communities,
            memory_tier_hit=envelope.memory_tier_hit,
            token_budget=envelope.budget.tokens,
            caps=map(cap_message, quality.caps),
            warnings=envelope.warnings,
            revisions={str(corpus): revision for corpus, revision in envelope.revisions.items()},
            headers=previewed.headers,
        )

    def PackEnvelope(self, request: pb.PackEnvelopeRequest, call: Call) -> pb.PackEnvelopeResponse:
        sent = SentEnvelope()
        answer = pack_envelope(
            self._reads,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            asked=question_of(request.question),
            if_match=request.if_match,
            salted=request.salted_etag,
            digest=sent.digest,
        )
        return _answered(answer, sent, explain=request.explain)

    def ContinueEnvelope(self, request: pb.ContinueEnvelopeRequest, call: Call) -> pb.PackEnvelopeResponse:
        sent = SentEnvelope()
        answer = continue_envelope(
            self._reads,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            continuation=EnvelopeId(any_id(request.continuation_id, "continuation_id")),
            answer=request.previous_answer,
            digest=sent.digest,
        )
        return _answered(answer, sent, explain=request.explain)

    def GetEnvelope(self, request: pb.GetEnvelopeRequest, call: Call) -> pb.GetEnvelopeResponse:
        tenant, wanted = optional_tenant_id(request.tenant_id), EnvelopeId(any_id(request.envelope_id, "envelope_id"))
        sent = SentEnvelope()
        replayed = get_envelope(self._reads, call, tenant=tenant, wanted=wanted, digest=sent.digest)
        issued = replayed.issued
        return pb.GetEnvelopeResponse(
            envelope_id=str(issued.id),
            created_at=timestamp(issued.at),
            created_by=issued.principal,
            query=issued.plan.query,
            replay=pb.Replay.ValueType(replayed.replay),
            envelope=None if replayed.envelope is None else sent.message(replayed.envelope),
            issued_sha256=issued.digest.hex(),
            fact_ids=[str(fact.id) for fact in issued.facts],
            missing_fact_ids=map(str, replayed.missing),
            parent_envelope_id=_text(issued.parent),
            audit_record_id=str(issued.record),
            quality_tier=pb.QualityTier.ValueType(issued.tier),
            window_number=issued.window,
            revisions={str(at.corpus): at.revision for at in issued.corpora},
        )


def _answered(answer: EnvelopeAnswer, sent: SentEnvelope, *, explain: bool) -> pb.PackEnvelopeResponse:
    envelope = answer.envelope
    return pb.PackEnvelopeResponse(
        envelope_id=str(answer.id),
        not_modified=envelope is None,
        envelope=None if envelope is None else sent.message(envelope),
        created_at=timestamp(answer.created_at),
        headers=answer.headers,
        continuation_id=answer.continuation,
        quality_history=[pb.QualityTier.ValueType(tier) for tier in answer.history],
        candidates=candidate_messages(envelope.explained) if explain and envelope is not None else (),
        session_id=answer.session,
    )


def _text(id_: UUID | None) -> str:
    return "" if id_ is None else str(id_)
