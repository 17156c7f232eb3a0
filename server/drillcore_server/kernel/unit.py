"""The keystone: every call that reads or changes the store runs here, as one transaction with its audit record.

    was this request answered before? -> may the caller do this? -> the work -> the record -> remember the outcome

A call is run again until its outcome is known: each run first looks for what an earlier run left, so a commit whose
result was lost is answered, not repeated, and a request has one record. Nothing else in the server begins a transaction
on a caller's behalf.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeVar

from drillcore_fdb.engine import Engine, Options, Reader, Transaction
from drillcore_fdb.errors import (
    DiskFullError,
    EngineError,
    LimitError,
    RetryableError,
    TransactionTimedOutError,
    UnknownResultError,
)
from drillcore_proto.reasons import Reason
from drillcore_server.kernel import requests
from drillcore_server.kernel import session_store as sessions
from drillcore_server.kernel.access import Granted, Principal, Residency, Rule
from drillcore_server.kernel.errors import BadInput, Missing, Refused, Unavailable
from drillcore_server.kernel.journal import UNKNOWN_CLIENT, Client, Journal, Occasion, SignerUnavailableError, hashed
from drillcore_server.kernel.requests import Outcome
from drillcore_server.kernel.trail import Trail
from drillcore_server.storage import audit_records, erasure_notes
from drillcore_server.storage.ids import RecordId, RequestId, new_uuid
from drillcore_server.storage.keyring import KeyErased
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind

T = TypeVar("T")
G = TypeVar("G", bound=Granted)


@dataclass(frozen=True, slots=True)
class Call:
    """One request: who asks, under which id, since when, and how long it may take."""

    action: str
    """The RPC's name."""
    request_id: RequestId
    principal: Principal
    at: datetime
    timeout_s: float
    fingerprint: bytes
    """Of the action and the request's content: a retry has the same, another request does not."""
    reason: str = ""
    """Why, in the caller's own words, for the audit record."""
    client: Client = UNKNOWN_CLIENT
    trails: list[Trail] = field(default_factory=list)
    """Of its last run: what a refusal is recorded with."""
    region: str = ""
    """The one region whose corpora it may touch; any if it is empty."""

    @property
    def identity(self) -> bytes:
        """The fingerprint and the region: a request that is bound to another is another request."""
        return hashlib.sha256(self.fingerprint + self.region.encode()).digest() if self.region else self.fingerprint

    @property
    def occasion(self) -> Occasion:
        return Occasion(self.action, self.request_id, self.principal, self.at, self.identity, self.reason, self.client)


class Notes:
    """What a read stores beside its record, in the same transaction: accesses, the use of a session, an envelope.

    It is stored once for each request, however often the work is run.
    """

    __slots__ = ("_writes",)

    def __init__(self) -> None:
        self._writes: list[Callable[[Transaction], None]] = []

    def add(self, write: Callable[[Transaction], None]) -> None:
        self._writes.append(write)

    def store(self, tr: Transaction) -> None:
        for write in self._writes:
            write(tr)


