"""The source registry: where documents and facts come from, and which content each source had last."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.hierarchy.model import Document
from drillcore_server.kernel.errors import BadInput
from drillcore_server.storage.ids import DocumentId, SourceId


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


SOURCE_TYPE: Final = "source_type"
"""The entry of a document's metadata that names the type of its source."""


_URI_ENTRIES: Final = ("uri", "url")


class SourceType(enum.Enum):
    REGULATORY = "regulatory"
    OFFICIAL = "official"
    RESEARCH = "research"
    INTERNAL = "internal"
    WEB = "web"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Described:
    """What is known of a source."""

    type: SourceType
    uri: str = ""
    title: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


def describe(source: SourceId, title: str, metadata: Mapping[str, str]) -> Described:
    """A document's source. Raises `BadInput` if its metadata names a type that there is not."""
    uri = uri_of(source, metadata)
    return Described(source_type(uri, metadata), uri, title, metadata)


def source_type(uri: str, metadata: Mapping[str, str]) -> SourceType:
    """What the metadata says; else web for what is on the web, and internal for the rest. Raises `BadInput`."""
    named = metadata.get(SOURCE_TYPE)
    if named is None:
        return SourceType.WEB if _is_on_the_web(uri) else SourceType.INTERNAL
    try:
        return SourceType(named)
    except ValueError:
        known = ", ".join(one.value for one in SourceType)
        message = f"its metadata has the {SOURCE_TYPE} {named[:50]!r}, which is none of {known}"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="metadata") from None


def uri_of(source: SourceId, metadata: Mapping[str, str]) -> str:
    """Where a source is, if its metadata or its id say so."""
    given = next((metadata[name] for name in _URI_ENTRIES if metadata.get(name)), "")
    if given:
        return given
    return source if "://" in source else ""


def _is_on_the_web(uri: str) -> bool:
    return uri.lower().startswith(("http://", "https://"))
