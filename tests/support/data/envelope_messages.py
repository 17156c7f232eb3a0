"""Messages about context envelopes with something in every field."""

from __future__ import annotations

import uuid
from typing import Any

from drillcore_proto.v1 import envelopes_pb2 as pb
from drillcore_proto.v1 import nodes_pb2
from tests.support.data.fact_messages import AT, CHUNK, CORPUS, FACT, RECORD, TENANT, stamp

ENVELOPE = uuid.UUID("77777777-7777-7777-7777-777777777777")
PARENT = uuid.UUID("88888888-8888-8888-8888-888888888888")
RAW = uuid.UUID("99999999-9999-9999-9999-999999999999")
OTHER = uuid.UUID(int=FACT.int + 1)
THIRD = uuid.UUID(int=FACT.int + 2)

TEXT = "## Context\n\n[1] Keep the audit trail as long as the record.\n"
ETAG = f"sha256:{'ab' * 32}"
HEADERS = {
    "CRP-Context-Quality-Tier": "B",
    "CRP-Context-Saturation": "0.884",
    "CRP-Context-Facts-Used": "2/87",
}


def cap() -> pb.TierCap:
    return pb.TierCap(tier=pb.QUALITY_TIER_B, reason="saturation", detail="0.884 is below 0.95")


def provenance() -> pb.Provenance:
    return pb.Provenance(
        source_id="sop-7",
        source_location="page 3",
        document_id=str(TENANT),
        document_title="Records and their trails",
        chunk_id=str(CHUNK),
        span=nodes_pb2.Span(start=120, end=168),
        raws=[pb.RawSpan(raw_id=str(RAW), span=nodes_pb2.Span(start=20, end=68))],
        lead_spans=[nodes_pb2.Span(start=3, end=17)],
    )


def fact() -> pb.EnvelopeFact:
    return pb.EnvelopeFact(
        fact_id=str(FACT),
        content="Keep the audit trail as long as the record.",
        source_id="sop-7",
        relevance_score=0.81,
        importance_weight=0.9,
        composite_score=0.762,
        token_count=14,
        position=1,
        community="records, trails",
        ingested_at=stamp(AT),
        freshness_score=0.5,
        diversity_bonus=1.0,
        memory_tier=3,
        stale=True,
        version=4,
        corpus_id=str(CORPUS),
        provenance=provenance(),
        session_only=True,
        answer_summary=True,
    )


def plain_fact() -> pb.EnvelopeFact:
    """A fact that was put without a document, so that few of its fields are set."""
    return pb.EnvelopeFact(
        fact_id=str(OTHER),
        content="Sign the record within a day of the visit, in ink or with an electronic signature. " * 4,
        source_id="sop-9",
        relevance_score=0.62,
        importance_weight=0.5,
        composite_score=0.48,
        token_count=75,
        position=2,
        ingested_at=stamp(AT),
        freshness_score=0.25,
        diversity_bonus=1.0,
        memory_tier=3,
        version=1,
        corpus_id=str(CORPUS),
        provenance=pb.Provenance(source_id="sop-9"),
    )


