"""ListTokens."""

from __future__ import annotations

from drillcore_fdb.engine import Reader
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.accounts import Session
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.ids import AccountId, TenantId
from drillcore_server.store import accounts, sessions


def list_tokens(unit: Unit, call: Call, *, tenant: TenantId | None, account_id: AccountId) -> list[Session]:
    """Sessions and tokens of an account, the oldest first: those that ended lately too. Everybody may see their own."""

    def work(tr: Reader, granted: Granted, trail: Trail) -> list[Session]:
        account = accounts.get(tr, unit.keys, granted.tenant, account_id)
        held = [session for _, session in sessions.sessions_of(tr, unit.keys, account.id)]
        trail.detail |= {"account_id": str(account.id), "tokens": len(held)}
        return sorted(held, key=lambda session: (session.created_at, session.id))

    return unit.read(call, access.managing_or_own(tenant, account_id), work)
