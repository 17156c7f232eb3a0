"""Facts: single assertions, each with a vector, a source and a life of its own.

    ACTIVE ──> STALE         its time to live is over, its source has changed, or somebody says so
    ACTIVE ──> DELETED       its source was removed, or somebody says so
    ACTIVE ──> QUARANTINED   it led to fabrications
    STALE ──> ACTIVE         its source says it again
    STALE ──> DELETED        cleaned up
    QUARANTINED ──> ACTIVE   a signed review lifts the quarantine

Where a fact is in a community, and how often it was read, is not part of it: both change without it.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.domain.documents import Span
from drillcore_server.domain.durations import after
from drillcore_server.domain.errors import NotReady
from drillcore_server.domain.ids import DocumentId, FactId, NodeId, PrincipalId, SourceId

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
