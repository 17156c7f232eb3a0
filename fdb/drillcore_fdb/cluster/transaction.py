"""A transaction on a cluster: the contract's calls on FoundationDB's own transaction.

Every call waits for its result and returns plain bytes and numbers. The binding's lazy values never leave this file,
so that an error is raised by the call it belongs to and not by a later look at its result.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence

import fdb

from drillcore_fdb import limits
from drillcore_fdb.cluster.binding import translated
from drillcore_fdb.cluster.lifetime import Lifetime
from drillcore_fdb.cluster.settings import TIMEOUT_S_MAX, ClusterSettings
from drillcore_fdb.cluster.watch import ClusterWatch
from drillcore_fdb.engine import (
    Atomic,
    Attempts,
    KeySelector,
    KeyValue,
    Options,
    Priority,
    RangeRead,
    Reader,
    Streaming,
    Watch,
)
from drillcore_fdb.errors import (
    EngineError,
    RetryableError,
    TransactionCancelledError,
    TransactionTimedOutError,
    UnknownResultError,
)
from drillcore_fdb.round_trips import RangePage, RunCounter

_CLUSTER_VERSION_CHANGED = 1039
_INT_MAX = 2**31 - 1


class _Reads(Reader):
    """Reads through the binding's transaction or through its snapshot."""

    _reads_ahead: bool
    """Whether a scan may ask for a page before it is consumed. In a serializable read that could add conflicts."""
    trips: RunCounter

    @abstractmethod
    def _source(self) -> fdb.impl.TransactionRead:
        """The binding's object to read from. Raises `TransactionCancelledError` once the transaction is over."""

    @abstractmethod
    def _snapshot_source(self) -> fdb.impl.TransactionRead:
        """Same, for reads without conflicts."""

    def get(self, key: bytes) -> bytes | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        for key in keys:
            limits.check_key(key)
        self.trips.ask(keys)
        with translated():
            source = self._source()
            # All are asked for before the first is waited for: that is what makes it one round trip.
            futures = [source.get(key) for key in keys]
            return _await_all(futures)

    def get_key(self, selector: KeySelector) -> bytes:
        named = _native_selector(selector)
        self.trips.ask([selector])
        with translated():
            return self._source().get_key(named).value

    def range(
        self,
        begin: bytes | KeySelector,
        end: bytes | KeySelector,
        *,
        limit: int = 0,
        reverse: bool = False,
        streaming: Streaming = Streaming.ITERATOR,
    ) -> Iterator[KeyValue]:
        limits.check_limit(limit)
        return self._scan(_Scan(self._source, begin, end, limit, reverse, streaming))

    def _scan(self, scan: _Scan) -> Iterator[KeyValue]:
        with translated():
            scan.ask()
            while scan.is_under_way:
                # The first page is small, because many readers stop there.
                ahead = self._reads_ahead and scan.number > 0
                self.trips.ask([scan.page])
                entries = scan.receive()
                if ahead:
                    scan.ask()
                yield from entries
                if not ahead:
                    scan.ask()

    def range_many(
        self, ranges: Sequence[tuple[bytes, bytes]], *, limit: int = 0, reverse: bool = False
    ) -> list[list[KeyValue]]:
        limits.check_limit(limit)
        mode = Streaming.WANT_ALL
        scans = [_Scan(self._source, begin, end, limit, reverse, mode) for begin, end in ranges]
        found: list[list[KeyValue]] = [[] for _ in scans]
        under_way = list(zip(scans, found, strict=True))
        with translated():
            while under_way:
                for scan, _ in under_way:
                    scan.ask()
                under_way = [(scan, entries) for scan, entries in under_way if scan.is_under_way]
                self.trips.ask([scan.page for scan, _ in under_way])
                for scan, entries in under_way:
                    entries.extend(scan.receive())
        return found

    def read_ahead(self, keys: Sequence[bytes], ranges: Sequence[RangeRead]) -> None:
        for key in keys:
            limits.check_key(key)
        scans = [
            _Scan(self._snapshot_source, read.begin, read.end, read.limit, read.reverse, Streaming.WANT_ALL)
            for read in ranges
        ]
        with translated():
            source = self._snapshot_source()
            values = [source.get(key) for key in keys]
            for scan in scans:
                scan.ask()
            under_way = [scan for scan in scans if scan.is_under_way]
            self.trips.ask([*keys, *(scan.page for scan in under_way)])
            _await_all(values)
            for scan in under_way:
                scan.receive()

    def read_version(self) -> int:
        self.trips.read_version()
        with translated():
            return self._source().get_read_version().wait()


