"""Facts: single assertions, each with a vector, a source and a life cycle of its own.

    ACTIVE ──> STALE         its time to live is over, its source has changed, or a caller says so
    ACTIVE ──> DELETED       its source was removed, or a caller says so
    ACTIVE ──> QUARANTINED   it led to fabrications
    STALE ──> ACTIVE         its source states it again
    STALE ──> DELETED        cleaned up
    QUARANTINED ──> ACTIVE   a signed review lifts the quarantine

A fact's community and its accesses are stored beside it, because they change without it. `FoundFact` is a fact together
with them, as a caller gets it.

A time to live is an ISO 8601 duration such as `P90D`, `PT12H` or `P1Y6M`. Years and months are counted by the calendar.
"""

from __future__ import annotations

import calendar
import enum
import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.kernel.errors import BadInput, NotReady
from drillcore_server.storage.ids import CommunityId, CorpusId, DocumentId, FactId, NodeId, PrincipalId, SourceId, Span

_WHOLE: Final = "[0-9]{1,9}"
_NUMBER: Final = rf"({_WHOLE}(?:[.,][0-9]{{1,6}})?)"
_DURATION: Final = re.compile(
    rf"P(?=.)(?:{_NUMBER}Y)?(?:{_NUMBER}M)?(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?:T(?=.)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
)
_FRACTION_BEFORE_THE_LAST: Final = re.compile(r"[.,][0-9]+[A-Z].")
_LAST: Final = datetime.max.replace(tzinfo=UTC)
_MICROSECONDS: Final = (604_800_000_000, 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000)
"""The lengths of a week, a day, an hour, a minute and a second."""


def check_duration(text: str, field: str) -> None:
    """Raises `BadInput` unless the text is a duration longer than zero. Only its last number may have a fraction."""
    if not _DURATION.fullmatch(text) or _FRACTION_BEFORE_THE_LAST.search(text):
        message = f"{field} must be an ISO 8601 duration such as P90D or PT12H, and not negative"
        raise BadInput(Reason.INVALID_DURATION, message, field=field)
    if not any(_numbers(text)):
        raise BadInput(Reason.INVALID_DURATION, f"{field} must be longer than nothing", field=field)


def add_duration(start: datetime, duration: str) -> datetime:
    """Adds a checked duration to a time. The result is always later; at most it is the latest time that exists."""
    years, months, *shorter = _numbers(duration)
    microseconds = sum(number * unit for number, unit in zip(shorter, _MICROSECONDS, strict=True))
    try:
        moved = _months_later(start, 12 * years + months)
        return moved + timedelta(microseconds=round(microseconds))
    except (OverflowError, ValueError):
        return _LAST


def _months_later(start: datetime, months: Fraction) -> datetime:
    """Adds whole months by the calendar, and for a fraction that share of the following month."""
    whole = int(months)
    moved = _whole_months_later(start, whole)
    if months == whole:
        return moved
    return moved + (_whole_months_later(start, whole + 1) - moved) * float(months - whole)


def _whole_months_later(start: datetime, months: int) -> datetime:
    """The same day of a later month, or the last day if that month is shorter."""
    years, month = divmod(start.month - 1 + months, 12)
    year = start.year + years
    day = min(start.day, calendar.monthrange(year, month + 1)[1])
    return start.replace(year=year, month=month + 1, day=day)


def _numbers(text: str) -> list[Fraction]:
    """The numbers of years, months, weeks, days, hours, minutes and seconds."""
    found = _DURATION.fullmatch(text)
    assert found is not None, "`check_duration` has accepted it"
    return [Fraction((number or "0").replace(",", ".")) for number in found.groups()]


TOKENS_MIN: Final = 10
TOKENS_MAX: Final = 2_048
FACTS_MAX: Final = 1_000
"""Facts that one call puts, reads or changes."""
LOCATION_CHARACTERS_MAX: Final = 1_000
REASON_CHARACTERS_MAX: Final = 1_000


