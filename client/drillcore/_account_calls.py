"""Calls about accounts, sessions and tokens, each declared once; see `_calls`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from drillcore import _convert_accounts as convert
from drillcore._account_results import Account, AccountKind, Grant, Login, NewToken, TokenInfo
from drillcore._call import Call, Id, Pages, id_text
from drillcore._results import Page
from drillcore_proto.v1 import accounts_pb2 as pb

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
    """Create an account of a tenant, or with `server_account` an operator's of none. It may do nothing without grants.

    A person needs a `name`, and changes the `password` given here at the first login. Raises AlreadyExists if an
    account has or had this login, certificate or subject.
    """

    def decode(answer: bytes) -> Account:
        return convert.account(pb.CreateAccountResponse.FromString(answer).account)

    request = pb.CreateAccountRequest(
        tenant_id=id_text(tenant_id),
        kind=convert.account_kind(kind),
        login=login,
        name=name,
        grants=convert.grant_messages(grants),
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
    """The account with this id, or with this login. Everybody may see their own. Raises NotFound."""
    if (account_id is None) == (login is None):
        raise TypeError("give either an id or a login")

    def decode(answer: bytes) -> Account:
        return convert.account(pb.GetAccountResponse.FromString(answer).account)

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
    """One page of the tenant's accounts, or of the operators'. `page_size` 0 leaves the size to the server."""

    def decode(answer: bytes) -> Page[Account]:
        return convert.accounts(pb.ListAccountsResponse.FromString(answer))

    request = pb.ListAccountsRequest(
        tenant_id=id_text(tenant_id), page_size=page_size, page_token=page_token, server_accounts=server_accounts
    )
    return Call(f"{_ACCOUNTS}ListAccounts", request, decode, request_id, timeout_s)


def iter_accounts(
    *,
    server_accounts: bool = False,
    tenant_id: Id | None = None,
    page_size: int = 0,
    timeout_s: float | None = None,
) -> Pages[Account]:
    """Every account of the tenant, or of the operators, fetched page by page. `timeout_s` is for each page."""
    return lambda token: list_accounts(
        server_accounts=server_accounts,
        tenant_id=tenant_id,
        page_size=page_size,
        page_token=token,
        timeout_s=timeout_s,
    )


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
    """Change what is given and leave the rest. Without a tenant an operator means an account of the server.

    Disabling an account ends its sessions and tokens at once. `unlock` ends a lock after wrong passwords.
    """

    def decode(answer: bytes) -> Account:
        return convert.account(pb.UpdateAccountResponse.FromString(answer).account)

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
    """Replace all that an account is granted, at once: also for calls that are under way."""

    def decode(answer: bytes) -> Account:
        return convert.account(pb.SetGrantsResponse.FromString(answer).account)

    request = pb.SetGrantsRequest(
        tenant_id=id_text(tenant_id),
        id=id_text(account_id),
        grants=convert.grant_messages(grants),
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
    """Change the caller's own password, with the old one; or as an operator another's, who must then change it.

    The account's other sessions end. Raises InvalidArgument for a password that is short, common or was used before.
    """
    request = pb.SetPasswordRequest(
        tenant_id=id_text(tenant_id), id=id_text(account_id), old_password=old_password, new_password=new_password
    )
    return Call(f"{_ACCOUNTS}SetPassword", request, _nothing, request_id, timeout_s)


def login(
    login: str,
    password: str,
    *,
    new_password: str = "",
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Login]:
    """Open a session: its token is for another client. `new_password` takes the place of one that has expired.

    Raises Unauthenticated, and FailedPrecondition if the password must be changed.
    """

    def decode(answer: bytes) -> Login:
        return convert.login(pb.LoginResponse.FromString(answer))

    request = pb.LoginRequest(login=login, password=password, new_password=new_password)
    return Call(f"{_ACCOUNTS}Login", request, decode, request_id, timeout_s)


def logout(*, request_id: str | None = None, timeout_s: float | None = None) -> Call[None]:
    """End the session, or revoke the token, that this client calls with."""
    return Call(f"{_ACCOUNTS}Logout", pb.LogoutRequest(), _nothing, request_id, timeout_s)


def create_token(
    account_id: Id,
    name: str,
    *,
    lifetime_s: float = 0.0,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[NewToken]:
    """A token for a service account, shown this once. `lifetime_s` 0 is as long as the server allows."""

    def decode(answer: bytes) -> NewToken:
        return convert.new_token(pb.CreateTokenResponse.FromString(answer))

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
    """Sessions and tokens of an account, also those that ended lately. Everybody may see their own."""

    def decode(answer: bytes) -> tuple[TokenInfo, ...]:
        return convert.tokens(pb.ListTokensResponse.FromString(answer))

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
    """End a session or token of an account at once, or without `token_id` all of them; how many stood until now."""

    def decode(answer: bytes) -> int:
        return pb.RevokeTokenResponse.FromString(answer).revoked

    request = pb.RevokeTokenRequest(
        tenant_id=id_text(tenant_id), account_id=id_text(account_id), token_id=id_text(token_id)
    )
    return Call(f"{_ACCOUNTS}RevokeToken", request, decode, request_id, timeout_s)


def _nothing(_answer: bytes) -> None:
    return None
