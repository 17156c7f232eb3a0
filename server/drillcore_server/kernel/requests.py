"""The outcome of each write under its request id, so that a retry gets the first outcome. Old ones are forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from drillcore_fdb import codec
from drillcore_fdb.engine import Engine, Options, Reader, Transaction
from drillcore_server.storage.ids import PrincipalId, RequestId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind


@dataclass(frozen=True, slots=True)
class Outcome:
    fingerprint: bytes
    """The keyed hash of the request. Tells a retry from another request with the same id."""
    result: bytes
    at: datetime


OUTCOME = RecordKind(Outcome)


def find(tr: Reader, keys: Keyspace, principal: PrincipalId, request: RequestId) -> Outcome | None:
    return OUTCOME.read(tr, keys.request(principal, request))


def remember(tr: Transaction, keys: Keyspace, principal: PrincipalId, request: RequestId, outcome: Outcome) -> None:
    OUTCOME.write(tr, keys.request(principal, request), outcome)
    tr.set(keys.request_time(outcome.at, principal, request), b"")


def forget_before(tr: Transaction, keys: Keyspace, at: datetime, limit: int) -> int:
    """Removes up to `limit` outcomes older than `at`, and returns how many."""
    old = [key for key, _ in tr.range(*keys.request_times_before(at), limit=limit)]
    for key in old:
        codec.clear(tr, keys.request(*keys.parse_request_time(key)))
        tr.clear(key)
    return len(old)


_BATCH = 1_000


def forget_requests(engine: Engine, keys: Keyspace, before: datetime) -> int:
    """Removes every outcome older than `before`, in as many transactions as needed, and returns how many."""
    forgotten = 0
    while True:
        batch = engine.run(lambda tr: forget_before(tr, keys, before, _BATCH), Options(idempotent=True))
        forgotten += batch
        if batch < _BATCH:
            return forgotten
