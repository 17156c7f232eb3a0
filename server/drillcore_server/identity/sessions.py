"""The commands of sessions and tokens: log in, log out, create, list and revoke tokens, forget old ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple
from uuid import UUID, uuid4

from drillcore_fdb.engine import Engine, Options, Reader, Transaction
from drillcore_fdb.tuples import KeyRange
from drillcore_proto.reasons import Reason
from drillcore_server.identity.account_rules import checked_login
from drillcore_server.identity.bearer_tokens import Mint, digest
from drillcore_server.identity.credentials import Credentials, answered, check_same
from drillcore_server.kernel import access
from drillcore_server.kernel import account_store as accounts
from drillcore_server.kernel import session_store as sessions
from drillcore_server.kernel.access import Granted, Principal, Proof, principal_of
from drillcore_server.kernel.account_model import Account, AccountKind, Credential, Session
from drillcore_server.kernel.errors import BadInput, Denied, Missing, NotReady
from drillcore_server.kernel.named import checked_name
from drillcore_server.kernel.session_store import SESSION
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.storage.ids import AccountId, PrincipalId, TenantId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind


@dataclass(frozen=True, slots=True)
class LoggedIn:
    token: str
    session: Session
    account: Account


class _Found(NamedTuple):
    account: Account
    own: Call
    """The call as one of the account."""
    known: Session | None
    """The session that an earlier run of this request opened."""
    tried: Credential | None
    """The credential, with this attempt counted."""


def login(
    unit: Unit, call: Call, credentials: Credentials, mint: Mint, *, login: str, password: str, new_password: str
) -> LoggedIn:
    """Opens a session for a person. `new_password` replaces the password, which may have expired.

    The audit record and the outcome for retries belong to the account. A retry is recognised by its fingerprint, that
    is by login and password, before the password is checked: the account may have another one by then.
    """
    folded = checked_login(login)

    def ahead(account: AccountId) -> list[bytes]:
        return [unit.keys.request(PrincipalId(str(account)), call.request_id), unit.keys.credential(account)]

    def find(tr: Transaction, _granted: Granted) -> _Found | None:
        account = accounts.find_by_login(tr.snapshot, unit.keys, folded, ahead)
        if account is None:
            return None
        own = replace(call, principal=principal_of(account, Proof.PASSWORD))
        known = answered(tr.snapshot, unit, own, SESSION)
        return _Found(account, own, known, credentials.attempt(tr, call, account))

    found = unit.look_and_note(call, access.nobody, find, expected=[unit.keys.login(folded)])
    if found is None:
        credentials.prove(call, None, None, password)
        raise AssertionError("nobody has no password")
    account, own, known, tried = found
    token = mint.token("session", own.principal.id, call.request_id, call.fingerprint, password)
    proven = credentials.prove(call, account, tried, password, repeated=known is not None)
    if known is not None:
        return LoggedIn(token, _standing(unit, own, token), account)
    changed = _changed(call, credentials, account, proven, password, new_password)
    session = _session(call, credentials, account)

    def work(tr: Transaction, _granted: Granted, trail: Trail) -> Session:
        _check_unchanged(tr, unit, account, proven)
        if changed != proven:
            accounts.put_credential(tr, unit.keys, account.id, changed)
        if new_password:
            trail.detail["revoked"] = sessions.revoke_all(tr, unit.keys, account.id, call.at)
        sessions.open_session(tr, unit.keys, digest(token), session)
        trail.detail |= {"account_id": str(account.id), "session_id": str(session.id)}
        return session

    expected, ranges = [unit.keys.credential(account.id)], [sessions.held_by(unit.keys, account.id)]
    opened = unit.write(own, access.nobody, SESSION, work, expected=expected, ranges=ranges)
    return LoggedIn(token, opened, account)


def _standing(unit: Unit, own: Call, token: str) -> Session:
    """The session that an earlier run of this request opened."""

    def find(tr: Reader, _granted: Granted) -> Session:
        session = sessions.find_session(tr, unit.keys, digest(token))
        if session is None or session.is_over(own.at):
            raise Denied(Reason.SESSION_OVER, "the session that this request opened has ended; log in under a new id")
        return session

    return unit.look(own, access.nobody, find)


def _changed(
    call: Call, credentials: Credentials, account: Account, proven: Credential, password: str, new_password: str
) -> Credential:
    """The credential after the login: with the new password, or with the old one hashed as the settings now demand."""
    if new_password:
        new_hash = credentials.new_hash(account, proven, new_password)
        return credentials.changed(proven, new_hash, call.at, by_other=False)
    if proven.is_expired(call.at, credentials.settings.password_age_s_max):
        message = "the password must be changed: log in with it and a new one (drillcore login --new-password-file)"
        raise NotReady(Reason.PASSWORD_EXPIRED, message)
    if credentials.passwords.is_outdated(proven.hash):
        return replace(proven, hash=credentials.passwords.hash(password))
    return proven


def _session(call: Call, credentials: Credentials, account: Account) -> Session:
    settings = credentials.settings
    return Session(
        id=uuid4(),
        account=account.id,
        name="",
        is_login=True,
        created_at=call.at,
        expires_at=call.at + timedelta(seconds=settings.session_s_max),
        idle_timeout_s=settings.session_idle_s,
        last_used_at=call.at,
    )


def _check_unchanged(tr: Reader, unit: Unit, account: Account, proven: Credential) -> None:
    """Checks again inside the transaction.

    The password or the account may have changed since the password was checked.
    """
    check_same(accounts.find_credential(tr, unit.keys, account.id), proven)
    now = accounts.find(tr, unit.keys, account.id)
    if now is None or now.disabled:
        raise Denied(Reason.ACCOUNT_DISABLED, "the account is disabled")


def logout(unit: Unit, call: Call) -> None:
    """Ends the session or token that the call was made with."""
    token_hash = call.principal.session
    if token_hash is None:
        raise BadInput(Reason.INVALID_ARGUMENT, "this caller has no session that could end")

    def work(tr: Transaction, _granted: Granted, trail: Trail) -> Session:
        session = sessions.find_session(tr, unit.keys, token_hash)
        if session is None or not sessions.revoke(tr, unit.keys, token_hash, session, call.at):
            raise Denied(Reason.SESSION_OVER, "the session had ended before")
        trail.detail |= {"account_id": str(session.account), "session_id": str(session.id)}
        return session

    unit.write(call, _with_a_session, SESSION, work)


def _with_a_session(_tr: Reader, _keys: Keyspace, principal: Principal, _now: datetime) -> Granted:
    """Also allows a session that has ended: a retry must learn that this request ended it."""
    return Granted(principal, principal.tenant)


_BATCH = 1_000


def forget_sessions(engine: Engine, keys: Keyspace, ended_before: datetime) -> int:
    """Removes the sessions that had ended by then, in as many transactions as needed, and returns how many."""
    forgotten, left = 0, keys.sessions()
    while True:
        work = partial(_forget, keys=keys, left=left, ended_before=ended_before)
        batch, last = engine.run(work, Options(idempotent=True))
        forgotten += batch
        if last is None:
            return forgotten
        left = KeyRange(last + b"\xff", left.end)


def _forget(tr: Transaction, keys: Keyspace, left: KeyRange, ended_before: datetime) -> tuple[int, bytes | None]:
    """How many of a batch were removed, and the last key of the batch if there may be more after it."""
    batch = list(sessions.scan(tr.snapshot, left, _BATCH))
    over = [(key, session) for key, session in batch if session.ends_at() < ended_before]
    for key, session in over:
        sessions.forget(tr, keys, session.account, keys.parse_session(key))
    return len(over), batch[-1][0] if len(batch) == _BATCH else None


def create_token(
    unit: Unit,
    call: Call,
    mint: Mint,
    *,
    tenant: TenantId | None,
    account_id: AccountId,
    name: str,
    lifetime_s: float,
    lifetime_s_max: float,
) -> tuple[str, Session]:
    """Makes a token for a service account. Returns it with its session. A lifetime of 0 means the longest allowed."""
    if not (math.isfinite(lifetime_s) and 0 <= lifetime_s <= lifetime_s_max):
        message = f"lifetime_s must be 0 to {lifetime_s_max:g}, which is the longest that this server allows"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="lifetime_s")
    token = mint.token("token", call.principal.id, call.request_id, call.fingerprint)
    session = Session(
        id=uuid4(),
        account=account_id,
        name=checked_name(name),
        is_login=False,
        created_at=call.at,
        expires_at=call.at + timedelta(seconds=lifetime_s or lifetime_s_max),
        idle_timeout_s=None,
        last_used_at=call.at,
    )

    def work(tr: Transaction, granted: Granted, trail: Trail) -> Session:
        account = accounts.get(tr, unit.keys, granted.tenant, account_id)
        if account.kind is not AccountKind.SERVICE:
            raise BadInput(
                Reason.INVALID_ARGUMENT, "people log in: only a service account has tokens", field="account_id"
            )
        if account.disabled:
            raise NotReady(Reason.ACCOUNT_DISABLED, "the account is disabled")
        sessions.open_session(tr, unit.keys, digest(token), session)
        trail.detail |= {"account_id": str(account_id), "token_id": session.id.hex}
        return session

    expected, ranges = [unit.keys.account(account_id)], [sessions.held_by(unit.keys, account_id)]
    return token, unit.write(call, access.account_manager(tenant), SESSION, work, expected=expected, ranges=ranges)


def list_tokens(unit: Unit, call: Call, *, tenant: TenantId | None, account_id: AccountId) -> list[Session]:
    """Sessions and tokens of an account, oldest first, including those that ended lately.

    Everybody may see their own.
    """

    def work(tr: Reader, granted: Granted, trail: Trail) -> list[Session]:
        account = accounts.get(tr, unit.keys, granted.tenant, account_id)
        held = [session for _, session in sessions.sessions_of(tr, unit.keys, account.id)]
        trail.detail |= {"account_id": str(account.id), "tokens": len(held)}
        return sorted(held, key=lambda session: (session.created_at, session.id))

    rule = access.account_manager_or_self(tenant, account_id)
    return unit.read(call, rule, work, expected=[unit.keys.account(account_id)])


@dataclass(frozen=True, slots=True)
class Revoked:
    count: int


REVOKED = RecordKind(Revoked)


def revoke_token(
    unit: Unit, call: Call, *, tenant: TenantId | None, account_id: AccountId, token_id: UUID | None
) -> Revoked:
    """Ends a session or token of an account, or without an id all of them. Everybody may end their own."""

    def work(tr: Transaction, granted: Granted, trail: Trail) -> Revoked:
        account = accounts.get(tr, unit.keys, granted.tenant, account_id)
        held = [
            (token_hash, session)
            for token_hash, session in sessions.sessions_of(tr, unit.keys, account.id)
            if token_id in {None, session.id}
        ]
        if token_id is not None and not held:
            raise Missing(Reason.TOKEN_NOT_FOUND, "the account has no such token")
        count = sum(sessions.revoke(tr, unit.keys, token_hash, session, call.at) for token_hash, session in held)
        trail.detail |= {"account_id": str(account.id), "revoked": count}
        if token_id is not None:
            trail.detail["token_id"] = token_id.hex
        return Revoked(count)

    rule = access.account_manager_or_self(tenant, account_id)
    return unit.write(call, rule, REVOKED, work, expected=[unit.keys.account(account_id)])
