"""ListTenants."""

from __future__ import annotations

from itertools import islice

from drillcore_fdb.engine import Transaction
from drillcore_server.auth import access
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.ids import TenantId
from drillcore_server.domain.pages import Page, make_page, page_size, read_token
from drillcore_server.domain.tenants import Tenant
from drillcore_server.store.tenants import TENANTS

_LISTING = "tenants"


def list_tenants(unit: Unit, call: Call, *, size: int, token: str) -> Page[Tenant]:
    after = read_token(_LISTING, token)
    wanted = page_size(size)

    def work(tr: Transaction, _granted: None) -> Page[Tenant]:
        keys = unit.keys.tenants(None if after is None else TenantId(after))
        return make_page(_LISTING, list(islice(TENANTS.list(tr, keys), wanted + 1)), wanted)

    return unit.read(call, access.operator, work)
