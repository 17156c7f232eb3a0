"""The unit of work: every call that reads or changes the store runs here, as one transaction with its audit record.

    was this request answered before? -> may the caller do this? -> the work -> the record -> remember the outcome

A call is run again until its outcome is known. Each run first looks for the outcome of an earlier run. So if the result
of a commit is lost, the work is not repeated, and each request has one audit record. Nothing else in the server begins
a transaction for a caller.

The outcome of each write is kept under its request id for a time, so that a retry gets the first outcome.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeVar

from drillcore_fdb import codec
from drillcore_fdb.engine import Engine, Options, RangeRead, Reader, Reads, Transaction
from drillcore_fdb.errors import (
    DiskFullError,
    EngineError,
    LimitError,
    RetryableError,
    TransactionTimedOutError,
    UnknownResultError,
)
from drillcore_proto.reasons import Reason
from drillcore_server.kernel import session_store as sessions
from drillcore_server.kernel.access import Granted, Principal, Residency, Rule
from drillcore_server.kernel.errors import BadInput, Missing, Refused, Unavailable
from drillcore_server.kernel.journal import UNKNOWN_CLIENT, Client, Journal, Occasion, SignerUnavailableError, hashed
from drillcore_server.kernel.read_ahead import NO_SUBJECTS, ReadAhead, Subjects
from drillcore_server.kernel.trail import Trail
from drillcore_server.storage import audit_records, erasure_notes
from drillcore_server.storage.ids import PrincipalId, RecordId, RequestId, new_uuid
from drillcore_server.storage.keyring import KeyErased
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind

T = TypeVar("T")
G = TypeVar("G", bound=Granted)


@dataclass(frozen=True, slots=True)
class Call:
    """One request: who asks, its id, when it arrived, and how long it may take."""

    action: str
    """The name of the RPC."""
    request_id: RequestId
    principal: Principal
    at: datetime
    timeout_s: float
    fingerprint: bytes
    """A hash of the action and the request's content. Only a retry has the same one."""
    reason: str = ""
    """The reason the caller gave, for the audit record."""
    client: Client = UNKNOWN_CLIENT
    trails: list[Trail] = field(default_factory=list)
    """The trail of the last run, with which a refusal is recorded."""
    region: str = ""
    """The only region whose corpora the call may touch. Empty: any region."""
    subjects: Subjects = NO_SUBJECTS
    """What the request names, to be read ahead."""

    @property
    def identity(self) -> bytes:
        """A hash of the fingerprint and the region: the same request bound to another region is another request."""
        return hashlib.sha256(self.fingerprint + self.region.encode()).digest() if self.region else self.fingerprint

    @property
    def occasion(self) -> Occasion:
        return Occasion(self.action, self.request_id, self.principal, self.at, self.identity, self.reason, self.client)


@dataclass(frozen=True, slots=True)
class Outcome:
    fingerprint: bytes
    """The keyed hash of the request. It distinguishes a retry from another request with the same id."""
    result: bytes
    at: datetime


OUTCOME = RecordKind(Outcome)


def find_outcome(tr: Reader, keys: Keyspace, principal: PrincipalId, request: RequestId) -> Outcome | None:
    return OUTCOME.read(tr, keys.request(principal, request))


def remember_outcome(
    tr: Transaction, keys: Keyspace, principal: PrincipalId, request: RequestId, outcome: Outcome
) -> None:
    OUTCOME.write(tr, keys.request(principal, request), outcome)
    tr.set(keys.request_time(outcome.at, principal, request), b"")


def _forget_batch(tr: Transaction, keys: Keyspace, at: datetime, limit: int) -> int:
    """Removes up to `limit` outcomes older than `at`, and returns how many."""
    old = [key for key, _ in tr.range(*keys.request_times_before(at), limit=limit)]
    for key in old:
        codec.clear(tr, keys.request(*keys.parse_request_time(key)))
        tr.clear(key)
    return len(old)


_FORGOTTEN_AT_ONCE = 1_000


def forget_outcomes(engine: Engine, keys: Keyspace, before: datetime) -> int:
    """Removes every outcome older than `before`, in as many transactions as needed, and returns how many."""
    forgotten = 0
    while True:
        batch = engine.run(lambda tr: _forget_batch(tr, keys, before, _FORGOTTEN_AT_ONCE), Options(idempotent=True))
        forgotten += batch
        if batch < _FORGOTTEN_AT_ONCE:
            return forgotten


