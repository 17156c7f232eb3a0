"""The source registry: where documents come from, and which content each source had last."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from drillcore_server.domain.ids import DocumentId, SourceId
from drillcore_server.domain.nodes import Document

SOURCE_CHARACTERS_MAX: Final = 1_000
"""Of a source's id."""


@dataclass(frozen=True, slots=True)
class Source:
    id: SourceId
    version: int
    """1 for the first content, one more with each change."""
    document: DocumentId | None
    """The document that holds its content now; None after it was removed."""
    content_hash: str
    first_seen_at: datetime
    changed_at: datetime

    def left(self, at: datetime) -> Source:
        """After its document was removed."""
        return replace(self, document=None, content_hash="", changed_at=at)


def succeeding(known: Source | None, document: Document, at: datetime) -> Source:
    """The source with this document as its next version."""
    version, first_seen_at = (known.version + 1, known.first_seen_at) if known else (1, at)
    return Source(document.source, version, document.id, document.content_hash, first_seen_at, at)
