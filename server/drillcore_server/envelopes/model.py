"""Context envelopes: what is asked for, what is selected, and what comes out of ranking and packing.

    question -> select: Candidates -> rank: Ranked, best first -> pack: Packed, in their order -> Envelope

All of it is plain data. The same question on the same candidates gives the same envelope.
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
"""Scores are rounded to so many before anything is put in order; ties go to the smaller id."""
CRITICAL_IMPORTANCE: Final = 0.90
WINDOWS_MAX_DEFAULT: Final = 5


class QualityTier(enum.IntEnum):
    """Numbers are those of the protocol, and are stored; the smaller, the better."""

    S = 1
    A = 2
    B = 3
    C = 4
    D = 5


class GroundingMode(enum.IntEnum):
    """Numbers are those of the protocol."""

    CONTEXT_STRICT = 1
    CONTEXT_PREFERRED = 2
    OPEN = 3

    @property
    def header(self) -> str:
        """As the Context Relay Protocol writes it."""
        return self.name.lower().replace("_", "-")


class RenderFormat(enum.IntEnum):
    """Numbers are those of the protocol."""

    MARKDOWN = 1
    XML = 2
    JSON = 3


class FoundBy(enum.Enum):
    """What led to a candidate."""

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
    """A fact that may be packed, with all that ranking asks of it."""

    id: FactId
    corpus: CorpusId
    content: str
    source: SourceId
    importance: float
    ingested_at: datetime
    relevance: float
    """0 to 1, by the scoring policy; rounded."""
    vector: npt.NDArray[np.float32]
    """Of length 1. Candidates of different models are never compared."""
    model: str
    """That made the vector."""
    stale: bool = False
    """By its status, or older than max-age."""
    community: CommunityId | None = None
    community_label: str = ""
    found_by: tuple[FoundBy, ...] = ()
    memory_tier: int = 3
    """The lowest that has it: 0 the caller's window, 1 the session, 2 what the session used before, 3 the store."""
    version: int = 1
    session_only: bool = False
    is_answer: bool = False
    """Not from the store: what the model said in the window before."""
    document: DocumentId | None = None
    """That it was drawn from."""
    lead: str = ""
    """The words of the document that introduce it: its content begins with them and a space. On one line."""
    fact: Fact | None = None
    """The fact itself, if it is one."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Of the parts of the composite score, as they are used: they sum to 1."""

    relevance: float
    importance: float
    freshness: float
    diversity: float
    horizon_days: int
    """After which a fact has no freshness left."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate in its place, best first."""

    candidate: Candidate
    composite: float
    freshness: float
    diversity: float


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A candidate that says the same as one before it."""

    ranked: Ranked
    of: FactId


@dataclass(frozen=True, slots=True)
class Ranking:
    kept: tuple[Ranked, ...]
    duplicates: tuple[Duplicate, ...] = ()


@dataclass(frozen=True, slots=True)
class Packed:
    """A fact in its place in the text."""

    ranked: Ranked
    position: int
    """From 1; also the number it is cited by."""
    tokens: int
    """Of its part of the text."""


@dataclass(frozen=True, slots=True)
class Packing:
    """What went in, in the order of the text, and what did not fit, best first."""

    included: tuple[Packed, ...]
    excluded: tuple[Ranked, ...]
    """For want of room."""
    tokens: int
    """Of the whole text, counted once more."""
    text: str
    wanted: tuple[int, ...] = ()
    """How many tokens each of the excluded would have taken, at least; 0: not looked at, since hardly any were left."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How many tokens the envelope may have, and what was taken off the context window for the rest."""

    tokens: int
    context_window: int = 0
    """0: the budget was said outright, and the parts are nothing."""
    system_prompt: int = 0
    """With the grounding instruction."""
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
    """Every one that applied, whether another was lower or not."""


@dataclass(frozen=True, slots=True)
class RawSpan:
    raw: NodeId
    span: Span


@dataclass(frozen=True, slots=True)
class Provenance:
    """From a fact to the characters of the original document."""

    source: SourceId
    location: str = ""
    document: DocumentId | None = None
    document_title: str = ""
    chunk: NodeId | None = None
    span: Span | None = None
    raws: tuple[RawSpan, ...] = ()
    leads: tuple[Span, ...] = ()
    """Where in the document stands what introduces it."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a caller gets, but for what differs from call to call."""

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
    """Labels, the one with most relevance first."""
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
    """Relevant, and left for the next window."""
    explained: Sequence[Explained] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Explained:
    """What became of one candidate, and why."""

    candidate: Candidate
    outcome: Outcome
    composite: float = 0.0
    detail: str = ""
    tokens: int = 0
    position: int = 0