class Notes:
    """The writes of a read, such as counted accesses or the hashes of an envelope.

    They are made in the same transaction as the read's audit record, once for each request, however often the work is
    run.
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
        """`on_record` is called after each commit that made a record. It must be fast and must not raise.

        `regions` are the regions whose corpora this server serves. Empty: all regions.
        """
        self._engine = engine
        self.keys = keys
        self.journal = journal
        self.page_bytes_max = page_bytes_max
        self._on_record = on_record
        self._regions = regions
        self.read_ahead = ReadAhead(keys)

    @property
    def residency(self) -> Residency:
        """The regions in which the server's background work may touch corpora."""
        return Residency(server=self._regions)

    def read(
        self, call: Call, access: Rule[G], work: Callable[[Reader, G, Trail], T], *, expected: Sequence[bytes] = ()
    ) -> T:
        """Returns what `work` finds, and records what it touched. `work` may be run more than once.

        `work` reads a snapshot of the store, without conflicts. A repeated request already has its record, so it is
        answered only if it touches the same as before; otherwise this raises `Unavailable`. `expected` are keys that
        `work` will get: they are read ahead.
        """
        return self.read_with_notes(
            call, access, lambda tr, granted, trail, _notes: work(tr, granted, trail), expected=expected
        )

    def read_with_notes(
        self,
        call: Call,
        access: Rule[G],
        work: Callable[[Reader, G, Trail, Notes], T],
        *,
        expected: Sequence[bytes] = (),
    ) -> T:
        """Same as `read`, for work that also writes. It adds its writes to the notes."""
        made: list[tuple[RecordId, T]] = []

        def attempt(tr: Transaction) -> T:
            granted, trail = self._begin(tr, call, access, expected)
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
                message = "the records this request read have changed since; send it again with a new request id"
                raise Unavailable(Reason.CONFLICT, message)
            return found

        return self._run_recorded(attempt, Options(timeout_s=call.timeout_s, idempotent=True))

    def write(
        self,
        call: Call,
        access: Rule[G],
        result: RecordKind[T],
        work: Callable[[Transaction, G, Trail], T],
        *,
        expected: Sequence[bytes] = (),
        ranges: Sequence[RangeRead] = (),
    ) -> T:
        """Returns the result of `work`, or the result of an earlier call of the same request.

        `work` may be run more than once. `expected` are keys that it will get, and `ranges` are what it will read by
        `range_many`: they are read ahead.
        """

        def attempt(tr: Transaction) -> T:
            granted, trail = self._begin(tr, call, access, expected, ranges, writing=True)
            known = self.known(tr, call, result)
            if known is not None:
                return known
            done = work(tr, granted, trail)
            self.journal.append(tr, call.occasion, trail)
            outcome = Outcome(self.journal.keyed(call.identity), result.encode(done), call.at)
            remember_outcome(tr, self.keys, call.principal.id, call.request_id, outcome)
            return done

        return self._run_recorded(attempt, Options(timeout_s=call.timeout_s, idempotent=True))

    def look(self, call: Call, access: Rule[G], work: Callable[[Reader, G], T], *, expected: Sequence[bytes] = ()) -> T:
        """Returns what `work` finds, as a step of a call that ends with `read` or `write`. Leaves no audit record.

        So the caller must not see the result before that `read` or `write`. Counts as a use of the caller's session.
        `expected` are keys that `work` will get: they are read ahead.
        """
        return self.look_and_note(call, access, lambda tr, granted: work(tr.snapshot, granted), expected=expected)

    def look_and_note(
        self, call: Call, access: Rule[G], work: Callable[[Transaction, G], T], *, expected: Sequence[bytes] = ()
    ) -> T:
        """Same as `look`, for work that also stores what must be kept even if the call fails: see `note`."""

        def attempt(tr: Transaction) -> T:
            granted, _ = self._begin(tr, call, access, expected, writing=True)
            return work(tr, granted)

        return self._run(attempt, Options(timeout_s=call.timeout_s, idempotent=True))

    def look_first(
        self,
        call: Call,
        access: Rule[G],
        work: Callable[[Reader, G], T],
        reads: Reads,
        *,
        expected: Sequence[bytes] = (),
    ) -> T:
        """Same as `look`, as the first of `reads`. Does not count as a use of the session: the call does at its end."""

        def attempt(tr: Reader) -> T:
            granted, _ = self._admit(tr, tr, call, access, expected, writing=True)
            return work(tr, granted)

        with errors_as_refusals():
            return reads.run(attempt)

    def look_again(self, call: Call, access: Rule[G], work: Callable[[Reader, G], T], now: datetime) -> T:
        """Same as `look`, in a long call: checks what the caller may do at `now`. Does not count as a session's use."""

        def attempt(tr: Transaction) -> T:
            self.read_ahead.read(tr.snapshot, call.principal, call.request_id, call.subjects)
            granted = access(tr, self.keys, call.principal, now).within(self._regions, call.region)
            return work(tr.snapshot, granted)

        return self._run(attempt, Options(timeout_s=call.timeout_s, idempotent=True))

    def note(self, call: Call, work: Callable[[Transaction], T]) -> T:
        """Stores something that must be kept even if the call fails, such as what using a password led to.

        Leaves no audit record: the call must still end with `read`, `write` or a refusal.
        """
        return self._run(work, Options(timeout_s=call.timeout_s, idempotent=True))

    def record_refusal(self, call: Call, refused: Refused, suppressed: int = 0) -> None:
        """Records that a call was refused: once for each reason, however often it is retried.

        `suppressed` is the number of similar refusals that were not recorded before it. Raises `Refused` if the record
        cannot be written.
        """
        made = call.trails[-1] if call.trails else Trail(tenant=call.principal.tenant)
        # The refusal's record gets a new id: the run that made the trail may have been committed, its answer lost.
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
        """The result of this request if it was made before, else None.

        Raises `BadInput` if another request has the same id.
        """
        outcome = find_outcome(tr, self.keys, call.principal.id, call.request_id)
        if outcome is None:
            recorded = audit_records.find_request(tr, self.keys, call.principal.id, call.request_id)
            _check_same(recorded is None)
            return None
        _check_same(outcome.fingerprint == self.journal.keyed(call.identity))
        return result.decode(outcome.result)

    def _begin(
        self,
        tr: Transaction,
        call: Call,
        access: Rule[G],
        expected: Sequence[bytes],
        ranges: Sequence[RangeRead] = (),
        *,
        writing: bool = False,
    ) -> tuple[G, Trail]:
        granted, trail = self._admit(tr, tr.snapshot, call, access, expected, ranges, writing=writing)
        if call.principal.session is not None:
            sessions.note_use(tr, self.keys, call.principal.session, call.at)
        return granted, trail

    def _admit(
        self,
        tr: Reader,
        snapshot: Reader,
        call: Call,
        access: Rule[G],
        expected: Sequence[bytes],
        ranges: Sequence[RangeRead] = (),
        *,
        writing: bool = False,
    ) -> tuple[G, Trail]:
        """Checks what the caller may do. `snapshot` reads the same as `tr`, without conflicts."""
        trail = Trail(tenant=call.principal.tenant)
        call.trails[:] = [trail]
        principal, request = call.principal, call.request_id
        self.read_ahead.read(snapshot, principal, request, call.subjects, expected, ranges, writing=writing)
        erasure_notes.follow(snapshot, self.keys.erasure_notes, self.journal.keyring)
        granted = access(tr, self.keys, call.principal, call.at).within(self._regions, call.region)
        trail.tenant = granted.tenant
        if call.region:
            trail.detail["region"] = call.region
        return granted, trail

    def _run_recorded(self, attempt: Callable[[Transaction], T], options: Options) -> T:
        done = self._run(attempt, options)
        self._on_record()
        return done

    def _run(self, attempt: Callable[[Transaction], T], options: Options) -> T:
        with errors_as_refusals():
            return self._engine.run(attempt, options)


