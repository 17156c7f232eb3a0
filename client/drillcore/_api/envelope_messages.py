"""Converts context envelopes between messages and results."""

from __future__ import annotations

from datetime import date
from uuid import UUID

from drillcore._api.envelope_data import (
    BudgetParts,
    Candidate,
    Envelope,
    EnvelopeFact,
    EnvelopePreview,
    GroundingMode,
    IssuedEnvelope,
    PackedEnvelope,
    Provenance,
    QualityTier,
    RawSpan,
    RenderFormat,
    Replay,
    ScoringOptions,
    ScoringWeights,
    TierCap,
)
from drillcore._api.messages import enum_member, optional_datetime, to_datetime, to_id, to_revisions
from drillcore._api.node_data import to_span
from drillcore_proto.v1 import envelopes_pb2 as pb


def scoring_message(options: ScoringOptions | None) -> pb.ScoringOptions | None:
    if options is None:
        return None
    return pb.ScoringOptions(
        policy=options.policy,
        relevance_weight=options.relevance_weight,
        importance_weight=options.importance_weight,
        freshness_weight=options.freshness_weight,
        diversity_weight=options.diversity_weight,
        freshness_horizon_days=options.freshness_horizon_days,
        relevance_floor=options.relevance_floor,
        duplicate_similarity=options.duplicate_similarity,
        candidates_per_query=options.candidates_per_query,
    )


def to_packed(message: pb.PackEnvelopeResponse) -> PackedEnvelope:
    return PackedEnvelope(
        envelope_id=to_id(message.envelope_id),
        not_modified=message.not_modified,
        envelope=to_envelope(message.envelope) if message.HasField("envelope") else None,
        created_at=optional_datetime(message, "created_at"),
        headers=dict(message.headers),
        continuation_id=message.continuation_id,
        quality_history=tuple(map(_to_tier, message.quality_history)),
        candidates=tuple(map(_to_candidate, message.candidates)),
        session_id=message.session_id,
    )


def to_preview(message: pb.PreviewEnvelopeResponse) -> EnvelopePreview:
    return EnvelopePreview(
        facts_available=message.facts_available,
        facts_included=message.facts_included,
        estimated_tokens=message.estimated_tokens,
        quality_tier=_to_tier(message.quality_tier),
        saturation=message.saturation,
        etag=message.etag,
        communities=tuple(message.communities),
        memory_tier_hit=message.memory_tier_hit,
        token_budget=message.token_budget,
        caps=tuple(map(_to_cap, message.caps)),
        warnings=tuple(message.warnings),
        revisions=to_revisions(message.revisions),
        headers=dict(message.headers),
    )


def to_issued(message: pb.GetEnvelopeResponse) -> IssuedEnvelope:
    return IssuedEnvelope(
        envelope_id=UUID(message.envelope_id),
        created_at=to_datetime(message.created_at),
        created_by=message.created_by,
        query=message.query,
        replay=enum_member(Replay, pb.Replay, message.replay),
        envelope=to_envelope(message.envelope) if message.HasField("envelope") else None,
        issued_sha256=message.issued_sha256,
        fact_ids=tuple(map(UUID, message.fact_ids)),
        missing_fact_ids=tuple(map(UUID, message.missing_fact_ids)),
        parent_envelope_id=to_id(message.parent_envelope_id),
        audit_record_id=to_id(message.audit_record_id),
        quality_tier=_to_tier(message.quality_tier),
        window_number=message.window_number,
        revisions=to_revisions(message.revisions),
    )


def to_envelope(message: pb.Envelope) -> Envelope:
    return Envelope(
        session_id=message.session_id,
        window_number=message.window_number,
        facts=tuple(map(_to_fact, message.facts)),
        total_facts_available=message.total_facts_available,
        total_facts_included=message.total_facts_included,
        token_count=message.token_count,
        token_budget=message.token_budget,
        saturation=message.saturation,
        quality_tier=_to_tier(message.quality_tier),
        etag=message.etag,
        strategy=message.strategy,
        grounding_mode=enum_member(GroundingMode, pb.GroundingMode, message.grounding_mode),
        ckf_communities=tuple(message.ckf_communities),
        memory_tier_hit=message.memory_tier_hit,
        quality_score=message.quality_score,
        coverage_score=message.coverage_score,
        relevance_mean=message.relevance_mean,
        caps=tuple(map(_to_cap, message.caps)),
        warnings=tuple(message.warnings),
        sub_queries=tuple(message.sub_queries),
        time_sensitive=message.time_sensitive,
        grounding_instruction=message.grounding_instruction,
        format=enum_member(RenderFormat, pb.RenderFormat, message.format),
        text=message.text,
        revisions=to_revisions(message.revisions),
        scoring_policy=message.scoring_policy,
        weights=_to_weights(message.weights),
        exact=message.exact,
        ranked_on=date.fromisoformat(message.ranked_on),
        tokenizer=message.tokenizer,
        budget=_to_budget(message.budget),
        deferred_fact_ids=tuple(map(UUID, message.deferred_fact_ids)),
    )


def _to_fact(message: pb.EnvelopeFact) -> EnvelopeFact:
    return EnvelopeFact(
        fact_id=UUID(message.fact_id),
        content=message.content,
        source_id=message.source_id,
        relevance_score=message.relevance_score,
        importance_weight=message.importance_weight,
        composite_score=message.composite_score,
        token_count=message.token_count,
        position=message.position,
        community=message.community,
        ingested_at=to_datetime(message.ingested_at),
        freshness_score=message.freshness_score,
        diversity_bonus=message.diversity_bonus,
        memory_tier=message.memory_tier,
        stale=message.stale,
        version=message.version,
        corpus_id=to_id(message.corpus_id),
        provenance=_to_provenance(message.provenance) if message.HasField("provenance") else None,
        session_only=message.session_only,
        answer_summary=message.answer_summary,
    )


def _to_provenance(message: pb.Provenance) -> Provenance:
    return Provenance(
        source_id=message.source_id,
        source_location=message.source_location,
        document_id=to_id(message.document_id),
        document_title=message.document_title,
        chunk_id=to_id(message.chunk_id),
        span=to_span(message.span) if message.HasField("span") else None,
        raws=tuple(RawSpan(UUID(raw.raw_id), to_span(raw.span)) for raw in message.raws),
        lead_spans=tuple(map(to_span, message.lead_spans)),
    )


def _to_candidate(message: pb.Candidate) -> Candidate:
    return Candidate(
        fact_id=UUID(message.fact_id),
        relevance_score=message.relevance_score,
        composite_score=message.composite_score,
        outcome=message.outcome,
        detail=message.detail,
        found_by=tuple(message.found_by),
        token_count=message.token_count,
        position=message.position,
    )


def _to_weights(message: pb.ScoringWeights) -> ScoringWeights:
    return ScoringWeights(
        relevance=message.relevance,
        importance=message.importance,
        freshness=message.freshness,
        diversity=message.diversity,
        freshness_horizon_days=message.freshness_horizon_days,
        relevance_floor=message.relevance_floor,
    )


def _to_budget(message: pb.BudgetParts) -> BudgetParts:
    return BudgetParts(
        context_window=message.context_window,
        system_prompt=message.system_prompt,
        query=message.query,
        expected_response=message.expected_response,
        safety_margin=message.safety_margin,
    )


def _to_cap(message: pb.TierCap) -> TierCap:
    return TierCap(_to_tier(message.tier), message.reason, message.detail)


def _to_tier(number: pb.QualityTier.ValueType) -> QualityTier:
    return enum_member(QualityTier, pb.QualityTier, number)
