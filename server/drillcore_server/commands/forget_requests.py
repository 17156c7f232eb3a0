"""Housekeeping: forgets the outcomes of requests that nobody will retry any more."""

from __future__ import annotations

from datetime import datetime

from drillcore_fdb.engine import Engine, Options
from drillcore_server.store import requests
from drillcore_server.store.keyspace import Keyspace

_BATCH = 1_000


def forget_requests(engine: Engine, keys: Keyspace, before: datetime) -> int:
    """Removes every outcome older than `before`, in as many transactions as it takes; how many."""
    forgotten = 0
    while True:
        batch = engine.run(lambda tr: requests.forget_before(tr, keys, before, _BATCH), Options(idempotent=True))
        forgotten += batch
        if batch < _BATCH:
            return forgotten
