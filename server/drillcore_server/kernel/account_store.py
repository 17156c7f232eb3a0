"""Accounts in the store, found by id, login, certificate or OIDC subject.

None of these is ever given to another account.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Reader, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_proto.reasons import Reason
from drillcore_server.kernel.account_model import Account, AccountState, Credential
from drillcore_server.kernel.errors import Exists, Missing
from drillcore_server.kernel.pages import read_together
from drillcore_server.storage.ids import AccountId, TenantId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind

ACCOUNT = RecordKind(Account)
ACCOUNT_STATE = RecordKind(AccountState)
CREDENTIAL = RecordKind(Credential)
CERTIFICATE: Final = "certificate"
SUBJECT: Final = "subject"
_NO_TENANT: Final = UUID(int=0)
_OPERATORS_AT_ONCE: Final = 20


def find(tr: Reader, keys: Keyspace, account: AccountId) -> Account | None:
    return ACCOUNT.read(tr, keys.account(account))


def get(tr: Reader, keys: Keyspace, tenant: TenantId | None, account: AccountId) -> Account:
    """An account of this tenant, or with None of the server. Raises `Missing` for an account of another tenant."""
    found = find(tr, keys, account)
    if found is None or found.tenant_id != tenant:
        raise Missing(Reason.ACCOUNT_NOT_FOUND, f"there is no account {account}")
    return found


def find_by_login(
    tr: Reader, keys: Keyspace, login: str, expected: Callable[[AccountId], list[bytes]] = lambda _account: []
) -> Account | None:
    """The account with this login. `expected` are keys that the caller will get next: they are read ahead."""
    stored = tr.get(keys.login(login))
    if stored is not None:
        account = AccountId(UUID(bytes=stored))
        tr.get_many([keys.account(account), *expected(account)])
    return _found(tr, keys, stored)


def find_by_certificate(tr: Reader, keys: Keyspace, sha256: bytes) -> Account | None:
    """The account that a certificate identifies or once identified. `Account.certificates` lists the current ones."""
    return _found(tr, keys, tr.get(keys.binding(CERTIFICATE, sha256)))


def find_by_subject(tr: Reader, keys: Keyspace, issuer: str, subject: str) -> Account | None:
    """The account that the subject of an issuer's tokens identifies or once identified."""
    return _found(tr, keys, tr.get(keys.binding(SUBJECT, issuer, subject)))


def _found(tr: Reader, keys: Keyspace, stored: bytes | None) -> Account | None:
    if stored is None:
        return None
    account = find(tr, keys, AccountId(UUID(bytes=stored)))
    if account is None:
        raise StoreCorruptError("an account that an index leads to is not there")
    return account


def scan(
    tr: Reader, keys: Keyspace, tenant: TenantId | None, after: AccountId | None, at_once: int
) -> Iterator[tuple[AccountState, int]]:
    """The accounts of a tenant, or of the server, in the order of ids, each with the size of its record in bytes.

    Reads so many accounts at once.
    """

    def read(ids: list[AccountId]) -> Iterator[tuple[AccountState, int]]:
        accounts_at, credentials_at = [keys.account(id_) for id_ in ids], [keys.credential(id_) for id_ in ids]
        tr.get_many([*accounts_at, *credentials_at])  # read ahead: what is read again costs nothing
        accounts, credentials = ACCOUNT.read_many(tr, accounts_at), CREDENTIAL.read_many(tr, credentials_at)
        for account, credential in zip(accounts, credentials, strict=True):
            if account is None:
                raise StoreCorruptError("an account that its tenant names is not there")
            yield _state(account, credential), len(ACCOUNT.encode(account))

    ids = (keys.parse_tenant_account(key) for key, _ in tr.range(*keys.tenant_accounts(tenant or _NO_TENANT, after)))
    return read_together(ids, at_once, read)


def state_of(tr: Reader, keys: Keyspace, account: Account) -> AccountState:
    return _state(account, find_credential(tr, keys, account.id))


def _state(account: Account, credential: Credential | None) -> AccountState:
    if credential is None:
        return AccountState(account)
    return AccountState(account, credential.changed_at, credential.locked_until)


def insert(tr: Transaction, keys: Keyspace, account: Account) -> None:
    if tr.get(keys.login(account.login)) is not None:
        raise Exists(Reason.ACCOUNT_EXISTS, "an account has, or had, this login", field="login")
    tr.set(keys.login(account.login), account.id.bytes)
    tr.set(keys.tenant_account(account.tenant_id or _NO_TENANT, account.id), b"")
    replace(tr, keys, account)


def replace(tr: Transaction, keys: Keyspace, account: Account) -> None:
    """Writes the new state. Certificates and subjects that the account had stay reserved for it."""
    for certificate in account.certificates:
        _bind(tr, keys.binding(CERTIFICATE, certificate), account.id, "certificate_sha256")
    if account.oidc_subject:
        _bind(tr, keys.binding(SUBJECT, account.oidc_issuer, account.oidc_subject), account.id, "oidc_subject")
    ACCOUNT.write(tr, keys.account(account.id), account)


def _bind(tr: Transaction, key: bytes, account: AccountId, field: str) -> None:
    bound = tr.get(key)
    if bound is not None and bound != account.bytes:
        raise Exists(Reason.ACCOUNT_EXISTS, f"another account has, or had, this {field}", field=field)
    tr.set(key, account.bytes)


def find_credential(tr: Reader, keys: Keyspace, account: AccountId) -> Credential | None:
    return CREDENTIAL.read(tr, keys.credential(account))


def put_credential(tr: Transaction, keys: Keyspace, account: AccountId, credential: Credential) -> None:
    CREDENTIAL.write(tr, keys.credential(account), credential)


def has_operator(tr: Reader, keys: Keyspace) -> bool:
    """Whether an account can operate the whole server."""
    return any(state.account.may_operate() for state, _ in scan(tr, keys, None, None, _OPERATORS_AT_ONCE))
