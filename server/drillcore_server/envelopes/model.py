"""The plain data of context envelopes, from candidates to the finished envelope.

    question -> select: Candidates -> rank: Ranked, best first -> pack: Packed, in the order of the text -> Envelope

The same question on the same candidates gives the same envelope.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from drillcore_server.facts.model import Fact
from drillcore_server.storage.ids import CommunityId, CorpusId, DocumentId, FactId, NodeId, Revision, SourceId, Span

SCORE_DIGITS: Final = 6
"""Scores are rounded to this many digits before they are compared. Of equal scores, the smaller id comes first."""
CRITICAL_IMPORTANCE: Final = 0.90
"""A fact with at least this importance is critical."""
WINDOWS_MAX_DEFAULT: Final = 5
MEMORY_TIER_WINDOW: Final = 0
"""The caller's own context window has the fact."""
MEMORY_TIER_SESSION: Final = 1
"""The session has the fact: put there, or left over from an earlier window."""
MEMORY_TIER_WARM: Final = 2
"""The fact is in a community that the session's envelopes used before."""
MEMORY_TIER_STORE: Final = 3
"""Only the store has the fact."""


class QualityTier(enum.IntEnum):
    """The numbers are those of the protocol, and are stored. Smaller is better."""

    S = 1
    A = 2
    B = 3
    C = 4
    D = 5


class GroundingMode(enum.IntEnum):
    """The numbers are those of the protocol."""

    CONTEXT_STRICT = 1
    CONTEXT_PREFERRED = 2
    OPEN = 3

    @property
    def header(self) -> str:
        """The name as the Context Relay Protocol writes it."""
        return self.name.lower().replace("_", "-")


class RenderFormat(enum.IntEnum):
    """The numbers are those of the protocol."""

    MARKDOWN = 1
    XML = 2
    JSON = 3


class FoundBy(enum.Enum):
    """The search that found a candidate."""

    VECTORS = "vectors"
    WORDS = "words"
    SECTIONS = "sections"
    COMMUNITY = "community"
    SESSION = "session"
    DEFERRED = "deferred"
    ANSWER = "answer"


class Outcome(enum.Enum):
    """What became of a candidate."""

    INCLUDED = "included"
    DUPLICATE = "duplicate"
    OVER_BUDGET = "over-budget"
    IN_WINDOW = "in-window"
    SEEN = "seen"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fact that may be packed, with everything that ranking needs."""

    id: FactId
    corpus: CorpusId
    content: str
    source: SourceId
    importance: float
    ingested_at: datetime
    relevance: float
    """From 0 to 1 by the scoring policy; rounded."""
    vector: npt.NDArray[np.float32]
    """A vector of length 1. Candidates of different models are never compared."""
    model: str
    """The embedding model that made the vector."""
    stale: bool = False
    """Whether the fact has the status STALE or is older than max-age."""
    community: CommunityId | None = None
    community_label: str = ""
    found_by: tuple[FoundBy, ...] = ()
    memory_tier: int = MEMORY_TIER_STORE
    """The lowest tier that has the fact."""
    version: int = 1
    session_only: bool = False
    """Whether the fact belongs to the caller's session and not to the corpus."""
    is_answer: bool = False
    """Whether this is no fact of the store, but a summary of the model's answer in the window before."""
    document: DocumentId | None = None
    """The document that the fact was drawn from."""
    lead: str = ""
    """The introduction: words of the document, on one line, with which the content begins, before a space."""
    fact: Fact | None = None
    """The fact itself; None for an answer of the model."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of the parts of the composite score. They sum to 1."""

    relevance: float
    importance: float
    freshness: float
    diversity: float
    horizon_days: int
    """The age at which a fact has no freshness left."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate with its scores, in the order from best to worst."""

    candidate: Candidate
    composite: float
    freshness: float
    diversity: float


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A candidate that says the same as a better candidate."""

    ranked: Ranked
    of: FactId
    """The better candidate."""


@dataclass(frozen=True, slots=True)
class Ranking:
    kept: tuple[Ranked, ...]
    duplicates: tuple[Duplicate, ...] = ()


@dataclass(frozen=True, slots=True)
class Packed:
    """A fact at its place in the text."""

    ranked: Ranked
    position: int
    """Counts from 1, and is the number by which the text cites the fact."""
    tokens: int
    """The tokens of its part of the text."""


@dataclass(frozen=True, slots=True)
class Packing:
    """The facts that were packed, in the order of the text, and those that did not fit, best first."""

    included: tuple[Packed, ...]
    excluded: tuple[Ranked, ...]
    """Facts for which no tokens were left."""
    tokens: int
    """The tokens of the whole text, counted at the end."""
    text: str
    wanted: tuple[int, ...] = ()
    """The least number of tokens that each excluded fact would have taken; 0 if it was not tried, because hardly any
    tokens were left."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The tokens that the envelope may have, and what was subtracted from the context window for other parts."""

    tokens: int
    context_window: int = 0
    """0 if the caller gave the budget itself. The parts below are then 0 too."""
    system_prompt: int = 0
    """Includes the grounding instruction."""
    query: int = 0
    expected_response: int = 0
    safety_margin: int = 0


@dataclass(frozen=True, slots=True)
class TierCap:
    """Why an envelope cannot have a better tier."""

    tier: QualityTier
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Quality:
    tier: QualityTier
    score: float
    coverage: float
    saturation: float
    relevance_mean: float
    caps: tuple[TierCap, ...] = ()
    """Every cap that applied, also those that another cap was stricter than."""


@dataclass(frozen=True, slots=True)
class RawSpan:
    raw: NodeId
    span: Span


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a fact comes from, down to the characters of the original document."""

    source: SourceId
    location: str = ""
    document: DocumentId | None = None
    document_title: str = ""
    chunk: NodeId | None = None
    span: Span | None = None
    raws: tuple[RawSpan, ...] = ()
    leads: tuple[Span, ...] = ()
    """The places of the fact's introduction in the document."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """The part of an answer that does not differ from call to call."""

    session: str
    window: int
    packing: Packing
    provenance: Mapping[FactId, Provenance]
    available: int
    budget: Budget
    quality: Quality
    etag: str
    strategy: str
    mode: GroundingMode
    communities: tuple[str, ...]
    """The labels of the communities of the packed facts, the most relevant first."""
    memory_tier_hit: int
    warnings: tuple[str, ...]
    sub_queries: tuple[str, ...]
    time_sensitive: bool
    instruction: str
    """For the system prompt; empty in open mode."""
    format: RenderFormat
    revisions: Mapping[CorpusId, Revision]
    policy: str
    weights: Weights
    relevance_floor: float
    exact: bool
    ranked_on: date
    tokenizer: str
    deferred: tuple[FactId, ...] = ()
    """Relevant facts that are left for the next window."""
    explained: Sequence[CandidateOutcome] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class CandidateOutcome:
    """What became of a candidate, and why."""

    candidate: Candidate
    outcome: Outcome
    composite: float = 0.0
    detail: str = ""
    """For a duplicate, the id of the better candidate."""
    tokens: int = 0
    position: int = 0
