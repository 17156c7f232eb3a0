"""Accounts between messages and results."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from drillcore._account_results import Account, AccountKind, Grant, Login, NewToken, Role, TokenInfo
from drillcore._call import id_text
from drillcore._convert import to_datetime, to_id
from drillcore._node_results import Level
from drillcore._results import Page
from drillcore_proto.v1 import accounts_pb2 as pb


def account_kind(kind: AccountKind) -> pb.AccountKind.ValueType:
    return pb.AccountKind.Value(f"ACCOUNT_KIND_{kind.name}")


def grant_messages(grants: Iterable[Grant]) -> list[pb.Grant]:
    return [
        pb.Grant(
            role=pb.Role.Value(f"ROLE_{grant.role.name}"),
            tenant_id=id_text(grant.tenant_id),
            corpus_id=id_text(grant.corpus_id),
            levels=[level.value for level in grant.levels],
        )
        for grant in grants
    ]


def account(message: pb.Account) -> Account:
    return Account(
        id=UUID(message.id),
        tenant_id=to_id(message.tenant_id),
        kind=AccountKind[pb.AccountKind.Name(message.kind).removeprefix("ACCOUNT_KIND_")],
        login=message.login,
        name=message.name,
        grants=tuple(_grant(grant) for grant in message.grants),
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


def _grant(message: pb.Grant) -> Grant:
    return Grant(
        role=Role[pb.Role.Name(message.role).removeprefix("ROLE_")],
        tenant_id=to_id(message.tenant_id),
        corpus_id=to_id(message.corpus_id),
        levels=tuple(Level(level) for level in message.levels),
    )


def accounts(message: pb.ListAccountsResponse) -> Page[Account]:
    return Page(tuple(account(one) for one in message.accounts), message.next_page_token)


def login(message: pb.LoginResponse) -> Login:
    return Login(
        token=message.token,
        expires_at=to_datetime(message.expires_at),
        idle_timeout_s=message.idle_timeout_s,
        account_id=UUID(message.account_id),
        tenant_id=to_id(message.tenant_id),
    )


def new_token(message: pb.CreateTokenResponse) -> NewToken:
    return NewToken(message.token, _token_info(message.info))


def tokens(message: pb.ListTokensResponse) -> tuple[TokenInfo, ...]:
    return tuple(_token_info(one) for one in message.tokens)


def _token_info(message: pb.TokenInfo) -> TokenInfo:
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
