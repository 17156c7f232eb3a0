"""UpdateTenant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from drillcore_fdb.engine import Transaction
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.ids import TenantId
from drillcore_server.domain.named import changed_metadata, check_version, checked_name
from drillcore_server.domain.regions import checked_regions
from drillcore_server.domain.tenants import Tenant
from drillcore_server.store import tenants
from drillcore_server.store.tenants import TENANT, TENANTS


def update_tenant(
    unit: Unit,
    call: Call,
    *,
    tenant_id: TenantId,
    name: str | None,
    set_metadata: Mapping[str, str],
    remove_metadata: Iterable[str],
    allowed_regions: Iterable[str] | None = None,
    expected_version: int | None,
) -> Tenant:
    """Changes what is given. Corpora that are outside of the regions it gets stay there, and cannot be got at."""
    new_name = None if name is None else checked_name(name)
    regions = None if allowed_regions is None else checked_regions(allowed_regions, "allowed_regions")

    def work(tr: Transaction, _granted: Granted, trail: Trail) -> Tenant:
        old = tenants.get(tr, unit.keys, tenant_id)
        check_version(old, expected_version)
        new = replace(
            old,
            name=new_name or old.name,
            metadata=changed_metadata(old.metadata, set_metadata, remove_metadata),
            updated_at=call.at,
            version=old.version + 1,
            allowed_regions=old.allowed_regions if regions is None else regions,
        )
        TENANTS.replace(tr, unit.keys, old, new)
        trail.detail["tenant_id"] = str(tenant_id)
        trail.change(old, new)
        return new

    return unit.write(call, access.operator, TENANT, work)
