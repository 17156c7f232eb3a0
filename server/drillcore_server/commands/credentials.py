"""Whether a caller knows an account's password, and what follows if it does not.

An attempt is counted before the password is looked at, in a transaction of its own: however many guess at once, on
however many servers, no more than `failures_max` are looked at until one is right. Then the account is locked for a
while, which is an alert on the record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted
from drillcore_server.auth.passwords import Passwords
from drillcore_server.auth.principal import SERVER
from drillcore_server.auth.settings import AuthSettings
from drillcore_server.commands.unit import Call, Unit, refusing
from drillcore_server.domain.accounts import Account, AccountState, Credential
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import Denied, Unavailable
from drillcore_server.domain.ids import AccountId, RequestId
from drillcore_server.store import accounts, requests
from drillcore_server.store.accounts import ACCOUNT_STATE
from drillcore_server.store.records import RecordKind

T = TypeVar("T")


class Credentials:
    def __init__(self, unit: Unit, settings: AuthSettings, on_lockout: Callable[[AccountId], None]) -> None:
        """`on_lockout` is told of each account that is locked."""
        self._unit = unit
        self._keys = unit.keys
        self._on_lockout = on_lockout
        self.settings = settings
        self.passwords = Passwords(settings)

    def prove(self, call: Call, account: Account | None, password: str, *, repeated: bool = False) -> Credential:
        """What is kept of the password, if it is the account's. Without an account it takes as long to refuse.

        A request that is `repeated`, so has login and password of one that was answered, is not asked again whether it
        is right: it may have changed the password. It counts as an attempt all the same, or it could be guessed.

        Raises `Denied`: LOGIN_FAILED, ACCOUNT_LOCKED or, to those who know the password, ACCOUNT_DISABLED.
        """
        if account is not None:
            call.trails[:] = [Trail(tenant=account.tenant_id, detail={"account_id": str(account.id)})]
        tried = None if account is None else self._count(call, account.id)
        with refusing():
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
        """The hash of a new password. Raises `BadInput` for one that must not be used."""
        earlier = () if old is None else (old.hash, *old.earlier)
        self.passwords.check_new(password, login=account.login, name=account.name, earlier=earlier, field=field)
        return self.passwords.hash(password)

    def changed(self, old: Credential | None, new_hash: str, at: datetime, *, by_other: bool) -> Credential:
        """What is kept from now on. A password that was set by another must be changed at the next login."""
        earlier = () if old is None else (old.hash, *old.earlier)[: self.settings.passwords_remembered]
        return Credential(new_hash, at, by_other, earlier)

    def _count(self, call: Call, account: AccountId) -> Credential | None:
        """Counts an attempt. Run again after a commit with an unknown result it may count twice: the safe side."""

        def work(tr: Transaction) -> Credential | None:
            known = accounts.find_credential(tr, self._keys, account)
            if known is None:
                return None
            self._check_not_locked(known, call.at)
            before = known.attempts if known.attempts < self.settings.failures_max else 0
            tried = replace(known, attempts=before + 1, attempted_at=call.at, locked_until=None)
            accounts.put_credential(tr, self._keys, account, tried)
            return tried

        return self._unit.note(call, work)

    def _check_not_locked(self, known: Credential, now: datetime) -> None:
        until = known.locked_until
        if until is None and known.attempted_at is not None and known.attempts >= self.settings.failures_max:
            until = known.attempted_at + timedelta(seconds=self.settings.lockout_s)
        if until is not None and now < until:
            message = f"too many failures: the account is locked until {until.isoformat(timespec='seconds')}"
            raise Denied(Reason.ACCOUNT_LOCKED, message, locked_until=until.isoformat())

    def _forgive(self, call: Call, account: AccountId, tried: Credential) -> Credential:
        """The password was right: what failed before no longer counts, unless it locked the account meanwhile."""

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


def answered(unit: Unit, call: Call, result: RecordKind[T]) -> T | None:
    """What this very request did when it was made before. Of another with its id nothing is said: that would tell
    those who guess what it held; `unit.write` refuses it once the password is proved."""

    def find(tr: Reader, _granted: Granted) -> T | None:
        outcome = requests.find(tr, unit.keys, call.principal.id, call.request_id)
        if outcome is None or outcome.fingerprint != unit.journal.keyed(call.fingerprint):
            return None
        return result.decode(outcome.result)

    return unit.look(call, access.nobody, find)


def check_same(known: Credential | None, expected: Credential | None) -> None:
    """The password was verified, or hashed, outside the transaction: it must still be the one that was looked at."""
    if (known and known.hash) != (expected and expected.hash):
        raise Unavailable(Reason.CONFLICT, "the password was changed by another meanwhile; nothing was done")
