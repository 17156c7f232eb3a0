"""Signed exports that were made. The bundle itself is not kept: what it was is."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from drillcore_server.domain.audit import time_text
from drillcore_server.domain.ids import CorpusId, PrincipalId, RecordId, Revision


class ExportFormat(enum.Enum):
    JSON = "json"
    MARKDOWN = "markdown"
    PDF = "pdf"


@dataclass(frozen=True, slots=True)
class Export:
    """Never changed."""

    id: UUID
    corpus: CorpusId
    revision: Revision
    format: ExportFormat
    include_audit: bool
    manifest_sha256: bytes
    bundle_sha256: bytes
    size_bytes: int
    by: PrincipalId
    at: datetime
    record: RecordId
    """The audit record of the export."""


def export_content(export: Export) -> dict[str, Any]:
    """What a signature of the export covers."""
    return {
        "id": str(export.id),
        "corpus_id": str(export.corpus),
        "revision": export.revision,
        "format": export.format.value,
        "include_audit": export.include_audit,
        "manifest_sha256": export.manifest_sha256.hex(),
        "bundle_sha256": export.bundle_sha256.hex(),
        "size_bytes": export.size_bytes,
        "by": export.by,
        "at": time_text(export.at),
        "record_id": str(export.record),
    }
