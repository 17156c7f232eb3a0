"""Context envelopes: how one is scored, and what calls about them return."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from drillcore._node_results import Span


class QualityTier(enum.Enum):
    """How good an envelope is, the best first."""

    S = "S"
    A = "A"
    B = "B"
    C = "C"
    D = "D"


class GroundingMode(enum.Enum):
    """How far an answer may leave the envelope. Values are the words of the Context Relay Protocol."""

    CONTEXT_STRICT = "context-strict"
    CONTEXT_PREFERRED = "context-preferred"
    OPEN = "open"


class RenderFormat(enum.Enum):
    """What the text of an envelope is written in."""

    MARKDOWN = "markdown"
    XML = "xml"
    JSON = "json"


class Replay(enum.Enum):
    """How an envelope that is built again compares with what was issued."""

    SAME = "same"
    """Byte by byte."""
    FACTS_SAME = "facts-same"
    """Another selection, for the search was approximate; but every fact is as it was."""
    ERASED = "erased"
    """Some of its facts were erased since."""
    SESSION_OVER = "session-over"
    """Facts or an answer of a session had a part in it, which are kept nowhere else."""
    DIFFERENT = "different"
    """The store does not say what it said."""
    TRIMMED = "trimmed"
    """Its revisions are no longer kept."""


@dataclass(frozen=True, slots=True)
class ScoringOptions:
    """How candidates are scored: what is left out is as the server is set. Weights are normalised to sum to 1."""

    policy: str = ""
    """cosine-1, the specification's own, or fused-1."""
    relevance_weight: float | None = None
    importance_weight: float | None = None
    freshness_weight: float | None = None
    diversity_weight: float | None = None
    freshness_horizon_days: int | None = None
    """After so many days a fact has no freshness left."""
    relevance_floor: float | None = None
    """From which on a candidate counts as relevant."""
    duplicate_similarity: float | None = None
    """From which cosine on one fact says the same as another."""
    candidates_per_query: int | None = None
    """Of each sub-query."""


@dataclass(frozen=True, slots=True)
class RawSpan:
    """Characters of a raw."""

    raw_id: UUID
    span: Span


@dataclass(frozen=True, slots=True)
class Provenance:
    """From a fact to the characters of the original document."""

    source_id: str
    source_location: str
    document_id: UUID | None
    """None: the fact was put without a document."""
    document_title: str
    chunk_id: UUID | None
    span: Span | None
    """Of the fact in the document's text."""
    raws: tuple[RawSpan, ...]
    """That it runs over."""
    lead_spans: tuple[Span, ...] = ()
    """Of what introduces it, in the document's text, the outermost first."""


@dataclass(frozen=True, slots=True)
class EnvelopeFact:
    """A fact in its place in the text."""

    fact_id: UUID
    content: str
    source_id: str
    relevance_score: float
    importance_weight: float
    composite_score: float
    token_count: int
    """Of its part of the text."""
    position: int
    """From 1; also the number it is cited by."""
    community: str
    """Label; empty: in none."""
    ingested_at: datetime
    freshness_score: float
    diversity_bonus: float
    memory_tier: int
    """Where it was found: 0 the caller's window, 1 the session, 2 what the session used before, 3 the store."""
    stale: bool
    version: int
    corpus_id: UUID | None
    """None: it is of no corpus, as the summary of an answer."""
    provenance: Provenance | None
    session_only: bool
    answer_summary: bool
    """Not from the store: what the model said before."""


@dataclass(frozen=True, slots=True)
class TierCap:
    """Why an envelope cannot have a better tier."""

    tier: QualityTier
    """At most."""
    reason: str
    """saturation, critical-fact-excluded, coverage, primary-community, freshness or strict-grounding."""
    detail: str


@dataclass(frozen=True, slots=True)
class ScoringWeights:
    """The weights of a composite score, as they were used: they sum to 1."""

    relevance: float
    importance: float
    freshness: float
    diversity: float
    freshness_horizon_days: int
    relevance_floor: float


