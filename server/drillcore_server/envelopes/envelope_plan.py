"""The plan of an envelope, made before it is built; and the records of issued envelopes and their sessions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from drillcore_server.envelopes.model import Budget, GroundingMode, QualityTier, RenderFormat, Weights
from drillcore_server.facts.model import FactFilters
from drillcore_server.facts.session_fact_store import OwnSession
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
"""The length of the hash that tells whether a fact still has the same content."""
SESSION_ORIGIN: Final = 255
"""Stands for the session among the origins of facts. A call never names that many corpora."""


@dataclass(frozen=True, slots=True)
class EnvelopePlan:
    """A question with everything that settings decide. An envelope depends on its plan, the store and the session.

    The names of the fields are part of the fingerprint under which etags are found, so renaming one loses etags.
    """

    query: str
    sub_queries: tuple[str, ...]
    time_sensitive: bool
    corpora: tuple[CorpusId, ...]
    """Empty: all corpora that the caller may read."""
    filters: FactFilters
    mode: GroundingMode
    format: RenderFormat
    policy: str
    weights: Weights
    relevance_floor: float
    duplicate_similarity: float
    per_query: int
    """The candidates to select for each sub-query."""
    budget: Budget
    model: str
    """The language model whose tokenizer counts."""
    tokenizer: str
    """The fingerprint of the tokenizer: another tokenizer of the same name may count differently."""
    session: str
    exact: bool
    as_of: AsOf
    window_facts: tuple[FactId, ...]
    memory_tier_max: int
    day: int
    """The day from which ages are counted, as `date.toordinal` gives it."""
    max_age_s: int | None = None
    only_if_ckf: bool = False

    @property
    def sought(self) -> tuple[str, ...]:
        """The texts to search for: the sub-queries, then the whole question."""
        return (*(sub_query for sub_query in self.sub_queries if sub_query != self.query), self.query)

    @property
    def ranked_on(self) -> date:
        return date.fromordinal(self.day)

    @property
    def max_age(self) -> timedelta | None:
        return None if self.max_age_s is None else timedelta(seconds=self.max_age_s)

    @property
    def has_session(self) -> bool:
        """Whether facts of the session are candidates. An earlier moment of the corpus has none."""
        return bool(self.session) and self.as_of == AsOf()


@dataclass(frozen=True, slots=True)
class CorpusAt:
    """The state of a corpus that an envelope was built on."""

    corpus: CorpusId
    revision: Revision
    head: Revision
    """The head when the envelope was built. An erasure changes what an earlier revision says, and moves the head."""
    number: CorpusNumber


@dataclass(frozen=True, slots=True)
class SeenFact:
    """A fact that was packed in a chain of windows, with a hash of its content then."""

    id: FactId
    hashed: bytes


@dataclass(frozen=True, slots=True)
class IssuedEnvelope:
    """What is stored of an issued envelope: ids, numbers and the question, but no content.

    It is enough to continue the envelope with a further window, and to build it again.
    """

    id: EnvelopeId
    principal: PrincipalId
    at: datetime
    record: RecordId
    """The id of the call's audit record."""
    plan: EnvelopePlan
    corpora: tuple[CorpusAt, ...]
    digest: bytes
    """The SHA-256 of the envelope as it was sent."""
    etag: str
    tier: QualityTier
    window: int
    facts: tuple[SeenFact, ...]
    """The packed facts in the order of the text."""
    seen: tuple[SeenFact, ...]
    """The facts of the windows before."""
    deferred: tuple[FactId, ...]
    """Relevant facts that are left for the next window."""
    chain: str
    """The session that its windows belong to: the caller's, or a session that was made for this chain."""
    strategy: str
    parent: EnvelopeId | None = None
    with_session_facts: bool = False
    with_answer: bool = False
    """Whether it contained a summary of the model's answer, which is not stored."""
    is_salted: bool = False
    tiers: tuple[QualityTier, ...] = ()
    """The tiers of the session's earlier windows."""
    warm: tuple[CommunityId, ...] = ()
    """The communities that the session had used before and that influence this envelope."""
    changes_at: datetime | None = None
    """When a candidate becomes too old for max-age. From then on the same question may have another answer."""
    question: bytes = b""
    """A fingerprint of everything that the caller asked for."""
    remembered: bytes = b""
    """A fingerprint of the session's own facts and of the communities that influence this envelope."""
    origins: bytes = b""
    """A byte for each fact: the place of its corpus among the corpora, or `SESSION_ORIGIN`."""

    def stored(self) -> list[tuple[CorpusAt, FactId]]:
        """Returns the facts that come from the store, in the order of the text, each with its corpus."""
        placed = zip(self.facts, self.origins, strict=True)
        return [(self.corpora[origin], fact.id) for fact, origin in placed if origin != SESSION_ORIGIN]

    def facts_of(self, corpus: CorpusId) -> list[FactId]:
        """Returns the facts that come from one corpus."""
        return [fact for at, fact in self.stored() if at.corpus == corpus]


@dataclass(frozen=True, slots=True)
class WindowQuality:
    envelope: EnvelopeId
    tier: QualityTier


@dataclass(frozen=True, slots=True)
class EnvelopeSession:
    """What is stored of a session in which envelopes are packed. It has no content."""

    own: OwnSession
    ends_at: datetime
    salt: bytes
    """Keys the session's etags, so that etags of different sessions cannot be compared."""
    history: tuple[WindowQuality, ...] = ()
    warm: tuple[CommunityId, ...] = ()
    """The communities of facts that its envelopes contained."""

    def is_over(self, now: datetime) -> bool:
        return now >= self.ends_at
