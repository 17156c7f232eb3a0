"""GetAccount."""

from __future__ import annotations

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.account_checks import checked_login
from drillcore_server.domain.accounts import AccountState
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import Missing
from drillcore_server.domain.ids import AccountId, TenantId
from drillcore_server.store import accounts


def get_account(
    unit: Unit, call: Call, *, tenant: TenantId | None, of_server: bool, key: AccountId | str
) -> AccountState:
    """The account with this id, or with this login. Everybody may see their own."""
    login = checked_login(key) if isinstance(key, str) else None

    def work(tr: Reader, granted: Granted, trail: Trail) -> AccountState:
        named = accounts.find_by_login(tr, unit.keys, login) if login is not None else None
        if login is not None and (named is None or named.tenant_id != granted.tenant):
            raise Missing(Reason.ACCOUNT_NOT_FOUND, "there is no account with this login")
        account = named or accounts.get(tr, unit.keys, granted.tenant, AccountId(key))  # type: ignore[arg-type]
        trail.detail["account_id"] = str(account.id)
        return accounts.state_of(tr, unit.keys, account)

    own = None if isinstance(key, str) else key
    return unit.read(call, access.managing_or_own(tenant, own, of_server=of_server), work)
