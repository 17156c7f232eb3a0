"""The keystone: every call that reads or changes the store runs here, as one transaction.

    was this request answered before? -> may the caller do this? -> the work -> remember the outcome

A write is run again until its outcome is known: each run first looks for the outcome that an earlier run left, so a
commit whose result was lost is answered, not repeated. Nothing else in the server begins a transaction on a caller's
behalf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from drillcore_fdb.engine import Engine, Options, Transaction
from drillcore_fdb.errors import (
    DiskFullError,
    EngineError,
    LimitError,
    RetryableError,
    TransactionTimedOutError,
    UnknownResultError,
)
from drillcore_proto.reasons import Reason
from drillcore_server.auth.access import Rule
from drillcore_server.auth.principal import Principal
from drillcore_server.domain.errors import BadInput, Refused, Unavailable
from drillcore_server.domain.ids import RequestId
from drillcore_server.store import requests
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.records import RecordKind
from drillcore_server.store.requests import Outcome

T = TypeVar("T")
G = TypeVar("G")


@dataclass(frozen=True, slots=True)
class Call:
    """One request: who asks, under which id, since when, and how long it may take."""

    action: str
    request_id: RequestId
    principal: Principal
    at: datetime
    timeout_s: float
    fingerprint: bytes
    """Of the action and the request's content: a retry has the same, another request does not."""


class Unit:
    def __init__(self, engine: Engine, keys: Keyspace, page_bytes_max: int = 1 << 22) -> None:
        self._engine = engine
        self.keys = keys
        self.page_bytes_max = page_bytes_max

    def read(self, call: Call, access: Rule[G], work: Callable[[Transaction, G], T]) -> T:
        """What `work` finds. `work` may be run more than once."""

        def attempt(tr: Transaction) -> T:
            return work(tr, access(tr, self.keys, call.principal))

        return self._run(attempt, Options(timeout_s=call.timeout_s))

    def write(self, call: Call, access: Rule[G], result: RecordKind[T], work: Callable[[Transaction, G], T]) -> T:
        """What `work` did, now or when the same request was made before. `work` may be run more than once."""

        def attempt(tr: Transaction) -> T:
            granted = access(tr, self.keys, call.principal)
            known = self.known(tr, call, result)
            if known is not None:
                return known
            done = work(tr, granted)
            outcome = Outcome(call.fingerprint, result.encode(done), call.at)
            requests.remember(tr, self.keys, call.principal.id, call.request_id, outcome)
            return done

        return self._run(attempt, Options(timeout_s=call.timeout_s, idempotent=True))

    def known(self, tr: Transaction, call: Call, result: RecordKind[T]) -> T | None:
        """What this request did when it was made before, if it was. Raises `Refused` if its id was another's."""
        outcome = requests.find(tr, self.keys, call.principal.id, call.request_id)
        if outcome is None:
            return None
        _check_same(call, outcome)
        return result.decode(outcome.result)

    def _run(self, attempt: Callable[[Transaction], T], options: Options) -> T:
        with refusing():
            return self._engine.run(attempt, options)


@contextmanager
def refusing() -> Iterator[None]:
    """Failures of the engine leave the block as `Refused`."""
    try:
        yield
    except EngineError as error:
        raise _as_refusal(error) from error


def _check_same(call: Call, known: Outcome) -> None:
    if known.fingerprint != call.fingerprint:
        raise BadInput(
            Reason.REQUEST_ID_REUSED,
            "another request was made with this request id; every new request needs an id of its own",
            field="drillcore-request-id",
        )


def _as_refusal(error: EngineError) -> Refused:
    """The engine's failure in words for the caller: what to do, and whether anything was written."""
    if isinstance(error, UnknownResultError):
        return Unavailable(Reason.OUTCOME_UNKNOWN, "it is not known whether the write happened; retry it as it is")
    if isinstance(error, TransactionTimedOutError):
        return Unavailable(Reason.DEADLINE_EXCEEDED, "the time allowed for this call ran out")
    if isinstance(error, RetryableError):
        return Unavailable(Reason.CONFLICT, "too many others changed the same records; nothing was written")
    if isinstance(error, LimitError):
        return BadInput(Reason.TOO_LARGE, f"the request is too large for one transaction: {error.message}")
    if isinstance(error, DiskFullError):
        return Unavailable(Reason.STORE_FULL, "the store has no room left; nothing was written")
    return Unavailable(Reason.STORE_UNAVAILABLE, "the store cannot be used now; its operator finds why in the log")
