"""What became of each write, by the request id its caller gave, so that a retry gets the first outcome."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_server.domain.ids import PrincipalId, RequestId
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.records import RecordKind


@dataclass(frozen=True, slots=True)
class Outcome:
    fingerprint: bytes
    """Of the request, to tell a retry from another request with the same id."""
    result: bytes
    at: datetime


OUTCOME = RecordKind(Outcome)


def find(tr: Reader, keys: Keyspace, principal: PrincipalId, request: RequestId) -> Outcome | None:
    return OUTCOME.read(tr, keys.request(principal, request))


def remember(tr: Transaction, keys: Keyspace, principal: PrincipalId, request: RequestId, outcome: Outcome) -> None:
    OUTCOME.write(tr, keys.request(principal, request), outcome)
    tr.set(keys.request_time(outcome.at, principal, request), b"")


def forget_before(tr: Transaction, keys: Keyspace, at: datetime, limit: int) -> int:
    """Removes up to `limit` outcomes older than `at`; how many."""
    old = [key for key, _ in tr.range(*keys.request_times_before(at), limit=limit)]
    for key in old:
        codec.clear(tr, keys.request(*keys.parse_request_time(key)))
        tr.clear(key)
    return len(old)
