"""The source registry: where documents come from, and which content each source had last."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from drillcore_server.domain.ids import ContentHash, DocumentId, SourceId


@dataclass(frozen=True, slots=True)
class Source:
    id: SourceId
    version: int
    """1 for the first content, one more with each change."""
    document: DocumentId | None
    """The document that holds its content now; None after it was removed."""
    content_hash: ContentHash
    first_seen_at: datetime
    changed_at: datetime
