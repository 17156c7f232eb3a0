"""Context envelopes as data: how to score one, and what calls about them return."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from drillcore._api.node_data import Span


class QualityTier(enum.Enum):
    """The quality of an envelope, best first."""

    S = "S"
    A = "A"
    B = "B"
    C = "C"
    D = "D"


class GroundingMode(enum.Enum):
    """How closely an answer must keep to the envelope. The values are words of the Context Relay Protocol."""

    CONTEXT_STRICT = "context-strict"
    CONTEXT_PREFERRED = "context-preferred"
    OPEN = "open"


class RenderFormat(enum.Enum):
    """The format of an envelope's text."""

    MARKDOWN = "markdown"
    XML = "xml"
    JSON = "json"


class Replay(enum.Enum):
    """How an envelope that is built again compares with the issued one."""

    SAME = "same"
    """It is the same, byte by byte."""
    FACTS_SAME = "facts-same"
    """Every fact is unchanged, but the approximate search selects others now."""
    ERASED = "erased"
    """Some of its facts have been erased."""
    SESSION_OVER = "session-over"
    """It used facts or an answer of a session, which are kept nowhere else."""
    DIFFERENT = "different"
    """The store has other content than it had then."""
    TRIMMED = "trimmed"
    """Its revisions are no longer kept."""


@dataclass(frozen=True, slots=True)
class ScoringOptions:
    """How to score candidates. The server's settings fill in what is left out. Weights are normalised to sum to 1."""

    policy: str = ""
    """cosine-1, which the specification defines, or fused-1."""
    relevance_weight: float | None = None
    importance_weight: float | None = None
    freshness_weight: float | None = None
    diversity_weight: float | None = None
    freshness_horizon_days: int | None = None
    """The age, in days, at which a fact is no longer fresh."""
    relevance_floor: float | None = None
    """The least relevance of a relevant candidate."""
    duplicate_similarity: float | None = None
    """The least cosine of two facts that count as duplicates."""
    candidates_per_query: int | None = None
    """The number of candidates for each sub-query."""


@dataclass(frozen=True, slots=True)
class RawSpan:
    """Characters of a raw."""

    raw_id: UUID
    span: Span


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a fact comes from, down to the characters of the original document."""

    source_id: str
    source_location: str
    document_id: UUID | None
    """None if the fact was put without a document."""
    document_title: str
    chunk_id: UUID | None
    span: Span | None
    """The place of the fact in the document's text."""
    raws: tuple[RawSpan, ...]
    """The raws that the fact covers."""
    lead_spans: tuple[Span, ...] = ()
    """Places in the document's text that introduce the fact, outermost first."""


@dataclass(frozen=True, slots=True)
class EnvelopeFact:
    """A fact in an envelope."""

    fact_id: UUID
    content: str
    source_id: str
    relevance_score: float
    importance_weight: float
    composite_score: float
    token_count: int
    """The tokens of its part of the text."""
    position: int
    """The place in the text, from 1; also its citation number."""
    community: str
    """The label of its community; empty if it has none."""
    ingested_at: datetime
    freshness_score: float
    diversity_bonus: float
    memory_tier: int
    """Where it was found: 0 the caller's window, 1 the session, 2 earlier windows of the session, 3 the store."""
    stale: bool
    version: int
    corpus_id: UUID | None
    """None if it belongs to no corpus, such as the summary of an answer."""
    provenance: Provenance | None
    session_only: bool
    answer_summary: bool
    """Whether it is not from the store, but what the model said before."""


@dataclass(frozen=True, slots=True)
class TierCap:
    """Why an envelope cannot have a better tier."""

    tier: QualityTier
    """The best tier that is possible."""
    reason: str
    """saturation, critical-fact-excluded, coverage, primary-community, freshness or strict-grounding."""
    detail: str


@dataclass(frozen=True, slots=True)
class ScoringWeights:
    """The weights that a composite score used. They sum to 1."""

    relevance: float
    importance: float
    freshness: float
    diversity: float
    freshness_horizon_days: int
    relevance_floor: float