class _Scan:
    """A range that is read page by page. `ask` starts the next page, `receive` waits for it."""

    def __init__(
        self,
        source: Callable[[], fdb.impl.TransactionRead],
        begin: bytes | KeySelector,
        end: bytes | KeySelector,
        limit: int,
        reverse: bool,
        streaming: Streaming,
    ) -> None:
        self._source = source
        self._asked = (begin, end, limit, reverse)
        self._begin, self._end = _native_selector(begin), _native_selector(end)
        self._left = min(limit, _INT_MAX)
        self._limited = limit > 0
        self._reverse = reverse
        # A name of `Streaming` is the binding's name for the same mode.
        self._mode: int = getattr(fdb.StreamingMode, streaming.value)
        self._page: fdb.impl.FutureKeyValueArray | None = None
        self._is_over = isinstance(begin, bytes) and isinstance(end, bytes) and begin >= end
        self.number = -1
        """The number of the page that was asked for last, from 0 on."""

    @property
    def is_under_way(self) -> bool:
        """Whether a page was asked for and not received yet."""
        return self._page is not None

    @property
    def page(self) -> RangePage:
        return (*self._asked, self.number)

    def ask(self) -> None:
        if not self._is_over:
            self.number += 1
            self._page = self._source()._get_range(
                self._begin, self._end, self._left, self._mode, self.number + 1, self._reverse
            )

    def receive(self) -> list[KeyValue]:
        assert self._page is not None
        entries, count, more = self._page.wait()
        self._page = None
        self._is_over = not more or not count
        if self._limited:
            self._left -= count
            self._is_over = self._is_over or self._left <= 0
        if not self._is_over and self._reverse:
            self._end = fdb.KeySelector.first_greater_or_equal(entries[-1].key)
        elif not self._is_over:
            self._begin = fdb.KeySelector.first_greater_than(entries[-1].key)
        return [(entry.key, entry.value) for entry in entries]


