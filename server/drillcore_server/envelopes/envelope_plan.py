"""What is decided before an envelope is built, and what is kept of one that was issued."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from drillcore_server.envelopes.model import Budget, GroundingMode, QualityTier, RenderFormat, Weights
from drillcore_server.facts.model import FactFilters
from drillcore_server.facts.session_store import OwnSession
from drillcore_server.kernel.corpus_at_revision import AsOf
from drillcore_server.storage.ids import (
    CommunityId,
    CorpusId,
    CorpusNumber,
    EnvelopeId,
    FactId,
    PrincipalId,
    RecordId,
    Revision,
)

HASH_BYTES = 8
"""Of what a fact says, to know whether it says the same."""
OF_SESSION: Final = 255
"""Instead of the place of a fact's corpus: it is of the session. There are never so many corpora."""


@dataclass(frozen=True, slots=True)
class EnvelopePlan:
    """A question with everything that settings decide: what is built depends on this, the store and the session."""

    query: str
    sub_queries: tuple[str, ...]
    time_sensitive: bool
    corpora: tuple[CorpusId, ...]
    """None: all that the caller may read."""
    filters: FactFilters
    mode: GroundingMode
    format: RenderFormat
    policy: str
    weights: Weights
    relevance_floor: float
    duplicate_similarity: float
    per_query: int
    """Candidates of each sub-query, by vectors and by words."""
    budget: Budget
    model: str
    """Whose tokenizer counts."""
    tokenizer: str
    """Its fingerprint: another one under the same name counts otherwise."""
    session: str
    exact: bool
    as_of: AsOf
    window_facts: tuple[FactId, ...]
    memory_tier_max: int
    day: int
    """That ages are counted from, as `date.toordinal` has it."""
    max_age_s: int | None = None
    only_if_ckf: bool = False

    @property
    def sought(self) -> tuple[str, ...]:
        """What is looked for: the parts of the question, and the whole of it last."""
        return (*(one for one in self.sub_queries if one != self.query), self.query)

    @property
    def ranked_on(self) -> date:
        return date.fromordinal(self.day)

    @property
    def max_age(self) -> timedelta | None:
        return None if self.max_age_s is None else timedelta(seconds=self.max_age_s)

    @property
    def has_session(self) -> bool:
        """Whether facts of the session are looked at: at an earlier moment there were none."""
        return bool(self.session) and self.as_of == AsOf()


@dataclass(frozen=True, slots=True)
class CorpusAt:
    """A corpus as an envelope saw it."""

    corpus: CorpusId
    revision: Revision
    head: Revision
    """At that time: an erasure since changes what an earlier revision says, and moves the head."""
    number: CorpusNumber


@dataclass(frozen=True, slots=True)
class SeenFact:
    """A fact that was packed in a chain of windows, and what it said."""

    id: FactId
    hashed: bytes


@dataclass(frozen=True, slots=True)
class IssuedEnvelope:
    """Ids and numbers, and the question: enough to go on with it, and to build it again."""

    id: EnvelopeId
    principal: PrincipalId
    at: datetime
    record: RecordId
    """The audit record of the call."""
    plan: EnvelopePlan
    corpora: tuple[CorpusAt, ...]
    digest: bytes
    """SHA-256 of the envelope as it was sent."""
    etag: str
    tier: QualityTier
    window: int
    facts: tuple[SeenFact, ...]
    """In their order."""
    seen: tuple[SeenFact, ...]
    """Of the windows before."""
    deferred: tuple[FactId, ...]
    chain: str
    """The session that its windows belong to: the caller's, or one that was made for it."""
    strategy: str
    parent: EnvelopeId | None = None
    with_session_facts: bool = False
    with_answer: bool = False
    """Whether it holds a summary of what the model said, which is not kept."""
    is_salted: bool = False
    tiers: tuple[QualityTier, ...] = ()
    """Of the session's windows before it."""
    warm: tuple[CommunityId, ...] = ()
    """Of the communities that the session had used before, those that matter here."""
    changes_at: datetime | None = None
    """When a fact in it grows older than max-age allows: the same question may have another answer then."""
    question: bytes = b""
    """A hash of what was asked for."""
    remembered: bytes = b""
    """A hash of what the session had that changes it."""
    origins: bytes = b""
    """Of each of its facts the place of its corpus among the corpora, or `OF_SESSION`; a byte each."""

    def stored(self) -> list[tuple[CorpusAt, FactId]]:
        """Those of its facts that are of the store, in their order, each with its corpus."""
        placed = zip(self.facts, self.origins, strict=True)
        return [(self.corpora[origin], fact.id) for fact, origin in placed if origin != OF_SESSION]

    def facts_of(self, corpus: CorpusId) -> list[FactId]:
        """Those that are of one corpus."""
        return [fact for at, fact in self.stored() if at.corpus == corpus]


@dataclass(frozen=True, slots=True)
class WindowQuality:
    envelope: EnvelopeId
    tier: QualityTier


@dataclass(frozen=True, slots=True)
class EnvelopeSession:
    """What is known of a session that envelopes are packed in. No content."""

    own: OwnSession
    ends_at: datetime
    salt: bytes
    """Of etags that tell nothing to who compares sessions."""
    history: tuple[WindowQuality, ...] = ()
    warm: tuple[CommunityId, ...] = ()
    """Communities that its envelopes used."""

    def is_over(self, now: datetime) -> bool:
        return now >= self.ends_at
