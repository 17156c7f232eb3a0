"""The source registry: where documents and facts come from, and which content each source had last."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from drillcore_server.domain.facts import Fact, FactStatus
from drillcore_server.domain.ids import DocumentId, SourceId
from drillcore_server.domain.importance import Described, SourceType, describe, uri_of
from drillcore_server.domain.nodes import Document

SOURCE_CHARACTERS_MAX: Final = 1_000
"""Of a source's id."""


class SourceStatus(enum.IntEnum):
    """Numbers are those of the protocol."""

    ACTIVE = 1
    UPDATED = 2
    """Its content has changed since the first version."""
    REMOVED = 3
    """Its document was removed."""


@dataclass(frozen=True, slots=True)
class Source:
    id: SourceId
    version: int
    """1 for the first content, one more with each change; 0 while only facts were put of it, and no document."""
    document: DocumentId | None
    """The document that holds its content now; None after it was removed."""
    content_hash: str
    first_seen_at: datetime
    changed_at: datetime
    title: str = ""
    uri: str = ""
    """Where it is, if its id or its metadata say so."""
    source_type: SourceType | None = None
    """None where it was registered before sources had types."""
    fact_count: int = 0
    """Facts of it that are not deleted."""

    @property
    def status(self) -> SourceStatus:
        if self.document is None and self.version:
            return SourceStatus.REMOVED
        return SourceStatus.UPDATED if self.version > 1 else SourceStatus.ACTIVE

    def left(self, at: datetime) -> Source:
        """After its document was removed."""
        return replace(self, document=None, content_hash="", changed_at=at)


def succeeding(known: Source | None, document: Document, at: datetime) -> Source:
    """The source with this document as its next version."""
    version, first_seen_at = (known.version + 1, known.first_seen_at) if known else (1, at)
    described = describe(document.source, document.title, document.metadata)
    return Source(
        document.source,
        version,
        document.id,
        document.content_hash,
        first_seen_at,
        at,
        document.title,
        described.uri,
        described.type,
        known.fact_count if known else 0,
    )


def registered(source: SourceId, at: datetime) -> Source:
    """A source that facts are put of before any document."""
    return Source(source, 0, None, "", at, at, "", uri_of(source, {}), SourceType.USER)


def described_as(source: Source | None) -> Described:
    """What a fact that is put of a source weighs by; what nobody knows is the user's word."""
    if source is None:
        return Described(SourceType.USER)
    return Described(source.source_type or SourceType.USER, source.uri, source.title)


def counted(before: Fact | None, after: Fact | None) -> int:
    """By how much a change of a fact changes its source's count."""
    return _counts(after) - _counts(before)


def _counts(fact: Fact | None) -> int:
    return int(fact is not None and fact.status is not FactStatus.DELETED)