@contextmanager
def errors_as_refusals() -> Iterator[None]:
    """Raises the engine's errors in its block as `Refused`."""
    try:
        yield
    except EngineError as error:
        raise _as_refusal(error) from error


def _check_same(same: bool) -> None:
    if not same:
        raise BadInput(
            Reason.REQUEST_ID_REUSED,
            "another request was made with this request id; give every new request an id of its own",
            field="drillcore-request-id",
        )


def _as_refusal(error: EngineError) -> Refused:
    """The refusal for an error of the engine. Its message says what to do and whether anything was written."""
    if isinstance(error, LimitError):
        return BadInput(Reason.TOO_LARGE, f"the request is too large for one transaction: {error.message}")
    if isinstance(error, KeyErased):
        return erased()
    for kind, reason, message in _FAILURES:
        if isinstance(error, kind):
            return Unavailable(reason, message)
    return Unavailable(Reason.STORE_UNAVAILABLE, "the store cannot be used now; the server's log says why")


def erased() -> Missing:
    """The refusal for records of an erased source."""
    return Missing(Reason.ERASED, "this came from a source that was erased: nobody can read it any more")


_FAILURES: Final[Sequence[tuple[type[EngineError], Reason, str]]] = (
    (UnknownResultError, Reason.OUTCOME_UNKNOWN, "it is not known whether the write happened; retry it as it is"),
    (TransactionTimedOutError, Reason.DEADLINE_EXCEEDED, "the time allowed for this call ran out"),
    (RetryableError, Reason.CONFLICT, "too many others changed the same records; nothing was written"),
    (SignerUnavailableError, Reason.AUDIT_UNAVAILABLE, "the audit record cannot be signed now; nothing was written"),
    (DiskFullError, Reason.STORE_FULL, "the store has no room left; nothing was written"),
)
