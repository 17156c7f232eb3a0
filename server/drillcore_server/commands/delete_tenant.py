"""DeleteTenant."""

from __future__ import annotations

from dataclasses import replace

from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import NotReady
from drillcore_server.domain.ids import TenantId
from drillcore_server.domain.named import check_version
from drillcore_server.domain.tenants import Tenant
from drillcore_server.store import corpora, tenants
from drillcore_server.store.tenants import TENANT, TENANTS


def delete_tenant(unit: Unit, call: Call, *, tenant_id: TenantId, expected_version: int | None) -> Tenant:
    """The tenant as it was left: marked deleted, so that its id is never used again."""

    def work(tr: Transaction, _granted: Granted, trail: Trail) -> Tenant:
        old = tenants.get(tr, unit.keys, tenant_id)
        check_version(old, expected_version)
        if corpora.any_in(tr, unit.keys, tenant_id):
            raise NotReady(Reason.TENANT_NOT_EMPTY, f"tenant {tenant_id} still has corpora; delete them first")
        new = replace(old, updated_at=call.at, version=old.version + 1, deleted_at=call.at)
        TENANTS.replace(tr, unit.keys, old, new)
        trail.detail["tenant_id"] = str(tenant_id)
        trail.change(old, new)
        return new

    return unit.write(call, access.operator, TENANT, work)
