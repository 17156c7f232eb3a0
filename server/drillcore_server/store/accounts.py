"""Accounts and their sessions in the store."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from drillcore_fdb.engine import Reader, Transaction
from drillcore_server.domain.accounts import Account, Session
from drillcore_server.domain.ids import AccountId
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.records import RecordKind

ACCOUNT = RecordKind(Account)
SESSION = RecordKind(Session)
USE_NOTED_EVERY: Final = timedelta(minutes=1)


def find(tr: Reader, keys: Keyspace, account: AccountId) -> Account | None:
    return ACCOUNT.read(tr, keys.account(account))


def find_session(tr: Reader, keys: Keyspace, token_hash: bytes) -> Session | None:
    return SESSION.read(tr, keys.session(token_hash))


def note_use(tr: Transaction, keys: Keyspace, token_hash: bytes, now: datetime) -> None:
    """Notes that a session is in use, to the minute: a busy one does not write with every call."""
    session = find_session(tr, keys, token_hash)
    if session is not None and now - session.last_used_at > USE_NOTED_EVERY:
        SESSION.write(tr, keys.session(token_hash), replace(session, last_used_at=now))