class FactStatus(enum.IntEnum):
    """The numbers are those of the protocol. They are stored."""

    ACTIVE = 1
    STALE = 2
    DELETED = 3
    QUARANTINED = 4


SEARCHED_STATUSES: Final = frozenset({FactStatus.ACTIVE, FactStatus.STALE})
"""The statuses of facts that a search may find."""
_TRANSITIONS: Final[Mapping[FactStatus, frozenset[FactStatus]]] = {
    FactStatus.ACTIVE: frozenset({FactStatus.STALE, FactStatus.DELETED, FactStatus.QUARANTINED}),
    FactStatus.STALE: frozenset({FactStatus.ACTIVE, FactStatus.DELETED}),
    FactStatus.QUARANTINED: frozenset({FactStatus.ACTIVE}),
    FactStatus.DELETED: frozenset(),
}


class FactChange(enum.IntFlag):
    """What a revision did to a fact. The numbers are stored."""

    ADDED = 1
    CONTENT = 2
    """The content changed, and with it the vector."""
    STATUS = 4
    DETAILS = 8
    """The weight, location, metadata, time to live or chunk changed."""
    ARCHIVED = 16
    RESTORED = 32
    ERASED = 64
    VECTOR = 128
    """Only the vector changed: another model made a new one."""


@dataclass(frozen=True, slots=True)
class Fact:
    id: FactId
    content: str
    content_hash: str
    """SHA-256 of the content's UTF-8 bytes, in hex."""
    tokens: int
    source: SourceId
    source_location: str
    """Where in the source it is: a page, a paragraph, a URL fragment."""
    importance: float
    """From 0 to 1."""
    ingested_at: datetime
    modified_at: datetime
    created_by: PrincipalId
    metadata: Mapping[str, str]
    status: FactStatus = FactStatus.ACTIVE
    status_reason: str = ""
    """The reason that the caller gave for the last change of the status."""
    ttl: str = ""
    """Time to live: an ISO 8601 duration counted from `ingested_at`. Empty: it does not expire."""
    chunk: NodeId | None = None
    """The chunk that states it. If the source has changed since, this is a chunk of an earlier revision."""
    document: DocumentId | None = None
    span: Span | None = None
    """Its place in the document's text."""
    embedding_model: str = ""
    """The model that made its vector when it was stored."""
    archived_at: datetime | None = None
    version: int = 1
    titles: tuple[str, ...] = ()
    """The title of its document and the headings above it. Searches use them too. Empty without a chunk."""
    passage: int | None = None
    """Which raw of its chunk its span begins in. None without a chunk or a span."""
    leads: tuple[Span, ...] = ()
    """The spans of its introductions in the document, outermost first. An introduction is text that it depends on."""
    lead_characters: int = 0
    """How many characters at the beginning of its content are taken from its introductions."""

    @property
    def expires_at(self) -> datetime | None:
        return add_duration(self.ingested_at, self.ttl) if self.ttl else None

    @property
    def is_searched(self) -> bool:
        """Whether it is in the search index."""
        return self.status in SEARCHED_STATUSES and self.archived_at is None

    def moved(self, status: FactStatus, reason: str, at: datetime) -> Fact:
        """The fact with another status. Raises `NotReady` (ILLEGAL_TRANSITION) if that change is not allowed."""
        check_transition(self.status, status)
        return replace(self, status=status, status_reason=reason, modified_at=at, version=self.version + 1)

    def archived(self, at: datetime) -> Fact:
        """The fact outside the search index, until it is restored."""
        return replace(self, archived_at=at, modified_at=at, version=self.version + 1)

    def restored(self, at: datetime) -> Fact:
        return replace(self, archived_at=None, modified_at=at, version=self.version + 1)

    def age(self, now: datetime) -> timedelta:
        return now - self.ingested_at


