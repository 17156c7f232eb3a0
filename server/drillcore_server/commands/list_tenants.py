"""ListTenants."""

from __future__ import annotations

from drillcore_fdb.engine import Reader
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.ids import TenantId
from drillcore_server.domain.pages import Page, PageLimit, fill_page, make_page, page_size, read_id_token
from drillcore_server.domain.tenants import Tenant
from drillcore_server.store.tenants import TENANTS

_LISTING = "tenants"


def list_tenants(unit: Unit, call: Call, *, size: int, token: str) -> Page[Tenant]:
    after = read_id_token(_LISTING, token)
    limit = PageLimit(page_size(size), unit.page_bytes_max)

    def work(tr: Reader, _granted: Granted, trail: Trail) -> Page[Tenant]:
        keys = unit.keys.tenants(None if after is None else TenantId(after))
        page = make_page(_LISTING, *fill_page(TENANTS.scan(tr, keys), limit))
        trail.detail["tenant_ids"] = [str(one.id) for one in page.items]
        return page

    return unit.read(call, access.operator, work)
