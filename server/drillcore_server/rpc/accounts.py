"""AccountService: requests to commands, results to responses."""

from __future__ import annotations

from drillcore_proto.v1 import accounts_pb2 as pb
from drillcore_server.auth.tokens import Mint
from drillcore_server.commands.create_account import create_account
from drillcore_server.commands.create_token import create_token
from drillcore_server.commands.credentials import Credentials
from drillcore_server.commands.get_account import get_account
from drillcore_server.commands.list_accounts import list_accounts
from drillcore_server.commands.list_tokens import list_tokens
from drillcore_server.commands.login import login
from drillcore_server.commands.logout import logout
from drillcore_server.commands.revoke_token import revoke_token
from drillcore_server.commands.set_grants import set_grants
from drillcore_server.commands.set_password import set_password
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.commands.update_account import AccountChanges, update_account
from drillcore_server.domain.account_checks import checked_certificate
from drillcore_server.rpc.account_messages import account_kind, account_message, grants, token_message
from drillcore_server.rpc.messages import account_id, optional_tenant_id, optional_uuid, timestamp


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
