"""ListAccounts."""

from __future__ import annotations

from drillcore_fdb.engine import Reader
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.accounts import AccountState
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.ids import AccountId, TenantId
from drillcore_server.domain.pages import Page, PageLimit, fill_page, make_page, page_size, read_id_token
from drillcore_server.store import accounts


def list_accounts(
    unit: Unit, call: Call, *, tenant: TenantId | None, of_server: bool, size: int, token: str
) -> Page[AccountState]:
    limit = PageLimit(page_size(size), unit.page_bytes_max)

    def work(tr: Reader, granted: Granted, trail: Trail) -> Page[AccountState]:
        listing = f"accounts of {granted.tenant}"
        after = read_id_token(listing, token)
        found = accounts.scan(tr, unit.keys, granted.tenant, None if after is None else AccountId(after))
        page = make_page(listing, *fill_page(found, limit))
        trail.detail["account_ids"] = [str(one.id) for one in page.items]
        return page

    return unit.read(call, access.managing(tenant, of_server=of_server), work)