class ClusterAttempts(_Reads, Attempts):
    """One `run` on a cluster. Used by one thread.

    FoundationDB's transaction stops itself at the timeout and backs off between retries; the retry limit and
    whether a commit may be run again are decided here.
    """

    _reads_ahead = False

    def __init__(self, database: fdb.Database, settings: ClusterSettings, options: Options, lifetime: Lifetime) -> None:
        self.trips = RunCounter()
        self._database = database
        self._settings = settings
        self._options = options
        self._lifetime = lifetime
        timeout_s = options.timeout_s if options.timeout_s is not None else settings.timeout_s
        self._deadline_s = time.monotonic() + min(timeout_s, TIMEOUT_S_MAX)
        self._retries = 0
        with translated():
            self._begin()

    def _begin(self) -> None:
        self._open: fdb.Transaction | None = self._database.create_transaction()
        options = self._open.options
        # These two last over on_error.
        options.set_timeout(_milliseconds(self._deadline_s - time.monotonic()))
        options.set_max_retry_delay(math.ceil(self._settings.max_retry_delay_s * 1000))
        self._prepare_run(self._open)

    def _prepare_run(self, transaction: fdb.Transaction) -> None:
        """Sets the options that last for one run only, because on_error resets them."""
        self._written = False
        self._committed = False
        self.trips.begin()
        transaction.options.set_size_limit(self._settings.transaction_bytes_max)
        if self._options.priority is Priority.BATCH:
            transaction.options.set_priority_batch()
        elif self._options.priority is Priority.SYSTEM_IMMEDIATE:
            transaction.options.set_priority_system_immediate()

    @property
    def native(self) -> fdb.Transaction:
        """The binding's transaction, for FoundationDB's directory layer."""
        if self._open is None:
            raise TransactionCancelledError
        return self._open

    def _source(self) -> fdb.impl.TransactionRead:
        return self.native

    def _snapshot_source(self) -> fdb.impl.TransactionRead:
        return self.native.snapshot

    def _writing(self) -> fdb.Transaction:
        self._written = True
        return self.native

    @property
    def snapshot(self) -> Reader:
        return _Snapshot(self)

    def set(self, key: bytes, value: bytes) -> None:
        limits.check_write(key, value)
        with translated():
            self._writing().set(key, value)
        self.trips.written(key)

    def clear(self, key: bytes) -> None:
        limits.check_key(key)
        with translated():
            self._writing().clear(key)
        self.trips.written(key)

    def clear_range(self, begin: bytes, end: bytes) -> None:
        limits.check_range(begin, end)
        with translated():
            self._writing().clear_range(begin, end)

    def atomic(self, operation: Atomic, key: bytes, operand: bytes) -> None:
        limits.check_write(key, operand)
        with translated():
            # A name of `Atomic` is the binding's name for the same operation.
            getattr(self._writing(), operation.value)(key, operand)

    def set_versionstamped_key(self, template: bytes, value: bytes) -> None:
        limits.check_write(template, value)
        limits.check_template(template)
        with translated():
            self._writing().set_versionstamped_key(template, value)

    def set_versionstamped_value(self, key: bytes, template: bytes) -> None:
        limits.check_write(key, template)
        limits.check_template(template)
        with translated():
            self._writing().set_versionstamped_value(key, template)

    def add_read_conflict_range(self, begin: bytes, end: bytes) -> None:
        limits.check_range(begin, end)
        with translated():
            self.native.add_read_conflict_range(begin, end)

    def add_write_conflict_range(self, begin: bytes, end: bytes) -> None:
        limits.check_range(begin, end)
        with translated():
            self._writing().add_write_conflict_range(begin, end)

    def approximate_size(self) -> int:
        with translated():
            return self.native.get_approximate_size().wait()

    def watch(self, key: bytes) -> Watch:
        limits.check_watch(key)
        with translated():
            watch = ClusterWatch(self.native.watch(key))
        self._lifetime.add_watch(watch)
        return watch

    def commit(self) -> tuple[int, bytes | None]:
        transaction = self.native
        with self._lifetime.committing(), translated():
            # FoundationDB gives out the versionstamp only to those who asked before the commit.
            versionstamp = transaction.get_versionstamp() if self._written else None
            if self._written:
                self.trips.committed()
            transaction.commit().wait()
            self._committed = True
            version = transaction.get_committed_version()
            # A write that changes nothing, such as clearing an empty range, is no write to FoundationDB.
            if versionstamp is None or version < 0:
                return -1, None
            return version, versionstamp.value

    def recover(self, error: EngineError) -> None:
        if not self._may_run_again(error):
            raise error
        self._retries += 1
        if self._deadline_s <= time.monotonic():
            raise TransactionTimedOutError from error
        with translated():
            self._run_again(error.code)

    def _may_run_again(self, error: EngineError) -> bool:
        if self._open is None or not isinstance(error, RetryableError):
            return False
        if self._options.retry_limit is not None and self._retries >= self._options.retry_limit:
            return False
        return self._options.idempotent or not self._result_unknown(error)

    def _result_unknown(self, error: EngineError) -> bool:
        # A cluster that changes its version fails reads too, and what was only read is not in doubt.
        harmless = error.code == _CLUSTER_VERSION_CHANGED and not self._written
        return isinstance(error, UnknownResultError) and not harmless

    def _run_again(self, code: int) -> None:
        if code == _CLUSTER_VERSION_CHANGED:
            # Only the multi-version client's on_error knows this code; a new transaction does the same on both.
            self._cancel()
            self._begin()
        else:
            self.native.on_error(code).wait()
            self._prepare_run(self.native)

    def close(self) -> None:
        self._cancel()
        self._open = None

    def _cancel(self) -> None:
        # Left alone after a commit: its watches go on.
        if self._open is not None and not self._committed:
            self._open.cancel()


class _Snapshot(_Reads):
    """The reads of a transaction, without conflicts."""

    _reads_ahead = True

    def __init__(self, attempts: ClusterAttempts) -> None:
        self._attempts = attempts
        self.trips = attempts.trips

    def _source(self) -> fdb.impl.TransactionRead:
        return self._attempts.native.snapshot

    _snapshot_source = _source


def _await_all(values: Sequence[fdb.impl.Value]) -> list[bytes | None]:
    return [future.value for future in values]


def _native_selector(place: bytes | KeySelector) -> fdb.KeySelector:
    selector = place if isinstance(place, KeySelector) else KeySelector.first_greater_or_equal(place)
    limits.check_bound(selector.key)
    return fdb.KeySelector(selector.key, selector.or_equal, selector.offset)


def _milliseconds(timeout_s: float) -> int:
    """FoundationDB's unit. At least one: zero would mean no timeout at all."""
    return max(1, math.ceil(timeout_s * 1000))
