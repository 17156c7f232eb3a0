"""SetGrants."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from drillcore_fdb.engine import Transaction
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted
from drillcore_server.commands.create_account import check_granted
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.commands.update_account import check_not_own_loss
from drillcore_server.domain.account_checks import checked_grants
from drillcore_server.domain.accounts import AccountState, Grant
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.ids import AccountId, TenantId
from drillcore_server.domain.named import check_version
from drillcore_server.store import accounts
from drillcore_server.store.accounts import ACCOUNT_STATE


def set_grants(
    unit: Unit,
    call: Call,
    *,
    tenant: TenantId | None,
    account_id: AccountId,
    grants: Iterable[Grant],
    expected_version: int | None,
) -> AccountState:
    """Replaces what an account is granted. Calls of it that have not committed yet are held to the new grants."""
    given = tuple(grants)

    def work(tr: Transaction, granted: Granted, trail: Trail) -> AccountState:
        trail.detail["account_id"] = str(account_id)
        old = accounts.get(tr, unit.keys, granted.tenant, account_id)
        check_version(old, expected_version)
        allowed = checked_grants(given, old.tenant_id)
        check_granted(tr, unit.keys, allowed)
        new = replace(old, grants=allowed, updated_at=call.at, version=old.version + 1)
        check_not_own_loss(call.principal, old, new)
        accounts.replace(tr, unit.keys, new)
        trail.change(old, new)
        return accounts.state_of(tr, unit.keys, new)

    return unit.write(call, access.managing(tenant), ACCOUNT_STATE, work)