@dataclass(frozen=True, slots=True)
class BudgetParts:
    """What was subtracted from the context window, in tokens."""

    context_window: int
    """0 if the budget was given directly."""
    system_prompt: int
    """Includes the grounding instruction."""
    query: int
    expected_response: int
    safety_margin: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """The outcome of one candidate, and the reason."""

    fact_id: UUID
    relevance_score: float
    composite_score: float
    outcome: str
    """included, duplicate, over-budget, in-window or seen."""
    detail: str
    """For a duplicate, the fact that it duplicates."""
    found_by: tuple[str, ...]
    """vectors, words, sections, community, session, deferred or answer."""
    token_count: int
    """The tokens that it takes or would take; 0 if there was no room to try it."""
    position: int
    """The place in the text; 0 if it is not included."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """The facts that a language model should see for a query. The same request on the same state gives an equal one."""

    session_id: str
    """The session that the caller named."""
    window_number: int
    facts: tuple[EnvelopeFact, ...]
    """The facts, in the order of the text."""
    total_facts_available: int
    """The number of candidates."""
    total_facts_included: int
    token_count: int
    """The tokens of the text."""
    token_budget: int
    saturation: float
    quality_tier: QualityTier
    etag: str
    strategy: str
    """direct, widened or continuation."""
    grounding_mode: GroundingMode
    ckf_communities: tuple[str, ...]
    """Labels of communities, most relevant first."""
    memory_tier_hit: int
    quality_score: float
    coverage_score: float
    relevance_mean: float
    caps: tuple[TierCap, ...]
    """Every cap that applied."""
    warnings: tuple[str, ...]
    sub_queries: tuple[str, ...]
    time_sensitive: bool
    grounding_instruction: str
    """A text for the system prompt; empty in open mode."""
    format: RenderFormat
    text: str
    """The text for the prompt."""
    revisions: Mapping[UUID, int]
    """The revision of each corpus that was read."""
    scoring_policy: str
    weights: ScoringWeights
    exact: bool
    """Whether the search compared every vector."""
    ranked_on: date
    """The day (UTC) from which ages were counted."""
    tokenizer: str
    """The tokenizer that counted."""
    budget: BudgetParts
    deferred_fact_ids: tuple[UUID, ...]
    """Relevant facts that are left for the next window."""


@dataclass(frozen=True, slots=True)
class PackedEnvelope:
    """An envelope and the facts about one call."""

    envelope_id: UUID | None
    """The id for `get_envelope`; None if no envelope was issued."""
    not_modified: bool
    """True if `if_match` names the current envelope. Then `envelope` is None."""
    envelope: Envelope | None
    created_at: datetime | None
    headers: Mapping[str, str]
    """The headers of the Context Relay Protocol, ready to send."""
    continuation_id: str
    """The id for `continue_envelope`; empty if there is no further window."""
    quality_history: tuple[QualityTier, ...]
    """The tiers of the windows of the session, this one last."""
    candidates: tuple[Candidate, ...]
    """Empty without `explain`."""
    session_id: str
    """The session that the caller named, or that the server made for the chain."""


@dataclass(frozen=True, slots=True)
class EnvelopePreview:
    """What an envelope would be like, without its content."""

    facts_available: int
    facts_included: int
    estimated_tokens: int
    quality_tier: QualityTier
    saturation: float
    etag: str
    communities: tuple[str, ...]
    """Labels of communities."""
    memory_tier_hit: int
    token_budget: int
    caps: tuple[TierCap, ...]
    warnings: tuple[str, ...]
    revisions: Mapping[UUID, int]
    headers: Mapping[str, str]
    """The headers of the Context Relay Protocol."""


@dataclass(frozen=True, slots=True)
class IssuedEnvelope:
    """An issued envelope, built again at its revisions and compared with the original."""

    envelope_id: UUID
    created_at: datetime
    created_by: str
    query: str
    replay: Replay
    envelope: Envelope | None
    """The envelope as it is built now; None if that is impossible."""
    issued_sha256: str
    """SHA-256 of the issued envelope, in hex."""
    fact_ids: tuple[UUID, ...]
    """The facts in the issued envelope, in order."""
    missing_fact_ids: tuple[UUID, ...]
    """Those facts that no longer exist."""
    parent_envelope_id: UUID | None
    """The previous window; None if there was none."""
    audit_record_id: UUID | None
    quality_tier: QualityTier
    """The tier of the issued envelope."""
    window_number: int
    revisions: Mapping[UUID, int]
