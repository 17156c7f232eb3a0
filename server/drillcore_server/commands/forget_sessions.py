"""Housekeeping: forgets sessions and tokens that ended long ago. That they were there is in the audit trail."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from drillcore_fdb.engine import Engine, Options, Transaction
from drillcore_fdb.tuples import KeyRange
from drillcore_server.store import sessions
from drillcore_server.store.keyspace import Keyspace

_BATCH = 1_000


def forget_sessions(engine: Engine, keys: Keyspace, ended_before: datetime) -> int:
    """Removes what had ended by then, in as many transactions as it takes; how many."""
    forgotten, left = 0, keys.sessions()
    while True:
        work = partial(_forget, keys=keys, left=left, ended_before=ended_before)
        batch, last = engine.run(work, Options(idempotent=True))
        forgotten += batch
        if last is None:
            return forgotten
        left = KeyRange(last + b"\xff", left.end)


def _forget(tr: Transaction, keys: Keyspace, left: KeyRange, ended_before: datetime) -> tuple[int, bytes | None]:
    """How many of a batch were forgotten, and the last key of the batch if there may be more behind it."""
    batch = list(sessions.scan(tr.snapshot, left, _BATCH))
    over = [(key, session) for key, session in batch if session.ends_at() < ended_before]
    for key, session in over:
        sessions.forget(tr, keys, session.account, keys.parse_session(key))
    return len(over), batch[-1][0] if len(batch) == _BATCH else None