class Unit:
    def __init__(
        self,
        engine: Engine,
        keys: Keyspace,
        journal: Journal,
        page_bytes_max: int = 1 << 22,
        on_record: Callable[[], object] = int,
        regions: tuple[str, ...] = (),
    ) -> None:
        """`on_record` is called after each commit that made a record: cheap, and never in its way.

        `regions` are those whose corpora are served; all if there are none.
        """
        self._engine = engine
        self.keys = keys
        self.journal = journal
        self.page_bytes_max = page_bytes_max
        self._on_record = on_record
        self._regions = regions

    @property
    def residency(self) -> Residency:
        """Where the server itself may be at work."""
        return Residency(server=self._regions)

    def read(self, call: Call, access: Rule[G], work: Callable[[Reader, G, Trail], T]) -> T:
        """What `work` finds, with a record of what it touched. `work` may be run more than once.

        It reads one version of the store, without conflicts: the record says which revision it was. A repeated request
        has its record already, so it is answered only if it touches the same once more.
        """
        return self.read_with_notes(call, access, lambda tr, granted, trail, _notes: work(tr, granted, trail))

    def read_with_notes(self, call: Call, access: Rule[G], work: Callable[[Reader, G, Trail, Notes], T]) -> T:
        """The same for work that has something stored when its record is: it adds that to the notes it is given."""
        made: list[tuple[RecordId, T]] = []

        def attempt(tr: Transaction) -> T:
            granted, trail = self._begin(tr, call, access)
            recorded = audit_records.find_request(tr, self.keys, call.principal.id, call.request_id)
            if recorded is not None:
                for record, found in made:
                    if record == recorded.id:
                        return found
                _check_same(audit_records.is_of(recorded, self.journal.keyed(call.identity)))
            notes = Notes()
            found = work(tr.snapshot, granted, trail, notes)
            if recorded is None:
                made.append((self.journal.append(tr, call.occasion, trail), found))
                notes.store(tr)
            elif recorded.effects != hashed(trail.effects()):
                message = "what this request read has changed since it was recorded; make it again, under a new id"
                raise Unavailable(Reason.CONFLICT, message)
            return found

        return self._run_recorded(attempt, Options(timeout_s=call.timeout_s, idempotent=True))

    def write(
        self, call: Call, access: Rule[G], result: RecordKind[T], work: Callable[[Transaction, G, Trail], T]
    ) -> T:
        """What `work` did, now or when the same request was made before. `work` may be run more than once."""

        def attempt(tr: Transaction) -> T:
            granted, trail = self._begin(tr, call, access)
            known = self.known(tr, call, result)
            if known is not None:
                return known
            done = work(tr, granted, trail)
            self.journal.append(tr, call.occasion, trail)
            outcome = Outcome(self.journal.keyed(call.identity), result.encode(done), call.at)
            requests.remember(tr, self.keys, call.principal.id, call.request_id, outcome)
            return done

        return self._run_recorded(attempt, Options(timeout_s=call.timeout_s, idempotent=True))

    def look(self, call: Call, access: Rule[G], work: Callable[[Reader, G], T]) -> T:
        """What `work` finds, as a step of a call that ends with `read` or `write`: the caller must not see it before.

        It leaves no record of its own.
        """

        def attempt(tr: Transaction) -> T:
            granted, _ = self._begin(tr, call, access)
            return work(tr.snapshot, granted)

        return self._run(attempt, Options(timeout_s=call.timeout_s, idempotent=True))

    def look_again(self, call: Call, access: Rule[G], work: Callable[[Reader, G], T], now: datetime) -> T:
        """As `look`, in a call that goes on for long: for what the caller may do now. That is no use of its session."""

        def attempt(tr: Transaction) -> T:
            granted = access(tr, self.keys, call.principal, now).within(self._regions, call.region)
            return work(tr.snapshot, granted)

        return self._run(attempt, Options(timeout_s=call.timeout_s, idempotent=True))

    def note(self, call: Call, work: Callable[[Transaction], T]) -> T:
        """Keeps what must be kept of a call whatever becomes of it, such as that a password was tried.

        The call itself ends with `read`, `write` or a refusal, which is its record.
        """
        return self._run(work, Options(timeout_s=call.timeout_s, idempotent=True))

    def record_refusal(self, call: Call, refused: Refused, suppressed: int = 0) -> None:
        """Records that a call was refused: once for each reason, however often it is retried.

        `suppressed` is how many like it were not recorded before. Raises `Refused` if it cannot be written.
        """
        made = call.trails[-1] if call.trails else Trail(tenant=call.principal.tenant)
        # With an id of its own: the run that made the trail may have been committed, though its answer was lost.
        trail = replace(made, record=RecordId(new_uuid()), next_key=None)
        if suppressed:
            trail.detail["suppressed"] = suppressed
        occasion = call.occasion

        def attempt(tr: Transaction) -> None:
            reason = refused.reason.name
            if audit_records.find_request(tr, self.keys, call.principal.id, call.request_id, reason) is None:
                self.journal.append(tr, occasion, trail, reason)

        self._run_recorded(attempt, Options(idempotent=True))

    def known(self, tr: Reader, call: Call, result: RecordKind[T]) -> T | None:
        """What this request did when it was made before, if it was. Raises `Refused` if its id was another's."""
        outcome = requests.find(tr, self.keys, call.principal.id, call.request_id)
        if outcome is None:
            recorded = audit_records.find_request(tr, self.keys, call.principal.id, call.request_id)
            _check_same(recorded is None)
            return None
        _check_same(outcome.fingerprint == self.journal.keyed(call.identity))
        return result.decode(outcome.result)

    def _begin(self, tr: Transaction, call: Call, access: Rule[G]) -> tuple[G, Trail]:
        trail = Trail(tenant=call.principal.tenant)
        call.trails[:] = [trail]
        erasure_notes.follow(tr.snapshot, self.keys.erasure_notes, self.journal.keyring)
        granted = access(tr, self.keys, call.principal, call.at).within(self._regions, call.region)
        trail.tenant = granted.tenant
        if call.region:
            trail.detail["region"] = call.region
        if call.principal.session is not None:
            sessions.note_use(tr, self.keys, call.principal.session, call.at)
        return granted, trail

    def _run_recorded(self, attempt: Callable[[Transaction], T], options: Options) -> T:
        done = self._run(attempt, options)
        self._on_record()
        return done

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


def _check_same(same: bool) -> None:
    if not same:
        raise BadInput(
            Reason.REQUEST_ID_REUSED,
            "another request was made with this request id; every new request needs an id of its own",
            field="drillcore-request-id",
        )


def _as_refusal(error: EngineError) -> Refused:
    """The engine's failure in words for the caller: what to do, and whether anything was written."""
    if isinstance(error, LimitError):
        return BadInput(Reason.TOO_LARGE, f"the request is too large for one transaction: {error.message}")
    if isinstance(error, KeyErased):
        return erased()
    for kind, reason, message in _FAILURES:
        if isinstance(error, kind):
            return Unavailable(reason, message)
    return Unavailable(Reason.STORE_UNAVAILABLE, "the store cannot be used now; its operator finds why in the log")


def erased() -> Missing:
    return Missing(Reason.ERASED, "this came from a source that was erased: nobody can read it any more")


_FAILURES: Final[Sequence[tuple[type[EngineError], Reason, str]]] = (
    (UnknownResultError, Reason.OUTCOME_UNKNOWN, "it is not known whether the write happened; retry it as it is"),
    (TransactionTimedOutError, Reason.DEADLINE_EXCEEDED, "the time allowed for this call ran out"),
    (RetryableError, Reason.CONFLICT, "too many others changed the same records; nothing was written"),
    (SignerUnavailableError, Reason.AUDIT_UNAVAILABLE, "the audit record cannot be signed now; nothing was written"),
    (DiskFullError, Reason.STORE_FULL, "the store has no room left; nothing was written"),
)
