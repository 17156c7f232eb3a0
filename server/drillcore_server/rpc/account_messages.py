"""Accounts, grants and tokens between messages and the domain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import accounts_pb2 as pb
from drillcore_server.domain.accounts import AccountKind, AccountState, Grant, Role, Session
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.nodes import Level
from drillcore_server.rpc.messages import optional_corpus_id, optional_tenant_id, timestamp

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
