"""Signed exports that were made, in the store."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Reader, Transaction
from drillcore_server.domain.exports import Export
from drillcore_server.domain.ids import TenantId
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.records import RecordKind

EXPORT: Final = RecordKind(Export)


def add(tr: Transaction, keys: Keyspace, tenant: TenantId, export: Export) -> None:
    EXPORT.write(tr, keys.export(tenant, export.id), export)


def find(tr: Reader, keys: Keyspace, tenant: TenantId, export: UUID) -> Export | None:
    return EXPORT.read(tr, keys.export(tenant, export))
