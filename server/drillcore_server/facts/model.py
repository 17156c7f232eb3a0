"""ISO 8601 durations, as in `P90D`, `PT12H` or `P1Y6M`. Years and months are counted by the calendar.

Facts: single assertions, each with a vector, a source and a life of its own.

    ACTIVE ──> STALE         its time to live is over, its source has changed, or somebody says so
    ACTIVE ──> DELETED       its source was removed, or somebody says so
    ACTIVE ──> QUARANTINED   it led to fabrications
    STALE ──> ACTIVE         its source says it again
    STALE ──> DELETED        cleaned up
    QUARANTINED ──> ACTIVE   a signed review lifts the quarantine

Where a fact is in a community, and how often it was read, is not part of it: both change without it.

Facts as a caller gets them, and what a caller asks for.
"""

from __future__ import annotations

import calendar
import enum
import hashlib
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
"""Of a week, a day, an hour, a minute and a second."""


def check_duration(text: str, field: str) -> None:
    """Refuses what is no duration, none at all, or less than none. Only the last number may have a fraction."""
    if not _DURATION.fullmatch(text) or _FRACTION_BEFORE_THE_LAST.search(text):
        message = f"{field} must be an ISO 8601 duration such as P90D or PT12H, and not negative"
        raise BadInput(Reason.INVALID_DURATION, message, field=field)
    if not any(_numbers(text)):
        raise BadInput(Reason.INVALID_DURATION, f"{field} must be longer than nothing", field=field)


def after(start: datetime, duration: str) -> datetime:
    """The moment a duration after another; the last one there is if it would be later. Always a later one."""
    years, months, *shorter = _numbers(duration)
    microseconds = sum(number * unit for number, unit in zip(shorter, _MICROSECONDS, strict=True))
    try:
        moved = _months_later(start, 12 * years + months)
        return moved + timedelta(microseconds=round(microseconds))
    except (OverflowError, ValueError):
        return _LAST


def _months_later(start: datetime, months: Fraction) -> datetime:
    """Whole months by the calendar; of the rest, its share of the month that follows."""
    whole = int(months)
    moved = _whole_months_later(start, whole)
    if months == whole:
        return moved
    return moved + (_whole_months_later(start, whole + 1) - moved) * float(months - whole)


def _whole_months_later(start: datetime, months: int) -> datetime:
    """The same day of a later month, or the last one that month has."""
    years, month = divmod(start.month - 1 + months, 12)
    year = start.year + years
    day = min(start.day, calendar.monthrange(year, month + 1)[1])
    return start.replace(year=year, month=month + 1, day=day)


def _numbers(text: str) -> list[Fraction]:
    """Years, months, weeks, days, hours, minutes and seconds."""
    found = _DURATION.fullmatch(text)
    assert found is not None, "checked when it came"
    return [Fraction((one or "0").replace(",", ".")) for one in found.groups()]


TOKENS_MIN: Final = 10
TOKENS_MAX: Final = 2_048
FACTS_MAX: Final = 1_000
"""Put, read or changed by one call."""
LOCATION_CHARACTERS_MAX: Final = 1_000
REASON_CHARACTERS_MAX: Final = 1_000


class FactStatus(enum.IntEnum):
    """Numbers are those of the protocol, and are stored."""

    ACTIVE = 1
    STALE = 2
    DELETED = 3
    QUARANTINED = 4


FOUND: Final = frozenset({FactStatus.ACTIVE, FactStatus.STALE})
"""What a search may find."""
_TRANSITIONS: Final[Mapping[FactStatus, frozenset[FactStatus]]] = {
    FactStatus.ACTIVE: frozenset({FactStatus.STALE, FactStatus.DELETED, FactStatus.QUARANTINED}),
    FactStatus.STALE: frozenset({FactStatus.ACTIVE, FactStatus.DELETED}),
    FactStatus.QUARANTINED: frozenset({FactStatus.ACTIVE}),
    FactStatus.DELETED: frozenset(),
}


