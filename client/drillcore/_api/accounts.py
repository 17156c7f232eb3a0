"""Accounts, their grants, sessions and tokens."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore._api.messages import enum_member, enum_number, to_datetime, to_id
from drillcore._api.node_data import Level
from drillcore._transport.call import Call, Id, Page, id_text, no_result
from drillcore_proto.v1 import accounts_pb2 as pb


class AccountKind(enum.Enum):
    PERSON = "person"
    """Logs in and may sign."""
    SERVICE = "service"
    """Has tokens and can never sign."""


class Role(enum.Enum):
    READER = "reader"
    WRITER = "writer"
    """Reads, writes and manages corpora."""
    REVIEWER = "reviewer"
    """Reads and signs."""
    AUDITOR = "auditor"
    """Reads, pulls the audit trail and signed exports, reviews and signs."""
    OPERATOR = "operator"
    """Manages tenants, accounts and corpora; reads no content."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A role in a tenant, for a corpus and some levels. What is left out means all of them."""

    role: Role
    tenant_id: UUID | str | None = None
    """If left out for an account of a tenant, it is that tenant."""
    corpus_id: UUID | str | None = None
    levels: tuple[Level, ...] = ()


@dataclass(frozen=True, slots=True)
class Account:
    """A person or a service that may call. Its id and login are never used again."""

    id: UUID
    tenant_id: UUID | None
    """None for an operator of the server."""
    kind: AccountKind
    login: str
    name: str
    """The printed name of a person."""
    grants: tuple[Grant, ...]
    disabled: bool
    created_at: datetime
    created_by: str
    updated_at: datetime
    version: int
    """1 at creation; every update adds one."""
    certificate_sha256: tuple[str, ...]
    """Client certificates that it can log in with."""
    oidc_issuer: str
    oidc_subject: str
    password_changed_at: datetime | None
    """None if it has no password."""
    locked_until: datetime | None
    """Set after too many wrong passwords. The account is not locked if this is None or in the past."""


@dataclass(frozen=True, slots=True)
class Login:
    """A new session."""

    token: str = field(repr=False)
    """Pass it as `token` to a client that calls in this session."""
    expires_at: datetime
    """The latest end. The session ends earlier if it is not used."""
    idle_timeout_s: float
    account_id: UUID
    tenant_id: UUID | None


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A session or a service account's token, without the secret."""

    id: UUID
    account_id: UUID
    name: str
    session: bool
    """True for a session of a person, False for a service account's token."""
    created_at: datetime
    expires_at: datetime
    last_used_at: datetime
    """Accurate to a minute."""
    revoked: bool


@dataclass(frozen=True, slots=True)
class NewToken:
    """A service account's token. The server does not show it again."""

    token: str = field(repr=False)
    info: TokenInfo


def grant_messages(grants: Iterable[Grant]) -> list[pb.Grant]:
    return [
        pb.Grant(
            role=enum_number(pb.Role, grant.role),
            tenant_id=id_text(grant.tenant_id),
            corpus_id=id_text(grant.corpus_id),
            levels=[level.value for level in grant.levels],
        )
        for grant in grants
    ]


def to_account(message: pb.Account) -> Account:
    return Account(
        id=UUID(message.id),
        tenant_id=to_id(message.tenant_id),
        kind=enum_member(AccountKind, pb.AccountKind, message.kind),
        login=message.login,
        name=message.name,
        grants=tuple(_to_grant(grant) for grant in message.grants),
        disabled=message.disabled,
        created_at=to_datetime(message.created_at),
        created_by=message.created_by,
        updated_at=to_datetime(message.updated_at),
        version=message.version,
        certificate_sha256=tuple(message.certificate_sha256),
        oidc_issuer=message.oidc_issuer,
        oidc_subject=message.oidc_subject,
        password_changed_at=(
            to_datetime(message.password_changed_at) if message.HasField("password_changed_at") else None
        ),
        locked_until=to_datetime(message.locked_until) if message.HasField("locked_until") else None,
    )


def _to_grant(message: pb.Grant) -> Grant:
    return Grant(
        role=enum_member(Role, pb.Role, message.role),
        tenant_id=to_id(message.tenant_id),
        corpus_id=to_id(message.corpus_id),
        levels=tuple(Level(level) for level in message.levels),
    )


