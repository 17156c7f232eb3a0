"""Sources: where documents and facts come from, and the latest content of each source."""

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
    """The numbers are those of the protocol."""

    ACTIVE = 1
    UPDATED = 2
    """Its content has changed since the first version."""
    REMOVED = 3
    """Its document was removed."""


@dataclass(frozen=True, slots=True)
class Source:
    id: SourceId
    version: int
    """1 for the first content, one more with each change. 0 while the source has facts but never had a document."""
    document: DocumentId | None
    """The document with the source's content; None before the first document and after its removal."""
    content_hash: str
    first_seen_at: datetime
    changed_at: datetime
    title: str = ""
    uri: str = ""
    """The source's address, if its id or its metadata give one."""
    source_type: SourceType | None = None
    """None if the source was registered before sources had types."""
    fact_count: int = 0
    """How many facts the source has that are not deleted."""

    @property
    def status(self) -> SourceStatus:
        if self.document is None and self.version:
            return SourceStatus.REMOVED
        return SourceStatus.UPDATED if self.version > 1 else SourceStatus.ACTIVE

    def without_document(self, at: datetime) -> Source:
        """The source after its document was removed."""
        return replace(self, document=None, content_hash="", changed_at=at)


def next_version(known: Source | None, document: Document, at: datetime) -> Source:
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


def source_without_document(source: SourceId, at: datetime) -> Source:
    """A new source that has facts before it has a document."""
    return Source(source, 0, None, "", at, at, "", uri_of(source, {}), SourceType.USER)


def description_of(source: Source | None) -> SourceDescription:
    """The description that weighs facts of a source. An unknown source, or one without a type, counts as the user."""
    if source is None:
        return SourceDescription(SourceType.USER)
    return SourceDescription(source.source_type or SourceType.USER, source.uri, source.title)


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
class SourceDescription:
    """What is known about a source."""

    type: SourceType
    uri: str = ""
    title: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


def describe(source: SourceId, title: str, metadata: Mapping[str, str]) -> SourceDescription:
    """Describes a document's source. Raises `BadInput` if the metadata names an unknown source type."""
    uri = uri_of(source, metadata)
    return SourceDescription(source_type(uri, metadata), uri, title, metadata)


def source_type(uri: str, metadata: Mapping[str, str]) -> SourceType:
    """The type in the metadata; without one, web for sources with a web address, and internal for all others.

    Raises `BadInput` if the metadata names an unknown type.
    """
    named = metadata.get(SOURCE_TYPE)
    if named is None:
        return SourceType.WEB if _is_on_the_web(uri) else SourceType.INTERNAL
    try:
        return SourceType(named)
    except ValueError:
        known = ", ".join(known_type.value for known_type in SourceType)
        message = f"the metadata entry {SOURCE_TYPE} is {named[:50]!r}; it must be one of {known}"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="metadata") from None


def uri_of(source: SourceId, metadata: Mapping[str, str]) -> str:
    """The source's address: from the metadata, else the id if that is an address, else empty."""
    given = next((metadata[name] for name in _URI_ENTRIES if metadata.get(name)), "")
    if given:
        return given
    return source if "://" in source else ""


def _is_on_the_web(uri: str) -> bool:
    return uri.lower().startswith(("http://", "https://"))
