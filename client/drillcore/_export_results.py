"""What exports of corpora are asked for and return."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from uuid import UUID


class ExportFormat(enum.Enum):
    JSON = "json"
    """Canonical (RFC 8785)."""
    MARKDOWN = "markdown"
    PDF = "pdf"
    """With a PAdES digital signature."""


@dataclass(frozen=True, slots=True)
class ExportResult:
    export_id: UUID
    revision: int
    """Of the corpus, that was exported."""
    size_bytes: int
    sha256: str
    """Of the bundle, in hex: what was received is what the server recorded."""
    record_id: UUID
    """Of the audit record."""