def to_accounts(message: pb.ListAccountsResponse) -> Page[Account]:
    return Page(tuple(map(to_account, message.accounts)), message.next_page_token)


def to_login(message: pb.LoginResponse) -> Login:
    return Login(
        token=message.token,
        expires_at=to_datetime(message.expires_at),
        idle_timeout_s=message.idle_timeout_s,
        account_id=UUID(message.account_id),
        tenant_id=to_id(message.tenant_id),
    )


def to_new_token(message: pb.CreateTokenResponse) -> NewToken:
    return NewToken(message.token, _to_token_info(message.info))


def to_tokens(message: pb.ListTokensResponse) -> tuple[TokenInfo, ...]:
    return tuple(map(_to_token_info, message.tokens))


def _to_token_info(message: pb.TokenInfo) -> TokenInfo:
    return TokenInfo(
        id=UUID(message.id),
        account_id=UUID(message.account_id),
        name=message.name,
        session=message.session,
        created_at=to_datetime(message.created_at),
        expires_at=to_datetime(message.expires_at),
        last_used_at=to_datetime(message.last_used_at),
        revoked=message.revoked,
    )


_ACCOUNTS: Final = "/drillcore_proto.v1.AccountService/"


def create_account(
    login: str,
    *,
    kind: AccountKind = AccountKind.PERSON,
    name: str = "",
    grants: Iterable[Grant] = (),
    password: str = "",
    certificate_sha256: Collection[str] = (),
    oidc_issuer: str = "",
    oidc_subject: str = "",
    server_account: bool = False,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Account]:
    """Create an account of a tenant or, with `server_account`, an operator's account. It can do nothing without grants.

    A person needs a `name`, and must change this `password` at the first login. Raises AlreadyExists if an account has
    or had this login, certificate or subject.
    """

    def decode(answer: bytes) -> Account:
        return to_account(pb.CreateAccountResponse.FromString(answer).account)

    request = pb.CreateAccountRequest(
        tenant_id=id_text(tenant_id),
        kind=enum_number(pb.AccountKind, kind),
        login=login,
        name=name,
        grants=grant_messages(grants),
        password=password,
        certificate_sha256=certificate_sha256,
        oidc_issuer=oidc_issuer,
        oidc_subject=oidc_subject,
        server_account=server_account,
    )
    return Call(f"{_ACCOUNTS}CreateAccount", request, decode, request_id, timeout_s)


def get_account(
    account_id: Id | None = None,
    *,
    login: str | None = None,
    server_account: bool = False,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Account]:
    """The account with this id or login. Everybody may see their own. Raises NotFound."""
    if (account_id is None) == (login is None):
        raise TypeError("give either account_id or login=")

    def decode(answer: bytes) -> Account:
        return to_account(pb.GetAccountResponse.FromString(answer).account)

    request = pb.GetAccountRequest(tenant_id=id_text(tenant_id), server_account=server_account)
    if login is None:
        request.id = id_text(account_id)
    else:
        request.login = login
    return Call(f"{_ACCOUNTS}GetAccount", request, decode, request_id, timeout_s)


def list_accounts(
    *,
    server_accounts: bool = False,
    tenant_id: Id | None = None,
    page_size: int = 0,
    page_token: str = "",
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Page[Account]]:
    """One page of the accounts of the tenant or, with `server_accounts`, of the operators."""

    def decode(answer: bytes) -> Page[Account]:
        return to_accounts(pb.ListAccountsResponse.FromString(answer))

    request = pb.ListAccountsRequest(
        tenant_id=id_text(tenant_id), page_size=page_size, page_token=page_token, server_accounts=server_accounts
    )
    return Call(f"{_ACCOUNTS}ListAccounts", request, decode, request_id, timeout_s)