class FactChange(enum.IntFlag):
    """What a revision did to a fact. Numbers are stored."""

    ADDED = 1
    CONTENT = 2
    """And with it its vector."""
    STATUS = 4
    DETAILS = 8
    """Weight, location, metadata, time to live, or the chunk it is tied to."""
    ARCHIVED = 16
    RESTORED = 32
    ERASED = 64
    VECTOR = 128
    """Its vector alone: another model made it anew."""


@dataclass(frozen=True, slots=True)
class Fact:
    id: FactId
    content: str
    content_hash: str
    """SHA-256 of the content's UTF-8 bytes, in hex."""
    tokens: int
    source: SourceId
    source_location: str
    """Page, paragraph, URL fragment: whatever leads there."""
    importance: float
    """0 to 1."""
    ingested_at: datetime
    modified_at: datetime
    created_by: PrincipalId
    metadata: Mapping[str, str]
    status: FactStatus = FactStatus.ACTIVE
    status_reason: str = ""
    """Of the last change of its status, in the words of whoever made it."""
    ttl: str = ""
    """ISO 8601 duration, counted from `ingested_at`; empty for none."""
    chunk: NodeId | None = None
    """It was drawn from; of an earlier revision if the source has changed since."""
    document: DocumentId | None = None
    span: Span | None = None
    """Of the document's text."""
    embedding_model: str = ""
    """That made its vector when it was stored."""
    archived_at: datetime | None = None
    version: int = 1
    titles: tuple[str, ...] = ()
    """Of its document, and the headings above it, by which it is found too; none without a chunk."""
    passage: int | None = None
    """The place of the raw that its span begins in, among those of its chunk; None without a chunk or span."""
    leads: tuple[Span, ...] = ()
    """Where in its document stands what introduces it, the outermost first."""
    lead_characters: int = 0
    """Of its content, at the beginning, that are taken from there."""

    @property
    def expires_at(self) -> datetime | None:
        return after(self.ingested_at, self.ttl) if self.ttl else None

    @property
    def is_searched(self) -> bool:
        """Whether it is in the search index."""
        return self.status in FOUND and self.archived_at is None

    def moved(self, status: FactStatus, reason: str, at: datetime) -> Fact:
        """At another status. Raises `NotReady` if that is no legal transition."""
        check_transition(self.status, status)
        return replace(self, status=status, status_reason=reason, modified_at=at, version=self.version + 1)

    def archived(self, at: datetime) -> Fact:
        """Out of the search index, until it is restored."""
        return replace(self, archived_at=at, modified_at=at, version=self.version + 1)

    def restored(self, at: datetime) -> Fact:
        return replace(self, archived_at=None, modified_at=at, version=self.version + 1)

    def age(self, now: datetime) -> timedelta:
        return now - self.ingested_at


def check_transition(before: FactStatus, after: FactStatus) -> None:
    if after not in _TRANSITIONS[before]:
        legal = ", ".join(sorted(one.name for one in _TRANSITIONS[before])) or "nothing"
        message = f"a fact that is {before.name} can become {legal}, not {after.name}"
        raise NotReady(Reason.ILLEGAL_TRANSITION, message)


def fact_hash(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


_OVERHEAD_BYTES: Final = 800
"""Of ids, times, hashes and numbers in an answer: a generous guess."""


@dataclass(frozen=True, slots=True)
class FoundFact:
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
        """About what it takes in an answer."""
        fact = self.fact
        texts = [fact.content, fact.source, fact.source_location, fact.status_reason, self.community_label]
        texts += [*fact.metadata, *fact.metadata.values()]
        return _OVERHEAD_BYTES + 4 * sum(map(len, texts)) + 4 * len(self.embedding)


@dataclass(frozen=True, slots=True)
class FactFilters:
    """Every filter that is set must hold; within one, any of its values will do, but metadata must have all."""

    sources: frozenset[SourceId] = frozenset()
    statuses: frozenset[FactStatus] = frozenset()
    communities: frozenset[CommunityId] = frozenset()
    metadata: Mapping[str, str] = field(default_factory=dict)
    ingested_after: datetime | None = None
    ingested_before: datetime | None = None
    documents: frozenset[DocumentId] = frozenset()
    chunks: frozenset[NodeId] = frozenset()

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
