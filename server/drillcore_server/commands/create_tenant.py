"""CreateTenant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import uuid4

from drillcore_fdb.engine import Transaction
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.ids import TenantId
from drillcore_server.domain.named import checked_metadata, checked_name
from drillcore_server.domain.regions import checked_regions
from drillcore_server.domain.tenants import Tenant
from drillcore_server.store.tenants import TENANT, TENANTS


def create_tenant(
    unit: Unit,
    call: Call,
    *,
    name: str,
    metadata: Mapping[str, str],
    tenant_id: TenantId | None,
    allowed_regions: Iterable[str] = (),
) -> Tenant:
    tenant = Tenant(
        id=tenant_id or TenantId(uuid4()),
        name=checked_name(name),
        metadata=checked_metadata(metadata),
        created_at=call.at,
        created_by=call.principal.id,
        updated_at=call.at,
        version=1,
        allowed_regions=checked_regions(allowed_regions, "allowed_regions"),
    )

    def work(tr: Transaction, _granted: Granted, trail: Trail) -> Tenant:
        TENANTS.insert(tr, unit.keys, tenant)
        trail.detail["tenant_id"] = str(tenant.id)
        trail.change(None, tenant)
        return tenant

    return unit.write(call, access.operator, TENANT, work)
