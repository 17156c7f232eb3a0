"""Sessions and tokens in the store, by the SHA-256 of the bearer token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from drillcore_fdb import codec
from drillcore_fdb.engine import RangeRead, Reader, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_fdb.tuples import KeyRange
from drillcore_proto.reasons import Reason
from drillcore_server.kernel.account_model import Session
from drillcore_server.kernel.errors import NotReady
from drillcore_server.storage.ids import AccountId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind

SESSION = RecordKind(Session)
USE_NOTED_EVERY: Final = timedelta(minutes=1)
SESSIONS_MAX: Final = 500
"""The most sessions of one account, including those that have ended but are not forgotten yet."""


def find_session(tr: Reader, keys: Keyspace, token_hash: bytes) -> Session | None:
    return SESSION.read(tr, keys.session(token_hash))


def note_use(tr: Transaction, keys: Keyspace, token_hash: bytes, now: datetime) -> None:
    """Notes that a session is in use, accurate to a minute, so that a busy session does not write with every call."""
    session = find_session(tr, keys, token_hash)
    if session is not None and now - session.last_used_at > USE_NOTED_EVERY:
        SESSION.write(tr, keys.session(token_hash), replace(session, last_used_at=now))


def open_session(tr: Transaction, keys: Keyspace, token_hash: bytes, session: Session) -> None:
    """Adds a session. If the account has too many, sessions that are over make room."""
    (held,) = tr.range_many([keys.account_sessions(session.account)])
    if len(held) >= SESSIONS_MAX:
        _make_room(tr, keys, session.account, session.created_at)
    SESSION.write(tr, keys.session(token_hash), session)
    tr.set(keys.account_session(session.account, token_hash), b"")


def _make_room(tr: Transaction, keys: Keyspace, account: AccountId, now: datetime) -> None:
    over = [token_hash for token_hash, session in sessions_of(tr, keys, account) if session.is_over(now)]
    if not over:
        raise NotReady(Reason.TOO_LARGE, f"the account has {SESSIONS_MAX} sessions and tokens; revoke some first")
    for token_hash in over:
        forget(tr, keys, account, token_hash)


def held_by(keys: Keyspace, account: AccountId) -> RangeRead:
    """What `sessions_of` and `open_session` read first, to be read ahead."""
    return RangeRead(*keys.account_sessions(account))


def sessions_of(tr: Reader, keys: Keyspace, account: AccountId) -> list[tuple[bytes, Session]]:
    """The sessions of an account with the hashes of their tokens, in no particular order."""
    (held,) = tr.range_many([keys.account_sessions(account)])
    hashes = [keys.parse_account_session(key) for key, _ in held]
    sessions = SESSION.read_many(tr, [keys.session(token_hash) for token_hash in hashes])
    if None in sessions:
        raise StoreCorruptError("a session that its account names is not there")
    return [(token_hash, session) for token_hash, session in zip(hashes, sessions, strict=True) if session is not None]


def scan(tr: Reader, among: KeyRange, limit: int) -> Iterator[tuple[bytes, Session]]:
    """The sessions of all accounts, each with its key."""
    for key, stored in codec.scan(tr, *among, limit=limit):
        yield key, SESSION.decode(stored)


def revoke(tr: Transaction, keys: Keyspace, token_hash: bytes, session: Session, now: datetime) -> bool:
    """Ends a session, and returns whether it was open until now."""
    if session.is_over(now):
        return False
    SESSION.write(tr, keys.session(token_hash), replace(session, revoked_at=now))
    return True


def revoke_all(tr: Transaction, keys: Keyspace, account: AccountId, now: datetime, *, but: bytes | None = None) -> int:
    """Ends every session and token of an account except `but`, and returns how many."""
    held = [found for found in sessions_of(tr, keys, account) if found[0] != but]
    return sum(revoke(tr, keys, token_hash, session, now) for token_hash, session in held)


def forget(tr: Transaction, keys: Keyspace, account: AccountId, token_hash: bytes) -> None:
    codec.clear(tr, keys.session(token_hash))
    tr.clear(keys.account_session(account, token_hash))
