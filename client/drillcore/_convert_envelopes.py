"""Protocol messages about envelopes to results, and how to score, render and ground to messages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from uuid import UUID

from drillcore._convert import optional_datetime, to_datetime, to_id
from drillcore._envelope_results import (
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
from drillcore._node_results import Span
from drillcore_proto.v1 import envelopes_pb2 as pb
from drillcore_proto.v1 import nodes_pb2


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


def tier_message(tier: QualityTier) -> pb.QualityTier.ValueType:
    return pb.QualityTier.Value(f"QUALITY_TIER_{tier.name}")


def grounding_message(mode: GroundingMode) -> pb.GroundingMode.ValueType:
    return pb.GroundingMode.Value(f"GROUNDING_MODE_{mode.name}")


def format_message(wanted: RenderFormat) -> pb.RenderFormat.ValueType:
    return pb.RenderFormat.Value(f"RENDER_FORMAT_{wanted.name}")


def packed(message: pb.PackEnvelopeResponse) -> PackedEnvelope:
    return PackedEnvelope(
        envelope_id=to_id(message.envelope_id),
        not_modified=message.not_modified,
        envelope=envelope(message.envelope) if message.HasField("envelope") else None,
        created_at=optional_datetime(message, "created_at"),
        headers=dict(message.headers),
        continuation_id=message.continuation_id,
        quality_history=tuple(map(_tier, message.quality_history)),
        candidates=tuple(map(_candidate, message.candidates)),
        session_id=message.session_id,
    )


def preview(message: pb.PreviewEnvelopeResponse) -> EnvelopePreview:
    return EnvelopePreview(
        facts_available=message.facts_available,
        facts_included=message.facts_included,
        estimated_tokens=message.estimated_tokens,
        quality_tier=_tier(message.quality_tier),
        saturation=message.saturation,
        etag=message.etag,
        communities=tuple(message.communities),
        memory_tier_hit=message.memory_tier_hit,
        token_budget=message.token_budget,
        caps=tuple(map(_cap, message.caps)),
        warnings=tuple(message.warnings),
        revisions=_revisions(message.revisions),
        headers=dict(message.headers),
    )


def issued(message: pb.GetEnvelopeResponse) -> IssuedEnvelope:
    return IssuedEnvelope(
        envelope_id=UUID(message.envelope_id),
        created_at=to_datetime(message.created_at),
        created_by=message.created_by,
        query=message.query,
        replay=Replay[pb.Replay.Name(message.replay).removeprefix("REPLAY_")],
        envelope=envelope(message.envelope) if message.HasField("envelope") else None,
        issued_sha256=message.issued_sha256,
        fact_ids=tuple(map(UUID, message.fact_ids)),
        missing_fact_ids=tuple(map(UUID, message.missing_fact_ids)),
        parent_envelope_id=to_id(message.parent_envelope_id),
        audit_record_id=to_id(message.audit_record_id),
        quality_tier=_tier(message.quality_tier),
        window_number=message.window_number,
        revisions=_revisions(message.revisions),
    )


def envelope(message: pb.Envelope) -> Envelope:
    return Envelope(
        session_id=message.session_id,
        window_number=message.window_number,
        facts=tuple(map(_fact, message.facts)),
        total_facts_available=message.total_facts_available,
        total_facts_included=message.total_facts_included,
        token_count=message.token_count,
        token_budget=message.token_budget,
        saturation=message.saturation,
        quality_tier=_tier(message.quality_tier),
        etag=message.etag,
        strategy=message.strategy,
        grounding_mode=GroundingMode[pb.GroundingMode.Name(message.grounding_mode).removeprefix("GROUNDING_MODE_")],
        ckf_communities=tuple(message.ckf_communities),
        memory_tier_hit=message.memory_tier_hit,
        quality_score=message.quality_score,
        coverage_score=message.coverage_score,
        relevance_mean=message.relevance_mean,
        caps=tuple(map(_cap, message.caps)),
        warnings=tuple(message.warnings),
        sub_queries=tuple(message.sub_queries),
        time_sensitive=message.time_sensitive,
        grounding_instruction=message.grounding_instruction,
        format=RenderFormat[pb.RenderFormat.Name(message.format).removeprefix("RENDER_FORMAT_")],
        text=message.text,
        revisions=_revisions(message.revisions),
        scoring_policy=message.scoring_policy,
        weights=_weights(message.weights),
        exact=message.exact,
        ranked_on=date.fromisoformat(message.ranked_on),
        tokenizer=message.tokenizer,
        budget=_budget(message.budget),
        deferred_fact_ids=tuple(map(UUID, message.deferred_fact_ids)),
    )


def _fact(message: pb.EnvelopeFact) -> EnvelopeFact:
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
        provenance=_provenance(message.provenance) if message.HasField("provenance") else None,
        session_only=message.session_only,
        answer_summary=message.answer_summary,
    )


def _provenance(message: pb.Provenance) -> Provenance:
    return Provenance(
        source_id=message.source_id,
        source_location=message.source_location,
        document_id=to_id(message.document_id),
        document_title=message.document_title,
        chunk_id=to_id(message.chunk_id),
        span=_span(message.span) if message.HasField("span") else None,
        raws=tuple(RawSpan(UUID(one.raw_id), _span(one.span)) for one in message.raws),
        lead_spans=tuple(map(_span, message.lead_spans)),
    )


def _candidate(message: pb.Candidate) -> Candidate:
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


def _weights(message: pb.ScoringWeights) -> ScoringWeights:
    return ScoringWeights(
        relevance=message.relevance,
        importance=message.importance,
        freshness=message.freshness,
        diversity=message.diversity,
        freshness_horizon_days=message.freshness_horizon_days,
        relevance_floor=message.relevance_floor,
    )


def _budget(message: pb.BudgetParts) -> BudgetParts:
    return BudgetParts(
        context_window=message.context_window,
        system_prompt=message.system_prompt,
        query=message.query,
        expected_response=message.expected_response,
        safety_margin=message.safety_margin,
    )


def _cap(message: pb.TierCap) -> TierCap:
    return TierCap(_tier(message.tier), message.reason, message.detail)


def _tier(number: pb.QualityTier.ValueType) -> QualityTier:
    return QualityTier[pb.QualityTier.Name(number).removeprefix("QUALITY_TIER_")]


def _span(message: nodes_pb2.Span) -> Span:
    return Span(message.start, message.end)


def _revisions(message: Mapping[str, int]) -> dict[UUID, int]:
    return {UUID(corpus): revision for corpus, revision in message.items()}
