"""The commands of accounts: create, get, list, update, set grants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.identity.account_rules import check_certificates, check_subject, checked_grants, checked_login
from drillcore_server.identity.credentials import Credentials
from drillcore_server.kernel import access, corpus_store
from drillcore_server.kernel import account_store as accounts
from drillcore_server.kernel import session_store as sessions
from drillcore_server.kernel.access import Granted, Principal
from drillcore_server.kernel.account_model import Account, AccountKind, AccountState, Grant
from drillcore_server.kernel.account_store import ACCOUNT_STATE
from drillcore_server.kernel.corpus_store import get_tenant
from drillcore_server.kernel.errors import BadInput, Denied, Missing
from drillcore_server.kernel.named import check_version, checked_name
from drillcore_server.kernel.pages import Page, PageLimit, fill_page, make_page, page_size, read_id_token
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.storage.ids import AccountId, TenantId, new_uuid
from drillcore_server.storage.keyspace import Keyspace


def create_account(
    unit: Unit,
    call: Call,
    credentials: Credentials,
    *,
    tenant: TenantId | None,
    of_server: bool,
    kind: AccountKind,
    login: str,
    name: str,
    grants: Iterable[Grant],
    password: str,
    certificates: tuple[bytes, ...],
    oidc_issuer: str,
    oidc_subject: str,
) -> AccountState:
    """Makes an account of a tenant, or of the server. A password given here must be changed at the first login."""
    check_certificates(certificates)
    check_subject(oidc_issuer, oidc_subject)
    if kind is AccountKind.SERVICE and password:
        raise BadInput(Reason.INVALID_ARGUMENT, "a service account has tokens, no password", field="password")
    owner = tenant or call.principal.tenant
    account = Account(
        id=AccountId(new_uuid()),
        tenant_id=owner,
        kind=kind,
        login=checked_login(login),
        name=checked_name(name or ("" if kind is AccountKind.PERSON else login)),
        grants=checked_grants(grants, owner),
        created_at=call.at,
        created_by=call.principal.id,
        updated_at=call.at,
        version=1,
        certificates=certificates,
        oidc_issuer=oidc_issuer,
        oidc_subject=oidc_subject,
    )
    rule = access.account_manager(tenant, of_server=of_server)
    unit.look(call, rule, lambda _tr, _granted: None)  # before a stranger can make the server hash a password
    new_hash = credentials.new_hash(account, None, password, "password") if password else None

    def work(tr: Transaction, granted: Granted, trail: Trail) -> AccountState:
        assert granted.tenant == owner
        check_granted(tr, unit.keys, account.grants)
        accounts.insert(tr, unit.keys, account)
        if new_hash is not None:
            first = credentials.changed(None, new_hash, call.at, by_other=True)
            accounts.put_credential(tr, unit.keys, account.id, first)
        trail.detail["account_id"] = str(account.id)
        trail.change(None, account)
        return accounts.state_of(tr, unit.keys, account)

    keys = unit.keys
    expected = [keys.login(account.login), keys.credential(account.id)]
    return unit.write(call, rule, ACCOUNT_STATE, work, expected=expected)


def check_granted(tr: Reader, keys: Keyspace, grants: Sequence[Grant]) -> None:
    """Raises `Missing` unless the tenants and corpora that the grants name exist."""
    tr.get_many([key for grant in grants for key in _named_by(keys, grant)])
    for grant in grants:
        if grant.tenant is not None:
            get_tenant(tr, keys, grant.tenant)
            if grant.corpus is not None and corpus_store.owner_of(tr, keys, grant.tenant, grant.corpus) is None:
                corpus_store.get(tr, keys, grant.tenant, grant.corpus)


def _named_by(keys: Keyspace, grant: Grant) -> Iterator[bytes]:
    """The keys that a check of the grant reads."""
    if grant.tenant is not None:
        yield keys.tenant(grant.tenant)
        if grant.corpus is not None:
            yield keys.corpus(grant.tenant, grant.corpus)
            yield from corpus_store.owner_keys(keys, grant.tenant, grant.corpus)


def get_account(
    unit: Unit, call: Call, *, tenant: TenantId | None, of_server: bool, key: AccountId | str
) -> AccountState:
    """The account with this id or this login. Everybody may see their own."""
    keys = unit.keys
    key = checked_login(key) if isinstance(key, str) else key

    def work(tr: Reader, granted: Granted, trail: Trail) -> AccountState:
        if isinstance(key, str):
            named = accounts.find_by_login(tr, keys, key, lambda id_: [keys.credential(id_)])
            if named is None or named.tenant_id != granted.tenant:
                raise Missing(Reason.ACCOUNT_NOT_FOUND, "there is no account with this login")
            account = named
        else:
            account = accounts.get(tr, keys, granted.tenant, key)
        trail.detail["account_id"] = str(account.id)
        return accounts.state_of(tr, keys, account)

    own = None if isinstance(key, str) else key
    rule = access.account_manager_or_self(tenant, own, of_server=of_server)
    expected = [keys.login(key)] if isinstance(key, str) else [keys.account(key), keys.credential(key)]
    return unit.read(call, rule, work, expected=expected)


def list_accounts(
    unit: Unit, call: Call, *, tenant: TenantId | None, of_server: bool, size: int, token: str
) -> Page[AccountState]:
    limit = PageLimit(page_size(size), unit.page_bytes_max)

    def work(tr: Reader, granted: Granted, trail: Trail) -> Page[AccountState]:
        listing = f"accounts of {granted.tenant}"
        after = read_id_token(listing, token)
        last = None if after is None else AccountId(after)
        found = accounts.scan(tr, unit.keys, granted.tenant, last, limit.items + 1)
        page = make_page(listing, *fill_page(found, limit))
        trail.detail["account_ids"] = [str(account.id) for account in page.items]
        return page

    return unit.read(call, access.account_manager(tenant, of_server=of_server), work)


@dataclass(frozen=True, slots=True)
class AccountChanges:
    """What to change. None leaves a field as it is."""

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
            certificates=tuple(digest for digest in kept if digest not in removed),
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
    """Changes the given fields. Disabling an account ends its sessions and tokens for good."""

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

    expected = [unit.keys.account(account_id), unit.keys.credential(account_id)]
    return unit.write(call, access.account_manager(tenant), ACCOUNT_STATE, work, expected=expected)


def check_not_own_loss(principal: Principal, old: Account, new: Account) -> None:
    """Refuses operators who would take away their own role, so that there is always one left."""
    if principal.account == old.id and old.may_operate() and not new.may_operate():
        raise Denied(Reason.PERMISSION_DENIED, "you cannot stop being an operator yourself; ask another operator")


def _unlock(tr: Transaction, keys: Keyspace, account: AccountId) -> bool:
    known = accounts.find_credential(tr, keys, account)
    if known is None or not known.attempts:
        return False
    accounts.put_credential(tr, keys, account, replace(known, attempts=0, attempted_at=None, locked_until=None))
    return True


def set_grants(
    unit: Unit,
    call: Call,
    *,
    tenant: TenantId | None,
    account_id: AccountId,
    grants: Iterable[Grant],
    expected_version: int | None,
) -> AccountState:
    """Replaces the grants of an account. They also bind its calls that have not committed yet."""
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

    expected = [unit.keys.account(account_id), unit.keys.credential(account_id)]
    return unit.write(call, access.account_manager(tenant), ACCOUNT_STATE, work, expected=expected)