def envelope(**fields: Any) -> pb.Envelope:
    given: dict[str, Any] = {
        "session_id": "visit-12",
        "window_number": 1,
        "facts": [fact()],
        "total_facts_available": 87,
        "total_facts_included": 2,
        "token_count": 1768,
        "token_budget": 2000,
        "saturation": 0.884,
        "quality_tier": pb.QUALITY_TIER_B,
        "etag": ETAG,
        "strategy": "widened",
        "grounding_mode": pb.GROUNDING_MODE_CONTEXT_STRICT,
        "ckf_communities": ["records, trails", "signatures"],
        "memory_tier_hit": 3,
        "quality_score": 0.812,
        "coverage_score": 0.75,
        "relevance_mean": 0.715,
        "caps": [cap()],
        "warnings": ["strict grounding on a sparse envelope: the answer may be incomplete"],
        "sub_queries": ["how long are records kept", "who signs them"],
        "time_sensitive": True,
        "grounding_instruction": "Answer using ONLY the provided context.",
        "format": pb.RENDER_FORMAT_MARKDOWN,
        "text": TEXT,
        "revisions": {str(CORPUS): 9},
        "scoring_policy": "fused-1",
        "weights": pb.ScoringWeights(
            relevance=0.4,
            importance=0.35,
            freshness=0.15,
            diversity=0.1,
            freshness_horizon_days=365,
            relevance_floor=0.5,
        ),
        "exact": True,
        "ranked_on": "2026-01-31",
        "tokenizer": "o200k_base",
        "budget": pb.BudgetParts(
            context_window=4694, system_prompt=120, query=14, expected_response=2048, safety_margin=512
        ),
        "deferred_fact_ids": [str(THIRD)],
    }
    return pb.Envelope(**given | fields)


def candidates() -> list[pb.Candidate]:
    return [
        pb.Candidate(
            fact_id=str(FACT),
            relevance_score=0.81,
            composite_score=0.762,
            outcome="included",
            found_by=["vectors", "words", "sections"],
            token_count=14,
            position=1,
        ),
        pb.Candidate(
            fact_id=str(OTHER),
            relevance_score=0.8,
            composite_score=0.7,
            outcome="duplicate",
            detail=str(FACT),
            found_by=["vectors"],
            token_count=14,
        ),
        pb.Candidate(
            fact_id=str(THIRD),
            relevance_score=0.5,
            composite_score=0.4,
            outcome="over-budget",
            found_by=["community"],
            token_count=300,
        ),
    ]


def full_candidate() -> pb.Candidate:
    """A candidate with something in every field, which no real candidate has."""
    found = candidates()[1]
    found.position = 2
    return found


def packed(**fields: Any) -> pb.PackEnvelopeResponse:
    given: dict[str, Any] = {
        "envelope_id": str(ENVELOPE),
        "envelope": envelope(),
        "created_at": stamp(AT),
        "headers": HEADERS,
        "continuation_id": "c-1",
        "quality_history": [pb.QUALITY_TIER_A, pb.QUALITY_TIER_B],
        "session_id": "visit-12",
    }
    return pb.PackEnvelopeResponse(**given | fields)


def not_modified() -> pb.PackEnvelopeResponse:
    headers = {"CRP-Context-Cache-Status": "HIT"}
    return pb.PackEnvelopeResponse(envelope_id=str(ENVELOPE), not_modified=True, headers=headers)


def preview() -> pb.PreviewEnvelopeResponse:
    return pb.PreviewEnvelopeResponse(
        facts_available=87,
        facts_included=2,
        estimated_tokens=1768,
        quality_tier=pb.QUALITY_TIER_B,
        saturation=0.884,
        etag=ETAG,
        communities=["records, trails"],
        memory_tier_hit=3,
        token_budget=2000,
        caps=[cap()],
        warnings=["few facts"],
        revisions={str(CORPUS): 9},
        headers=HEADERS,
    )


def issued(**fields: Any) -> pb.GetEnvelopeResponse:
    given: dict[str, Any] = {
        "envelope_id": str(ENVELOPE),
        "created_at": stamp(AT),
        "created_by": "ann",
        "query": "how long are records kept",
        "replay": pb.REPLAY_SAME,
        "envelope": envelope(),
        "issued_sha256": "cd" * 32,
        "fact_ids": [str(FACT), str(OTHER)],
        "missing_fact_ids": [str(OTHER)],
        "parent_envelope_id": str(PARENT),
        "audit_record_id": str(RECORD),
        "quality_tier": pb.QUALITY_TIER_B,
        "window_number": 2,
        "revisions": {str(CORPUS): 9},
    }
    return pb.GetEnvelopeResponse(**given | fields)
