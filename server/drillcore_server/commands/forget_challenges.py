"""Housekeeping: forgets what was prepared for signing and not signed in time."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from drillcore_fdb.engine import Engine, Options
from drillcore_fdb.tuples import KeyRange
from drillcore_server.store import signatures
from drillcore_server.store.keyspace import Keyspace

_BATCH = 1_000


def forget_challenges(engine: Engine, keys: Keyspace, now: datetime) -> int:
    """Removes every challenge that has expired, in as many transactions as it takes; how many."""
    forgotten, left = 0, keys.challenges()
    while True:
        work = partial(signatures.forget_expired, left=left, now=now, limit=_BATCH)
        batch, last = engine.run(work, Options(idempotent=True))
        forgotten += batch
        if last is None:
            return forgotten
        left = KeyRange(last + b"\xff", left.end)