def update_account(
    account_id: Id,
    *,
    name: str | None = None,
    disabled: bool | None = None,
    unlock: bool = False,
    add_certificate_sha256: Collection[str] = (),
    remove_certificate_sha256: Collection[str] = (),
    oidc_issuer: str | None = None,
    oidc_subject: str | None = None,
    expected_version: int | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Account]:
    """Change what is given and keep the rest. For an operator without a tenant, the account is one of the server.

    Disabling an account ends its sessions and tokens at once. `unlock` ends a lock after wrong passwords.
    """

    def decode(answer: bytes) -> Account:
        return to_account(pb.UpdateAccountResponse.FromString(answer).account)

    request = pb.UpdateAccountRequest(
        tenant_id=id_text(tenant_id),
        id=id_text(account_id),
        name=name,
        disabled=disabled,
        unlock=unlock,
        add_certificate_sha256=add_certificate_sha256,
        remove_certificate_sha256=remove_certificate_sha256,
        oidc_issuer=oidc_issuer,
        oidc_subject=oidc_subject,
        expected_version=expected_version,
    )
    return Call(f"{_ACCOUNTS}UpdateAccount", request, decode, request_id, timeout_s)


def set_grants(
    account_id: Id,
    grants: Iterable[Grant],
    *,
    expected_version: int | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Account]:
    """Replace all grants of an account. This takes effect at once, also for running calls."""

    def decode(answer: bytes) -> Account:
        return to_account(pb.SetGrantsResponse.FromString(answer).account)

    request = pb.SetGrantsRequest(
        tenant_id=id_text(tenant_id),
        id=id_text(account_id),
        grants=grant_messages(grants),
        expected_version=expected_version,
    )
    return Call(f"{_ACCOUNTS}SetGrants", request, decode, request_id, timeout_s)


def set_password(
    new_password: str,
    *,
    old_password: str = "",
    account_id: Id | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[None]:
    """Change the caller's password, which needs the old one. An operator can change that of another account.

    The other person must then change it at the next login. The account's other sessions end. Raises InvalidArgument if
    the password is short or common, or was used before.
    """
    request = pb.SetPasswordRequest(
        tenant_id=id_text(tenant_id), id=id_text(account_id), old_password=old_password, new_password=new_password
    )
    return Call(f"{_ACCOUNTS}SetPassword", request, no_result, request_id, timeout_s)


def login(
    login: str,
    password: str,
    *,
    new_password: str = "",
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Login]:
    """Open a session. Pass its token to a new client. `new_password` replaces a password that has expired.

    Raises Unauthenticated, or FailedPrecondition if the password must be changed.
    """

    def decode(answer: bytes) -> Login:
        return to_login(pb.LoginResponse.FromString(answer))

    request = pb.LoginRequest(login=login, password=password, new_password=new_password)
    return Call(f"{_ACCOUNTS}Login", request, decode, request_id, timeout_s)


def logout(*, request_id: str | None = None, timeout_s: float | None = None) -> Call[None]:
    """End the session or revoke the token of this client."""
    return Call(f"{_ACCOUNTS}Logout", pb.LogoutRequest(), no_result, request_id, timeout_s)


def create_token(
    account_id: Id,
    name: str,
    *,
    lifetime_s: float = 0.0,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[NewToken]:
    """Create a token for a service account. The server shows it only once. `lifetime_s` 0: as long as it allows."""

    def decode(answer: bytes) -> NewToken:
        return to_new_token(pb.CreateTokenResponse.FromString(answer))

    request = pb.CreateTokenRequest(
        tenant_id=id_text(tenant_id), account_id=id_text(account_id), name=name, lifetime_s=lifetime_s
    )
    return Call(f"{_ACCOUNTS}CreateToken", request, decode, request_id, timeout_s)


def list_tokens(
    account_id: Id,
    *,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[tuple[TokenInfo, ...]]:
    """The sessions and tokens of an account, including those that ended lately. Everybody may see their own."""

    def decode(answer: bytes) -> tuple[TokenInfo, ...]:
        return to_tokens(pb.ListTokensResponse.FromString(answer))

    request = pb.ListTokensRequest(tenant_id=id_text(tenant_id), account_id=id_text(account_id))
    return Call(f"{_ACCOUNTS}ListTokens", request, decode, request_id, timeout_s)


def revoke_token(
    account_id: Id,
    token_id: Id | None = None,
    *,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[int]:
    """End a session or token of an account at once or, without `token_id`, all of them. Returns how many ended."""

    def decode(answer: bytes) -> int:
        return pb.RevokeTokenResponse.FromString(answer).revoked

    request = pb.RevokeTokenRequest(
        tenant_id=id_text(tenant_id), account_id=id_text(account_id), token_id=id_text(token_id)
    )
    return Call(f"{_ACCOUNTS}RevokeToken", request, decode, request_id, timeout_s)
