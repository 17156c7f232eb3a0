"""AccountService: converts requests to commands and results to responses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import accounts_pb2 as pb
from drillcore_server.identity.account_rules import checked_certificate
from drillcore_server.identity.accounts import (
    AccountChanges,
    create_account,
    get_account,
    list_accounts,
    set_grants,
    update_account,
)
from drillcore_server.identity.bearer_tokens import Mint
from drillcore_server.identity.credentials import Credentials, set_password
from drillcore_server.identity.sessions import create_token, list_tokens, login, logout, revoke_token
from drillcore_server.kernel.account_model import AccountKind, AccountState, Grant, Role, Session
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.messages import (
    account_id,
    optional_corpus_id,
    optional_tenant_id,
    optional_uuid,
    timestamp,
)
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.storage.ids import Level

_KINDS: Final = {pb.ACCOUNT_KIND_PERSON: AccountKind.PERSON, pb.ACCOUNT_KIND_SERVICE: AccountKind.SERVICE}
_ROLES: Final = {pb.Role.Value(f"ROLE_{role.name}"): role for role in Role}
_KIND_NUMBERS: Final = {kind: number for number, kind in _KINDS.items()}
_ROLE_NUMBERS: Final = {role: number for number, role in _ROLES.items()}


def account_kind(kind: pb.AccountKind.ValueType) -> AccountKind:
    if kind not in _KINDS:
        raise BadInput(Reason.INVALID_ARGUMENT, "kind must be a person or a service", field="kind")
    return _KINDS[kind]


def grants(messages: Iterable[pb.Grant]) -> list[Grant]:
    return [_grant(message) for message in messages]


def _grant(message: pb.Grant) -> Grant:
    if message.role not in _ROLES:
        raise BadInput(Reason.INVALID_ARGUMENT, "a grant must name a role", field="grants")
    if any(level not in set(Level) for level in message.levels):
        raise BadInput(Reason.INVALID_ARGUMENT, "a grant's levels are 0, raw, to 3, master", field="grants")
    return Grant(
        _ROLES[message.role],
        optional_tenant_id(message.tenant_id, "grants"),
        optional_corpus_id(message.corpus_id, "grants"),
        tuple(Level(level) for level in message.levels),
    )


def account_message(state: AccountState) -> pb.Account:
    account = state.account
    changed, locked = state.password_changed_at, state.locked_until
    return pb.Account(
        id=str(account.id),
        tenant_id=str(account.tenant_id or ""),
        kind=_KIND_NUMBERS[account.kind],
        login=account.login,
        name=account.name,
        grants=[_grant_message(grant) for grant in account.grants],
        disabled=account.disabled,
        created_at=timestamp(account.created_at),
        created_by=account.created_by,
        updated_at=timestamp(account.updated_at),
        version=account.version,
        certificate_sha256=[digest.hex() for digest in account.certificates],
        oidc_issuer=account.oidc_issuer,
        oidc_subject=account.oidc_subject,
        password_changed_at=None if changed is None else timestamp(changed),
        locked_until=None if locked is None else timestamp(locked),
    )


def _grant_message(grant: Grant) -> pb.Grant:
    return pb.Grant(
        role=_ROLE_NUMBERS[grant.role],
        tenant_id=str(grant.tenant or ""),
        corpus_id=str(grant.corpus or ""),
        levels=grant.levels,
    )


def token_message(session: Session) -> pb.TokenInfo:
    return pb.TokenInfo(
        id=session.id.hex,
        account_id=str(session.account),
        name=session.name,
        session=session.is_login,
        created_at=timestamp(session.created_at),
        expires_at=timestamp(session.expires_at),
        last_used_at=timestamp(session.last_used_at),
        revoked=session.revoked_at is not None,
    )


class AccountService:
    def __init__(self, unit: Unit, credentials: Credentials, mint: Mint) -> None:
        self._unit = unit
        self._credentials = credentials
        self._mint = mint

    def CreateAccount(self, request: pb.CreateAccountRequest, call: Call) -> pb.CreateAccountResponse:
        state = create_account(
            self._unit,
            call,
            self._credentials,
            tenant=optional_tenant_id(request.tenant_id),
            of_server=request.server_account,
            kind=account_kind(request.kind),
            login=request.login,
            name=request.name,
            grants=grants(request.grants),
            password=request.password,
            certificates=tuple(map(checked_certificate, request.certificate_sha256)),
            oidc_issuer=request.oidc_issuer,
            oidc_subject=request.oidc_subject,
        )
        return pb.CreateAccountResponse(account=account_message(state))

    def GetAccount(self, request: pb.GetAccountRequest, call: Call) -> pb.GetAccountResponse:
        state = get_account(
            self._unit,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            of_server=request.server_account,
            key=request.login if request.WhichOneof("key") == "login" else account_id(request.id),
        )
        return pb.GetAccountResponse(account=account_message(state))

    def ListAccounts(self, request: pb.ListAccountsRequest, call: Call) -> pb.ListAccountsResponse:
        page = list_accounts(
            self._unit,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            of_server=request.server_accounts,
            size=request.page_size,
            token=request.page_token,
        )
        return pb.ListAccountsResponse(accounts=map(account_message, page.items), next_page_token=page.next_token)

    def UpdateAccount(self, request: pb.UpdateAccountRequest, call: Call) -> pb.UpdateAccountResponse:
        changes = AccountChanges(
            name=request.name if request.HasField("name") else None,
            disabled=request.disabled if request.HasField("disabled") else None,
            unlock=request.unlock,
            add_certificates=tuple(map(checked_certificate, request.add_certificate_sha256)),
            remove_certificates=tuple(map(checked_certificate, request.remove_certificate_sha256)),
            oidc_issuer=request.oidc_issuer if request.HasField("oidc_issuer") else None,
            oidc_subject=request.oidc_subject if request.HasField("oidc_subject") else None,
        )
        state = update_account(
            self._unit,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            account_id=account_id(request.id),
            changes=changes,
            expected_version=request.expected_version if request.HasField("expected_version") else None,
        )
        return pb.UpdateAccountResponse(account=account_message(state))

    def SetGrants(self, request: pb.SetGrantsRequest, call: Call) -> pb.SetGrantsResponse:
        state = set_grants(
            self._unit,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            account_id=account_id(request.id),
            grants=grants(request.grants),
            expected_version=request.expected_version if request.HasField("expected_version") else None,
        )
        return pb.SetGrantsResponse(account=account_message(state))

    def SetPassword(self, request: pb.SetPasswordRequest, call: Call) -> pb.SetPasswordResponse:
        set_password(
            self._unit,
            call,
            self._credentials,
            tenant=optional_tenant_id(request.tenant_id),
            account_id=account_id(request.id) if request.id else None,
            old_password=request.old_password,
            new_password=request.new_password,
        )
        return pb.SetPasswordResponse()

    def Login(self, request: pb.LoginRequest, call: Call) -> pb.LoginResponse:
        opened = login(
            self._unit,
            call,
            self._credentials,
            self._mint,
            login=request.login,
            password=request.password,
            new_password=request.new_password,
        )
        return pb.LoginResponse(
            token=opened.token,
            expires_at=timestamp(opened.session.expires_at),
            idle_timeout_s=opened.session.idle_timeout_s or 0.0,
            account_id=str(opened.account.id),
            tenant_id=str(opened.account.tenant_id or ""),
        )

    def Logout(self, _request: pb.LogoutRequest, call: Call) -> pb.LogoutResponse:
        logout(self._unit, call)
        return pb.LogoutResponse()

    def CreateToken(self, request: pb.CreateTokenRequest, call: Call) -> pb.CreateTokenResponse:
        token, session = create_token(
            self._unit,
            call,
            self._mint,
            tenant=optional_tenant_id(request.tenant_id),
            account_id=account_id(request.account_id, "account_id"),
            name=request.name,
            lifetime_s=request.lifetime_s,
            lifetime_s_max=self._credentials.settings.token_s_max,
        )
        return pb.CreateTokenResponse(token=token, info=token_message(session))

    def ListTokens(self, request: pb.ListTokensRequest, call: Call) -> pb.ListTokensResponse:
        tenant, account = optional_tenant_id(request.tenant_id), account_id(request.account_id, "account_id")
        held = list_tokens(self._unit, call, tenant=tenant, account_id=account)
        return pb.ListTokensResponse(tokens=map(token_message, held))

    def RevokeToken(self, request: pb.RevokeTokenRequest, call: Call) -> pb.RevokeTokenResponse:
        revoked = revoke_token(
            self._unit,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            account_id=account_id(request.account_id, "account_id"),
            token_id=optional_uuid(request.token_id, "token_id"),
        )
        return pb.RevokeTokenResponse(revoked=revoked.count)
