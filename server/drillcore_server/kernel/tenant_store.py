"""Tenants in the store."""

from __future__ import annotations

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.kernel.corpora import Tenant
from drillcore_server.kernel.named import NamedRecords
from drillcore_server.storage.ids import TenantId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind

TENANT = RecordKind(Tenant)
TENANTS = NamedRecords(
    TENANT,
    key=lambda keys, tenant: keys.tenant(tenant.id),
    name_key=lambda keys, tenant: keys.tenant_name(tenant.name),
    missing=Reason.TENANT_NOT_FOUND,
    exists=Reason.TENANT_EXISTS,
)


def get(tr: Reader, keys: Keyspace, tenant: TenantId) -> Tenant:
    return TENANTS.get(tr, keys.tenant(tenant), str(tenant))


def get_by_name(tr: Reader, keys: Keyspace, name: str) -> Tenant:
    return get(tr, keys, TenantId(TENANTS.id_of(tr, keys.tenant_name(name), name)))