@dataclass(frozen=True, slots=True)
class ChangedFact:
    """A fact before and after a change."""

    before: Fact | None
    """None for a new fact."""
    after: Fact
    what: FactChange
    vector: bytes | None = None
    """The vector of the new content. None if the content stays."""


def check_importance(importance: float | None, what: str) -> None:
    if importance is not None and not (math.isfinite(importance) and 0 <= importance <= 1):
        message = f"{what}: importance_weight must be a number from 0 to 1"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="importance_weight")


def check_location(location: str, what: str) -> None:
    if len(location) > LOCATION_CHARACTERS_MAX:
        message = f"{what}: source_location must have at most {LOCATION_CHARACTERS_MAX} characters"
        raise BadInput(Reason.TOO_LARGE, message, field="source_location")


def check_tokens(tokens: int, what: str) -> None:
    if tokens < TOKENS_MIN:
        message = f"{what} has {tokens} tokens; a fact needs at least {TOKENS_MIN}: say more, or merge two facts"
        raise BadInput(Reason.FACT_TOO_SHORT, message, field="content")
    if tokens > TOKENS_MAX:
        message = f"{what} has {tokens} tokens; a fact has at most {TOKENS_MAX}: add it as a document instead"
        raise BadInput(Reason.FACT_TOO_LONG, message, field="content")


def check_transition(before: FactStatus, after: FactStatus) -> None:
    if after not in _TRANSITIONS[before]:
        legal = ", ".join(sorted(status.name for status in _TRANSITIONS[before])) or "nothing"
        message = f"a fact that is {before.name} can become {legal}, not {after.name}"
        raise NotReady(Reason.ILLEGAL_TRANSITION, message)


def fact_hash(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


_OVERHEAD_BYTES: Final = 800
"""A generous guess of what ids, times, hashes and numbers take in an answer."""


@dataclass(frozen=True, slots=True)
class FoundFact:
    """A fact as a caller gets it."""

    fact: Fact
    corpus: CorpusId
    access_count: int = 0
    last_accessed_at: datetime | None = None
    community: CommunityId | None = None
    community_label: str = ""
    embedding: tuple[float, ...] = ()
    embedding_model: str = ""
    session_only: bool = False

    @property
    def id(self) -> FactId:
        return self.fact.id

    @property
    def size_bytes(self) -> int:
        """About how much of an answer it takes."""
        fact = self.fact
        texts = [fact.content, fact.source, fact.source_location, fact.status_reason, self.community_label]
        texts += [*fact.metadata, *fact.metadata.values()]
        return _OVERHEAD_BYTES + 4 * sum(map(len, texts)) + 4 * len(self.embedding)


@dataclass(frozen=True, slots=True)
class FactFilters:
    """A fact must pass every filter that is set. It passes a filter with one of its values; metadata must match all."""

    sources: frozenset[SourceId] = frozenset()
    statuses: frozenset[FactStatus] = frozenset()
    communities: frozenset[CommunityId] = frozenset()
    metadata: Mapping[str, str] = field(default_factory=dict)
    ingested_after: datetime | None = None
    ingested_before: datetime | None = None
    documents: frozenset[DocumentId] = frozenset()
    chunks: frozenset[NodeId] = frozenset()

    @property
    def is_beyond_indexes(self) -> bool:
        """Whether only the facts themselves tell if they pass."""
        return bool(self.statuses or self.metadata or self.ingested_after or self.ingested_before)

    def allows(self, fact: Fact, community: CommunityId | None) -> bool:
        return (
            (not self.sources or fact.source in self.sources)
            and (not self.statuses or fact.status in self.statuses)
            and (not self.communities or community in self.communities)
            and (not self.documents or fact.document in self.documents)
            and (not self.chunks or fact.chunk in self.chunks)
            and self.metadata.items() <= fact.metadata.items()
            and (self.ingested_after is None or fact.ingested_at >= self.ingested_after)
            and (self.ingested_before is None or fact.ingested_at < self.ingested_before)
        )
