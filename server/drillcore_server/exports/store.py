"""Records of the exports that were made. The bundle itself is not stored."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Reader, Transaction
from drillcore_server.storage.ids import CorpusId, PrincipalId, RecordId, Revision, TenantId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind


class ExportFormat(enum.Enum):
    JSON = "json"
    MARKDOWN = "markdown"
    PDF = "pdf"


@dataclass(frozen=True, slots=True)
class Export:
    """An export is never changed."""

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


EXPORT: Final = RecordKind(Export)


def add(tr: Transaction, keys: Keyspace, tenant: TenantId, export: Export) -> None:
    EXPORT.write(tr, keys.export(tenant, export.id), export)


def find(tr: Reader, keys: Keyspace, tenant: TenantId, export: UUID) -> Export | None:
    return EXPORT.read(tr, keys.export(tenant, export))
