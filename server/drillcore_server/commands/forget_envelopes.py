"""Forgets envelopes that were kept long enough, and sessions of envelopes that are over."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from drillcore_fdb.engine import Engine, Options
from drillcore_server.store import envelopes
from drillcore_server.store.keyspace import Keyspace

_BATCH: Final = 500


def forget_envelopes(engine: Engine, keys: Keyspace, now: datetime) -> int:
    """How many there were. In as many transactions as it takes."""
    forgotten = 0
    while done := engine.run(lambda tr: envelopes.forget(tr, keys, now, _BATCH), Options(idempotent=True)):
        forgotten += done
    return forgotten