@dataclass(frozen=True, slots=True)
class BudgetParts:
    """What was taken off the context window, in tokens."""

    context_window: int
    """0: the budget was said outright, and nothing was taken off."""
    system_prompt: int
    """With the grounding instruction."""
    query: int
    expected_response: int
    safety_margin: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """What became of one candidate, and why."""

    fact_id: UUID
    relevance_score: float
    composite_score: float
    outcome: str
    """included, duplicate, over-budget, in-window or seen."""
    detail: str
    """The fact that it duplicates."""
    found_by: tuple[str, ...]
    """vectors, words, sections, community, session, deferred or answer."""
    token_count: int
    """That it takes, or would have taken. 0: there was no room to try it."""
    position: int
    """0: not included."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """The facts that a language model should see for a query. The same request on the same state gives the same."""

    session_id: str
    """As the caller named it."""
    window_number: int
    facts: tuple[EnvelopeFact, ...]
    """In their order in the text."""
    total_facts_available: int
    """Candidates."""
    total_facts_included: int
    token_count: int
    """Of the text."""
    token_budget: int
    saturation: float
    quality_tier: QualityTier
    etag: str
    strategy: str
    """direct, widened or continuation."""
    grounding_mode: GroundingMode
    ckf_communities: tuple[str, ...]
    """Labels, the one with most relevance first."""
    memory_tier_hit: int
    quality_score: float
    coverage_score: float
    relevance_mean: float
    caps: tuple[TierCap, ...]
    """Every one that applied."""
    warnings: tuple[str, ...]
    sub_queries: tuple[str, ...]
    time_sensitive: bool
    grounding_instruction: str
    """For the system prompt; empty in open mode."""
    format: RenderFormat
    text: str
    """To put into the prompt."""
    revisions: Mapping[UUID, int]
    """Of each corpus, that was read."""
    scoring_policy: str
    weights: ScoringWeights
    exact: bool
    """Whether every vector was compared."""
    ranked_on: date
    """The day (UTC) that ages were counted from."""
    tokenizer: str
    """That counted."""
    budget: BudgetParts
    deferred_fact_ids: tuple[UUID, ...]
    """Relevant, and left for the next window."""


@dataclass(frozen=True, slots=True)
class PackedEnvelope:
    """An envelope, and what differs from call to call."""

    envelope_id: UUID | None
    """For `get_envelope`. None: none was issued."""
    not_modified: bool
    """It is as the etag in `if_match` says: there is no envelope here."""
    envelope: Envelope | None
    created_at: datetime | None
    headers: Mapping[str, str]
    """Of the Context Relay Protocol, ready to be sent on."""
    continuation_id: str
    """For `continue_envelope`; empty: there is no further window."""
    quality_history: tuple[QualityTier, ...]
    """Of the windows of the session, this one last."""
    candidates: tuple[Candidate, ...]
    """Empty unless they were asked for with `explain`."""
    session_id: str
    """The caller's, or the one that was made for the chain."""


@dataclass(frozen=True, slots=True)
class EnvelopePreview:
    """What an envelope would be, without any content."""

    facts_available: int
    facts_included: int
    estimated_tokens: int
    quality_tier: QualityTier
    saturation: float
    etag: str
    communities: tuple[str, ...]
    """Labels."""
    memory_tier_hit: int
    token_budget: int
    caps: tuple[TierCap, ...]
    warnings: tuple[str, ...]
    revisions: Mapping[UUID, int]
    headers: Mapping[str, str]
    """Of the Context Relay Protocol."""


@dataclass(frozen=True, slots=True)
class IssuedEnvelope:
    """An envelope that was issued, built again as of its revisions and compared with what was issued then."""

    envelope_id: UUID
    created_at: datetime
    created_by: str
    query: str
    replay: Replay
    envelope: Envelope | None
    """As it is built now; None if it cannot be."""
    issued_sha256: str
    """Of the envelope as it was issued, in hex."""
    fact_ids: tuple[UUID, ...]
    """That it held, in their order."""
    missing_fact_ids: tuple[UUID, ...]
    """Of those, what is not there any more."""
    parent_envelope_id: UUID | None
    """The window before; None: there was none."""
    audit_record_id: UUID | None
    quality_tier: QualityTier
    """As issued."""
    window_number: int
    revisions: Mapping[UUID, int]
