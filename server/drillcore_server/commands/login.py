"""Login."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import uuid4

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted
from drillcore_server.auth.principal import Proof, principal_of
from drillcore_server.auth.tokens import Mint, digest
from drillcore_server.commands.credentials import Credentials, answered, check_same
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.account_checks import checked_login
from drillcore_server.domain.accounts import Account, Credential, Session
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import Denied, NotReady
from drillcore_server.store import accounts, sessions
from drillcore_server.store.sessions import SESSION


@dataclass(frozen=True, slots=True)
class LoggedIn:
    token: str
    session: Session
    account: Account


def login(
    unit: Unit, call: Call, credentials: Credentials, mint: Mint, *, login: str, password: str, new_password: str
) -> LoggedIn:
    """A session for a person. `new_password` takes the place of the password, which may have expired.

    The record, and the outcome for retries, are the account's own. A retry is known by its fingerprint, so by login
    and password, before the password is looked at: it may not be the account's any more.
    """
    folded = checked_login(login)
    account = unit.look(call, access.nobody, lambda tr, _granted: accounts.find_by_login(tr, unit.keys, folded))
    if account is None:
        credentials.prove(call, None, password)
        raise AssertionError("nobody has no password")
    own = replace(call, principal=principal_of(account, Proof.PASSWORD))
    token = mint.token("session", own.principal.id, call.request_id, call.fingerprint, password)
    known = answered(unit, own, SESSION)
    proven = credentials.prove(call, account, password, repeated=known is not None)
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

    return LoggedIn(token, unit.write(own, access.nobody, SESSION, work), account)


def _standing(unit: Unit, own: Call, token: str) -> Session:
    """The session that an earlier run of the request opened."""

    def find(tr: Reader, _granted: Granted) -> Session:
        session = sessions.find_session(tr, unit.keys, digest(token))
        if session is None or session.is_over(own.at):
            raise Denied(Reason.SESSION_OVER, "the session that this request opened has ended; log in under a new id")
        return session

    return unit.look(own, access.nobody, find)


def _changed(
    call: Call, credentials: Credentials, account: Account, proven: Credential, password: str, new_password: str
) -> Credential:
    """The credential after the login: with the new password, or the old one hashed as the settings now want it."""
    if new_password:
        new_hash = credentials.new_hash(account, proven, new_password)
        return credentials.changed(proven, new_hash, call.at, by_other=False)
    if proven.is_expired(call.at, credentials.settings.password_age_s_max):
        message = "the password must be changed: log in with it and a new one"
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
    """The password was looked at before the transaction: meanwhile it, or the account, may be another's to use."""
    check_same(accounts.find_credential(tr, unit.keys, account.id), proven)
    now = accounts.find(tr, unit.keys, account.id)
    if now is None or now.disabled:
        raise Denied(Reason.ACCOUNT_DISABLED, "the account is disabled")
