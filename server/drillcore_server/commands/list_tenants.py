"""ListTenants."""

from __future__ import annotations

from drillcore_fdb.engine import Transaction
from drillcore_server.auth import access
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.ids import TenantId
from drillcore_server.domain.pages import Page, PageLimit, fill_page, make_page, page_size, read_id_token
from drillcore_server.domain.tenants import Tenant
from drillcore_server.store.tenants import TENANTS

_LISTING = "tenants"


def list_tenants(unit: Unit, call: Call, *, size: int, token: str) -> Page[Tenant]:
    after = read_id_token(_LISTING, token)
    limit = PageLimit(page_size(size), unit.page_bytes_max)

    def work(tr: Transaction, _granted: None) -> Page[Tenant]:
        keys = unit.keys.tenants(None if after is None else TenantId(after))
        return make_page(_LISTING, *fill_page(TENANTS.scan(tr, keys), limit))

    return unit.read(call, access.operator, work)
