"""Passwords: what they must be, how they are hashed, and what happens when somebody guesses them.

A password must be long; no characters are prescribed. It is stored as an Argon2id hash. Hashing takes much time and
memory, so it is done outside of transactions.

An attempt is counted before the password is checked, in a transaction of its own. However many guess at once, on
however many servers, no more than `failures_max` guesses are checked until one is right. Then the account is locked for
a while, which is an alert in the audit log.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import unicodedata
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from importlib import resources
from typing import Final, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from drillcore_fdb.engine import Reader, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_proto.reasons import Reason
from drillcore_server.identity.settings import AuthSettings
from drillcore_server.kernel import access
from drillcore_server.kernel import account_store as accounts
from drillcore_server.kernel import session_store as sessions
from drillcore_server.kernel.access import SERVER, Granted
from drillcore_server.kernel.account_model import Account, AccountKind, AccountState, Credential
from drillcore_server.kernel.account_store import ACCOUNT_STATE
from drillcore_server.kernel.errors import BadInput, Denied, Unavailable
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit, errors_as_refusals, find_outcome
from drillcore_server.storage.ids import AccountId, RequestId, TenantId
from drillcore_server.storage.records import RecordKind

PASSWORD_CHARACTERS_MAX: Final = 1_024
DIFFERENT_CHARACTERS_MIN: Final = 5
_TELLING_CHARACTERS_MIN: Final = 4
"""The shortest word about a person that a password must not contain: shorter ones occur by chance."""
_TRIMMINGS: Final = "0123456789!?.,;:-_*#$%&+=@ "


def composed(password: str) -> str:
    """The password in the form that is hashed, which does not depend on the keyboard."""
    return unicodedata.normalize("NFKC", password)


def check_password(
    password: str, *, characters_min: int, login: str, name: str, common: Collection[str], field: str = "new_password"
) -> None:
    """Raises `BadInput`, which says what is wrong but never repeats the password."""
    given = composed(password)
    if not characters_min <= len(given) <= PASSWORD_CHARACTERS_MAX:
        raise _refused(f"a password needs {characters_min} to {PASSWORD_CHARACTERS_MAX} characters", field)
    if len(set(given)) < DIFFERENT_CHARACTERS_MIN:
        raise _refused(f"a password needs {DIFFERENT_CHARACTERS_MIN} different characters", field)
    folded = given.casefold()
    if any(word in folded for word in _words_of(login, name)):
        raise _refused("a password must not hold the login or the name", field)
    if {folded, folded.strip(_TRIMMINGS), "".join(folded.split())} & set(common):
        raise _refused("the password is among the first that others try", field)


def _words_of(login: str, name: str) -> list[str]:
    words = [login, login.partition("@")[0], name, *name.split()]
    return [word.casefold() for word in words if len(word) >= _TELLING_CHARACTERS_MIN]


def _refused(message: str, field: str) -> BadInput:
    return BadInput(Reason.PASSWORD_REFUSED, message, field=field)


class Passwords:
    def __init__(self, settings: AuthSettings) -> None:
        self._settings = settings
        self._hasher = PasswordHasher(
            time_cost=settings.argon2_passes,
            memory_cost=settings.argon2_memory_kib,
            parallelism=settings.argon2_lanes,
        )
        self._turns = threading.BoundedSemaphore(settings.hashes_at_once)
        self._common = _common_passwords()
        self._nobodys = self.hash(secrets.token_urlsafe())

    def hash(self, password: str) -> str:
        with self._turns:
            return self._hasher.hash(composed(password))

    def is_right(self, kept: str | None, password: str) -> bool:
        """Whether the password is right. Takes as long if the account has none."""
        if len(password) > PASSWORD_CHARACTERS_MAX:
            return False
        with self._turns:
            try:
                return self._hasher.verify(kept or self._nobodys, composed(password)) and kept is not None
            except VerifyMismatchError:
                return False
            except (InvalidHashError, VerificationError) as error:
                raise StoreCorruptError("a stored password hash cannot be read") from error

    def is_outdated(self, kept: str) -> bool:
        """Whether the settings of hashes have changed since this one was made."""
        return self._hasher.check_needs_rehash(kept)

    def check_new(
        self, password: str, *, login: str, name: str, earlier: Iterable[str] = (), field: str = "new_password"
    ) -> None:
        """Raises `BadInput` for a password that must not be used. `earlier` are hashes, newest first."""
        settings = self._settings
        check_password(
            password,
            characters_min=settings.password_characters_min,
            login=login,
            name=name,
            common=self._common,
            field=field,
        )
        for kept in [*earlier][: settings.passwords_remembered]:
            if self.is_right(kept, password):
                message = f"the password is one of the last {settings.passwords_remembered}"
                raise BadInput(Reason.PASSWORD_REFUSED, message, field=field)


def _common_passwords() -> frozenset[str]:
    text = resources.files("drillcore_server.identity").joinpath("common_passwords.txt").read_text("utf-8")
    return frozenset(line for line in text.split("\n") if line)


T = TypeVar("T")


class Credentials:
    def __init__(self, unit: Unit, settings: AuthSettings, on_lockout: Callable[[AccountId], None]) -> None:
        """Calls `on_lockout` for each account that gets locked."""
        self._unit = unit
        self._keys = unit.keys
        self._on_lockout = on_lockout
        self.settings = settings
        self.passwords = Passwords(settings)

    def attempt(self, tr: Transaction, call: Call, account: Account) -> Credential | None:
        """Counts an attempt to use the password, in a transaction that is committed before the password is checked.

        Returns the counted credential, for `prove`; None if the account has no password. A re-run after a commit with
        an unknown result may count it twice, which is safe. Raises `Denied`: ACCOUNT_LOCKED.
        """
        call.trails[:] = [Trail(tenant=account.tenant_id, detail={"account_id": str(account.id)})]
        known = accounts.find_credential(tr, self._keys, account.id)
        if known is None:
            return None
        self._check_not_locked(known, call.at)
        before = known.attempts if known.attempts < self.settings.failures_max else 0
        tried = replace(known, attempts=before + 1, attempted_at=call.at, locked_until=None)
        accounts.put_credential(tr, self._keys, account.id, tried)
        return tried

    def prove(
        self, call: Call, account: Account | None, tried: Credential | None, password: str, *, repeated: bool = False
    ) -> Credential:
        """The stored credential, if the password is right. A refusal takes as long if there is no such account.

        `tried` is what `attempt` returned.

        `repeated`: the request has the login and password of one that was answered. Its password is not checked again,
        since that request may have changed it. It still counts as an attempt, or the password could be guessed.

        Raises `Denied`: LOGIN_FAILED, ACCOUNT_LOCKED or, to those who know the password, ACCOUNT_DISABLED.
        """
        with errors_as_refusals():
            right = repeated or self.passwords.is_right(None if tried is None else tried.hash, password)
        if account is None or tried is None or not right:
            if account is not None and tried is not None and tried.attempts == self.settings.failures_max:
                self._lock(call, account)
            raise Denied(Reason.LOGIN_FAILED, "login and password do not match an account that may log in")
        proven = self._forgive(call, account.id, tried)
        if account.disabled:
            raise Denied(Reason.ACCOUNT_DISABLED, "the account is disabled")
        return proven

    def new_hash(self, account: Account, old: Credential | None, password: str, field: str = "new_password") -> str:
        """The hash of a new password. Raises `BadInput` if it must not be used."""
        earlier = () if old is None else (old.hash, *old.earlier)
        self.passwords.check_new(password, login=account.login, name=account.name, earlier=earlier, field=field)
        return self.passwords.hash(password)

    def changed(self, old: Credential | None, new_hash: str, at: datetime, *, by_other: bool) -> Credential:
        """The credential with the new password.

        A password that another person set must be changed at the next login.
        """
        earlier = () if old is None else (old.hash, *old.earlier)[: self.settings.passwords_remembered]
        return Credential(new_hash, at, by_other, earlier)

    def _check_not_locked(self, known: Credential, now: datetime) -> None:
        until = known.locked_until
        if until is None and known.attempted_at is not None and known.attempts >= self.settings.failures_max:
            until = known.attempted_at + timedelta(seconds=self.settings.lockout_s)
        if until is not None and now < until:
            message = f"too many failures: the account is locked until {until.isoformat(timespec='seconds')}"
            raise Denied(Reason.ACCOUNT_LOCKED, message, locked_until=until.isoformat())

    def _forgive(self, call: Call, account: AccountId, tried: Credential) -> Credential:
        """Resets the count after a correct password, unless the account was locked meanwhile."""

        def work(tr: Transaction) -> Credential:
            known = accounts.find_credential(tr, self._keys, account)
            check_same(known, tried)
            assert known is not None
            if known.locked_until is not None:
                self._check_not_locked(known, call.at)
            proven = replace(known, attempts=0, attempted_at=None, locked_until=None)
            accounts.put_credential(tr, self._keys, account, proven)
            return proven

        return self._unit.note(call, work)

    def _lock(self, call: Call, account: Account) -> None:
        until = call.at + timedelta(seconds=self.settings.lockout_s)
        name = RequestId(f"lockout/{account.id}/{call.at.isoformat()}")
        fingerprint = hashlib.sha256(name.encode()).digest()
        alert = Call("Alert", name, SERVER, call.at, call.timeout_s, fingerprint, client=call.client)

        def work(tr: Transaction, _granted: Granted, trail: Trail) -> AccountState:
            trail.detail = {"kind": "lockout", "account_id": str(account.id), "locked_until": until.isoformat()}
            known = accounts.find_credential(tr, self._keys, account.id)
            assert known is not None, "a password is never taken away"
            accounts.put_credential(tr, self._keys, account.id, replace(known, locked_until=until))
            return AccountState(account, known.changed_at, until)

        self._unit.write(alert, access.as_server(account.tenant_id), ACCOUNT_STATE, work)
        self._on_lockout(account.id)


def answered(tr: Reader, unit: Unit, call: Call, result: RecordKind[T]) -> T | None:
    """What this request did when it was made before.

    Does not reveal that another request had the same id, which would help guessers: `unit.write` refuses it once the
    password is proved.
    """
    outcome = find_outcome(tr, unit.keys, call.principal.id, call.request_id)
    if outcome is None or outcome.fingerprint != unit.journal.keyed(call.fingerprint):
        return None
    return result.decode(outcome.result)


def check_same(known: Credential | None, expected: Credential | None) -> None:
    """Raises `Unavailable` if the password was changed since it was checked, outside of the transaction."""
    if (known and known.hash) != (expected and expected.hash):
        raise Unavailable(
            Reason.CONFLICT, "somebody changed the password at the same time; nothing was done, try again"
        )


def set_password(
    unit: Unit,
    call: Call,
    credentials: Credentials,
    *,
    tenant: TenantId | None,
    account_id: AccountId | None,
    old_password: str,
    new_password: str,
) -> AccountState:
    """Sets the caller's own password, proved with the old one, or as an operator that of another account.

    The other person must change it at the next login. Every session but the calling one ends.
    """
    own = account_id in {None, call.principal.account}
    target = call.principal.account if account_id is None else account_id
    if target is None:
        raise BadInput(Reason.INVALID_ARGUMENT, "this caller has no account, so no password of its own", field="id")
    rule = access.account_manager_or_self(tenant, target)

    def find(tr: Transaction, granted: Granted) -> tuple[Account, Credential | None, AccountState | None]:
        account = accounts.get(tr.snapshot, unit.keys, granted.tenant, target)
        if account.kind is not AccountKind.PERSON:
            raise BadInput(Reason.INVALID_ARGUMENT, "a service account has tokens, no password", field="id")
        known = answered(tr.snapshot, unit, call, ACCOUNT_STATE)
        if own:
            return account, credentials.attempt(tr, call, account), known
        return account, accounts.find_credential(tr.snapshot, unit.keys, target), known

    expected = [unit.keys.account(target), unit.keys.credential(target)]
    account, old, known = unit.look_and_note(call, rule, find, expected=expected)
    if own:
        old = credentials.prove(call, account, old, old_password, repeated=known is not None)
    if known is not None:
        return known
    new_hash = credentials.new_hash(account, old, new_password)

    def work(tr: Transaction, _granted: Granted, trail: Trail) -> AccountState:
        check_same(accounts.find_credential(tr, unit.keys, target), old)
        changed = credentials.changed(old, new_hash, call.at, by_other=not own)
        accounts.put_credential(tr, unit.keys, target, changed)
        kept = call.principal.session if own else None
        trail.detail["account_id"] = str(target)
        trail.detail["revoked"] = sessions.revoke_all(tr, unit.keys, target, call.at, but=kept)
        return accounts.state_of(tr, unit.keys, account)

    ranges = [sessions.held_by(unit.keys, target)]
    return unit.write(call, rule, ACCOUNT_STATE, work, expected=expected, ranges=ranges)
