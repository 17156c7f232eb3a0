"""Envelopes between messages and the domain's types."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import IntEnum
from typing import TypeVar

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import envelopes_pb2 as pb
from drillcore_proto.v1 import nodes_pb2
from drillcore_server.commands.envelope_asking import EnvelopeAsked
from drillcore_server.domain.budget import BudgetRequest
from drillcore_server.domain.cache_directives import parse_directives
from drillcore_server.domain.documents import Span
from drillcore_server.domain.envelopes import (
    Envelope,
    Explained,
    GroundingMode,
    Packed,
    Provenance,
    QualityTier,
    RenderFormat,
    TierCap,
)
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.fact_sessions import checked_session
from drillcore_server.domain.scoring import ScoringAsked
from drillcore_server.rpc.fact_messages import fact_filters, fact_id
from drillcore_server.rpc.messages import corpus_id, timestamp
from drillcore_server.rpc.nodes import as_of

Named = TypeVar("Named", bound=IntEnum)


def asked(message: pb.EnvelopeQuestion) -> EnvelopeAsked:
    return EnvelopeAsked(
        query=message.query,
        corpora=tuple(dict.fromkeys(corpus_id(one, "corpus_ids") for one in message.corpus_ids)),
        filters=fact_filters(message.filters),
        budget=_budget(message.budget),
        model=message.budget.model,
        mode=_named(GroundingMode, message.grounding_mode or GroundingMode.CONTEXT_PREFERRED, "grounding_mode"),
        scoring=_scoring(message.scoring),
        accepted=frozenset(_named(QualityTier, one, "accept_tiers") for one in message.accept_tiers),
        directives=parse_directives(message.cache_control),
        session=checked_session(message.session_id) if message.session_id else "",
        exact=message.exact,
        as_of=as_of(message.as_of),
        format=_named(RenderFormat, message.format or RenderFormat.MARKDOWN, "format"),
        window_facts=tuple(dict.fromkeys(fact_id(one, "window_fact_ids") for one in message.window_fact_ids)),
        memory_tier_max=message.memory_tier_max if message.HasField("memory_tier_max") else 3,
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


def _scoring(message: pb.ScoringOptions) -> ScoringAsked:
    given = {one.name: value for one, value in message.ListFields() if one.name != "policy"}
    return ScoringAsked(policy=message.policy or None, **given)


def _named(kind: type[Named], value: int, field: str) -> Named:
    try:
        return kind(value)
    except ValueError as error:
        known = ", ".join(one.name for one in kind)
        raise BadInput(Reason.INVALID_ARGUMENT, f"{field} must be one of {known}", field=field) from error


def envelope_message(envelope: Envelope) -> pb.Envelope:
    quality, packing, weights, budget = envelope.quality, envelope.packing, envelope.weights, envelope.budget
    return pb.Envelope(
        session_id=envelope.session,
        window_number=envelope.window,
        facts=[_fact(envelope, one) for one in packing.included],
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


class Sent:
    """The message of the envelope that a call answers with: made once, hashed and sent."""

    def __init__(self) -> None:
        self._made: tuple[Envelope, pb.Envelope] | None = None

    def message(self, envelope: Envelope) -> pb.Envelope:
        if self._made is None or self._made[0] is not envelope:
            self._made = envelope, envelope_message(envelope)
        return self._made[1]

    def digest(self, envelope: Envelope) -> bytes:
        """SHA-256 of what is sent: the same bytes for the same envelope."""
        return hashlib.sha256(self.message(envelope).SerializeToString(deterministic=True)).digest()


def _fact(envelope: Envelope, packed: Packed) -> pb.EnvelopeFact:
    ranked, one = packed.ranked, packed.ranked.candidate
    known = envelope.provenance.get(one.id)
    return pb.EnvelopeFact(
        fact_id=str(one.id),
        content=one.content,
        source_id=one.source,
        relevance_score=one.relevance,
        importance_weight=one.importance,
        composite_score=ranked.composite,
        token_count=packed.tokens,
        position=packed.position,
        community=one.community_label,
        ingested_at=timestamp(one.ingested_at),
        freshness_score=ranked.freshness,
        diversity_bonus=ranked.diversity,
        memory_tier=one.memory_tier,
        stale=one.stale,
        version=one.version,
        corpus_id="" if one.is_answer else str(one.corpus),
        provenance=None if known is None else _provenance(known),
        session_only=one.session_only,
        answer_summary=one.is_answer,
    )


def _provenance(known: Provenance) -> pb.Provenance:
    return pb.Provenance(
        source_id=known.source,
        source_location=known.location,
        document_id=str(known.document) if known.document else "",
        document_title=known.document_title,
        chunk_id=str(known.chunk) if known.chunk else "",
        span=_span(known.span) if known.span else None,
        raws=[pb.RawSpan(raw_id=str(one.raw), span=_span(one.span)) for one in known.raws],
        lead_spans=list(map(_span, known.leads)),
    )


def _span(span: Span) -> nodes_pb2.Span:
    return nodes_pb2.Span(start=span.start, end=span.end)


def cap_message(cap: TierCap) -> pb.TierCap:
    return pb.TierCap(tier=pb.QualityTier.ValueType(cap.tier), reason=cap.reason, detail=cap.detail)


def candidate_messages(explained: Iterable[Explained]) -> list[pb.Candidate]:
    return [
        pb.Candidate(
            fact_id=str(one.candidate.id),
            relevance_score=one.candidate.relevance,
            composite_score=one.composite,
            outcome=one.outcome.value,
            detail=one.detail,
            found_by=[by.value for by in one.candidate.found_by],
            token_count=one.tokens,
            position=one.position,
        )
        for one in explained
    ]
