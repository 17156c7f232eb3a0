"""SetPassword."""

from __future__ import annotations

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted
from drillcore_server.commands.credentials import Credentials, answered, check_same
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.accounts import Account, AccountKind, AccountState, Credential
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.ids import AccountId, TenantId
from drillcore_server.store import accounts, sessions
from drillcore_server.store.accounts import ACCOUNT_STATE


def set_password(
    unit: Unit,
    call: Call,
    credentials: Credentials,
    *,
    tenant: TenantId | None,
    account_id: AccountId | None,
    old_password: str,
    new_password: str,
) -> AccountState:
    """The caller's own, proved with the old one; or by an operator another's, to be changed at its next login.

    Either way every session but the one it was changed in has ended.
    """
    own = account_id in {None, call.principal.account}
    target = call.principal.account if account_id is None else account_id
    if target is None:
        raise BadInput(Reason.INVALID_ARGUMENT, "this caller has no account, so no password of its own", field="id")
    rule = access.managing_or_own(tenant, target)

    def find(tr: Reader, granted: Granted) -> tuple[Account, Credential | None]:
        account = accounts.get(tr, unit.keys, granted.tenant, target)
        return account, accounts.find_credential(tr, unit.keys, target)

    account, old = unit.look(call, rule, find)
    if account.kind is not AccountKind.PERSON:
        raise BadInput(Reason.INVALID_ARGUMENT, "a service account has tokens, no password", field="id")
    known = answered(unit, call, ACCOUNT_STATE)
    if own:
        old = credentials.prove(call, account, old_password, repeated=known is not None)
    if known is not None:
        return known
    new_hash = credentials.new_hash(account, old, new_password)

    def work(tr: Transaction, _granted: Granted, trail: Trail) -> AccountState:
        check_same(accounts.find_credential(tr, unit.keys, target), old)
        changed = credentials.changed(old, new_hash, call.at, by_other=not own)
        accounts.put_credential(tr, unit.keys, target, changed)
        kept = call.principal.session if own else None
        trail.detail["account_id"] = str(target)
        trail.detail["revoked"] = sessions.revoke_all(tr, unit.keys, target, call.at, but=kept)
        return accounts.state_of(tr, unit.keys, account)

    return unit.write(call, rule, ACCOUNT_STATE, work)
