"""UpdateAccount."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted
from drillcore_server.auth.principal import Principal
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.account_checks import check_certificates, check_subject
from drillcore_server.domain.accounts import Account, AccountState
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import Denied
from drillcore_server.domain.ids import AccountId, TenantId
from drillcore_server.domain.named import check_version, checked_name
from drillcore_server.store import accounts, sessions
from drillcore_server.store.accounts import ACCOUNT_STATE
from drillcore_server.store.keyspace import Keyspace


@dataclass(frozen=True, slots=True)
class AccountChanges:
    """What to change; None leaves a thing as it is."""

    name: str | None = None
    disabled: bool | None = None
    unlock: bool = False
    add_certificates: Iterable[bytes] = ()
    remove_certificates: Iterable[bytes] = ()
    oidc_issuer: str | None = None
    oidc_subject: str | None = None

    def applied_to(self, old: Account) -> Account:
        removed = {*self.remove_certificates}
        kept = dict.fromkeys([*old.certificates, *self.add_certificates])
        new = replace(
            old,
            name=old.name if self.name is None else checked_name(self.name),
            disabled=old.disabled if self.disabled is None else self.disabled,
            certificates=tuple(one for one in kept if one not in removed),
            oidc_issuer=old.oidc_issuer if self.oidc_issuer is None else self.oidc_issuer,
            oidc_subject=old.oidc_subject if self.oidc_subject is None else self.oidc_subject,
        )
        check_certificates(new.certificates)
        check_subject(new.oidc_issuer, new.oidc_subject)
        return new


def update_account(
    unit: Unit,
    call: Call,
    *,
    tenant: TenantId | None,
    account_id: AccountId,
    changes: AccountChanges,
    expected_version: int | None,
) -> AccountState:
    """Changes what is given. A disabled account's sessions and tokens have ended, also if it is enabled again."""

    def work(tr: Transaction, granted: Granted, trail: Trail) -> AccountState:
        trail.detail["account_id"] = str(account_id)
        old = accounts.get(tr, unit.keys, granted.tenant, account_id)
        check_version(old, expected_version)
        new = replace(changes.applied_to(old), updated_at=call.at, version=old.version + 1)
        check_not_own_loss(call.principal, old, new)
        accounts.replace(tr, unit.keys, new)
        if new.disabled:
            trail.detail["revoked"] = sessions.revoke_all(tr, unit.keys, account_id, call.at)
        if changes.unlock:
            trail.detail["unlocked"] = _unlock(tr, unit.keys, account_id)
        trail.change(old, new)
        return accounts.state_of(tr, unit.keys, new)

    return unit.write(call, access.managing(tenant), ACCOUNT_STATE, work)


def check_not_own_loss(principal: Principal, old: Account, new: Account) -> None:
    """Nobody takes away their own operator's role: so there is always another who has it."""
    if principal.account == old.id and old.may_operate() and not new.may_operate():
        raise Denied(Reason.PERMISSION_DENIED, "you cannot stop being an operator yourself; ask another operator")


def _unlock(tr: Transaction, keys: Keyspace, account: AccountId) -> bool:
    known = accounts.find_credential(tr, keys, account)
    if known is None or not known.attempts:
        return False
    accounts.put_credential(tr, keys, account, replace(known, attempts=0, attempted_at=None, locked_until=None))
    return True
