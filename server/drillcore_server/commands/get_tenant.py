"""GetTenant."""

from __future__ import annotations

from drillcore_fdb.engine import Reader
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.ids import TenantId
from drillcore_server.domain.named import checked_name
from drillcore_server.domain.tenants import Tenant
from drillcore_server.store import tenants


def get_tenant(unit: Unit, call: Call, *, key: TenantId | str) -> Tenant:
    """The tenant with this id, or with this name."""

    def work(tr: Reader, _granted: Granted, trail: Trail) -> Tenant:
        if isinstance(key, str):
            found = tenants.get_by_name(tr, unit.keys, checked_name(key))
        else:
            found = tenants.get(tr, unit.keys, key)
        trail.detail["tenant_id"] = str(found.id)
        return found

    return unit.read(call, access.operator, work)
