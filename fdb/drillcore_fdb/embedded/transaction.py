"""A transaction on the embedded engine: reads one LMDB snapshot, buffers its writes, and notes what may conflict."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import lmdb

from drillcore_fdb import limits
from drillcore_fdb.embedded.committer import Committer, Request
from drillcore_fdb.embedded.ordered import OrderedStore
from drillcore_fdb.embedded.snapshots import Snapshots
from drillcore_fdb.embedded.storage import as_engine_error
from drillcore_fdb.embedded.watches import EmbeddedWatch, Watches
from drillcore_fdb.embedded.writes import UNTOUCHED, Unwritten, WriteBuffer
from drillcore_fdb.engine import (
    KEY_BYTES_MAX,
    KEYS_END,
    TRANSACTION_AGE_S_MAX,
    TRANSACTION_BYTES_MAX,
    VERSIONSTAMP_BYTES,
    Atomic,
    Attempts,
    KeySelector,
    KeyValue,
    Options,
    RangeRead,
    Reader,
    Streaming,
    Watch,
)
from drillcore_fdb.errors import (
    EngineError,
    InvalidUseError,
    LimitError,
    RetryableError,
    TransactionCancelledError,
    TransactionTimedOutError,
    TransactionTooOldError,
    UnknownResultError,
)
from drillcore_fdb.round_trips import Pages, RunCounter, pages_together

_BATCH_FIRST = {Streaming.SMALL: 16, Streaming.ITERATOR: 128, Streaming.WANT_ALL: 4096}
_BATCH_MAX = 4096
_BACKOFF_FIRST_S = 0.001
_BACKOFF_MAX_S = 0.25


class EmbeddedTransaction(Attempts):
    """One `run` on the embedded engine. Used by one thread; the reaper may end its snapshot from another."""

    def __init__(
        self,
        store: OrderedStore,
        snapshots: Snapshots,
        committer: Committer,
        watches: Watches,
        options: Options,
        timeout_s: float,
    ) -> None:
        self._store = store
        self._snapshots = snapshots
        self._committer = committer
        self._store_watches = watches
        self._options = options
        self._deadline_s = time.monotonic() + timeout_s
        self._retries = 0
        self._backoff_s = _BACKOFF_FIRST_S
        self._snapshot_view: _SnapshotView | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._trips = RunCounter()
        self._renew()

    def _renew(self) -> None:
        self._trips.begin()
        self._txn: Any = None
        self._version = -1
        self._expires_s = self._deadline_s
        self._too_old = False
        self._writes = WriteBuffer()
        self._read_keys: list[bytes] = []
        self._read_ranges: list[tuple[bytes, bytes]] = []
        self._watches: list[EmbeddedWatch] = []

    # Reads

    @property
    def snapshot(self) -> Reader:
        if self._snapshot_view is None:
            self._snapshot_view = _SnapshotView(self)
        return self._snapshot_view

    def get(self, key: bytes) -> bytes | None:
        return self.read_together([key], True)[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self.read_together(keys, True)

    def get_key(self, selector: KeySelector) -> bytes:
        return self.find_key(selector, True)

    def range(
        self,
        begin: bytes | KeySelector,
        end: bytes | KeySelector,
        *,
        limit: int = 0,
        reverse: bool = False,
        streaming: Streaming = Streaming.ITERATOR,
    ) -> Iterator[KeyValue]:
        return self.read_range(begin, end, limit, reverse, streaming, True)

    def range_many(
        self, ranges: Sequence[tuple[bytes, bytes]], *, limit: int = 0, reverse: bool = False
    ) -> list[list[KeyValue]]:
        return self.read_ranges(ranges, limit, reverse, True)

    def read_ahead(self, keys: Sequence[bytes], ranges: Sequence[RangeRead]) -> None:
        for read in ranges:
            limits.check_limit(read.limit)
        bounds = [(self._bound(read.begin, False), self._bound(read.end, False)) for read in ranges]
        first_pages = [
            (begin, end, read.limit, read.reverse, 0)
            for (begin, end), read in zip(bounds, ranges, strict=True)
            if begin < end
        ]
        self._trips.ask([*keys, *first_pages])
        for key in keys:
            self._read(key, False)
        for begin, end, limit, reverse, _ in first_pages:
            self._fetch(begin, end, limit or _BATCH_FIRST[Streaming.WANT_ALL], reverse, False)

    def read_version(self) -> int:
        self._trips.read_version()
        with self._lock:
            self._ensure_open()
            return self._version

    def read_together(self, keys: Sequence[bytes], conflicting: bool) -> list[bytes | None]:
        self._trips.ask(keys)
        return [self._read(key, conflicting) for key in keys]

    def find_key(self, selector: KeySelector, conflicting: bool) -> bytes:
        self._trips.ask([selector])
        return self._resolve(selector, conflicting)

    def _read(self, key: bytes, conflicting: bool) -> bytes | None:
        limits.check_key(key)
        writes = self._writes
        known = writes.lookup(key) if writes.mutations else UNTOUCHED
        if writes.unreadable and key in writes.unreadable:
            raise InvalidUseError(1036, "Read or wrote an unreadable key")
        if not isinstance(known, Unwritten) or len(key) > KEY_BYTES_MAX:
            self._check_usable()
            return None if isinstance(known, Unwritten) else known
        with self._lock:
            self._ensure_open()
            try:
                value = self._store.get(self._txn, key)
            except lmdb.Error as error:
                raise as_engine_error(error) from error
        if conflicting:
            self._read_keys.append(key)
        return known.resolve(value) if known.pending else value

    def read_range(
        self,
        begin: bytes | KeySelector,
        end: bytes | KeySelector,
        limit: int,
        reverse: bool,
        streaming: Streaming,
        conflicting: bool,
    ) -> Iterator[KeyValue]:
        limits.check_limit(limit)
        first, last = self._bound(begin, conflicting), self._bound(end, conflicting)
        if first >= last:
            return iter(())
        return self._scan(first, last, limit, reverse, streaming, conflicting)

    def _scan(
        self, begin: bytes, end: bytes, limit: int, reverse: bool, streaming: Streaming, conflicting: bool
    ) -> Iterator[KeyValue]:
        pages = Pages(streaming)
        self._trips.ask([(begin, end, limit, reverse, 0)])
        for batch in self._batches(begin, end, limit, reverse, _BATCH_FIRST[streaming], conflicting):
            for number, entries in pages.split(batch):
                self._trips.ask([(begin, end, limit, reverse, number)])
                yield from entries

    def read_ranges(
        self, ranges: Sequence[tuple[bytes, bytes]], limit: int, reverse: bool, conflicting: bool
    ) -> list[list[KeyValue]]:
        limits.check_limit(limit)
        # Every range is checked before the first is read, as on a cluster, where all are started at once.
        bounds = [(self._bound(begin, conflicting), self._bound(end, conflicting)) for begin, end in ranges]
        found = [self._read_whole(begin, end, limit, reverse, conflicting) for begin, end in bounds]
        self._count_pages(bounds, found, limit, reverse)
        return found

    def _count_pages(
        self, bounds: Sequence[tuple[bytes, bytes]], found: Sequence[list[KeyValue]], limit: int, reverse: bool
    ) -> None:
        """The first pages of all ranges are asked for together, then the second pages, and so on."""
        counts = pages_together(found)
        for number in range(max(counts, default=0)):
            asked = [bound for bound, count in zip(bounds, counts, strict=True) if number < count]
            self._trips.ask([(begin, end, limit, reverse, number) for begin, end in asked if begin < end])

    def _read_whole(self, begin: bytes, end: bytes, limit: int, reverse: bool, conflicting: bool) -> list[KeyValue]:
        if begin >= end:
            return []
        size = _BATCH_FIRST[Streaming.WANT_ALL]
        if 0 < limit <= size:
            return self._fetch(begin, end, limit, reverse, conflicting)
        batches = self._batches(begin, end, limit, reverse, size, conflicting)
        return [entry for batch in batches for entry in batch]

    def _batches(
        self, begin: bytes, end: bytes, limit: int, reverse: bool, size: int, conflicting: bool
    ) -> Iterator[list[KeyValue]]:
        remaining = limit
        while True:
            wanted = min(size, remaining) if limit else size
            entries = self._fetch(begin, end, wanted, reverse, conflicting)
            yield entries
            remaining -= len(entries)
            if len(entries) < wanted or (limit and remaining == 0):
                return
            if reverse:
                end = entries[-1][0]
            else:
                begin = entries[-1][0] + b"\0"
            size = min(2 * size, _BATCH_MAX)

    def _fetch(self, begin: bytes, end: bytes, wanted: int, reverse: bool, conflicting: bool) -> list[KeyValue]:
        """Up to `wanted` entries of a range. If `conflicting`, the keys looked at are noted for conflicts."""
        writes = self._writes
        with self._lock:
            self._ensure_open()
            try:
                entries = self._read_entries(begin, end, wanted, reverse)
            except lmdb.Error as error:
                raise as_engine_error(error) from error
        if len(entries) == wanted:
            begin, end = (entries[-1][0], end) if reverse else (begin, entries[-1][0] + b"\0")
        if writes.unreadable and writes.unreadable.overlapping(begin, end):
            raise InvalidUseError(1036, "Read or wrote an unreadable key")
        if conflicting:
            self._note_read_range(begin, end)
        return entries

    def _read_entries(self, begin: bytes, end: bytes, wanted: int, reverse: bool) -> list[KeyValue]:
        writes = self._writes
        if not (writes.mutations and writes.touches(begin, end)):
            return self._store.batch(self._txn, begin, end, wanted, reverse)
        stored = self._store.iterate(self._txn, begin, end, reverse)
        merged = writes.merge(begin, end, stored, reverse, lambda key: self._store.get(self._txn, key))
        return list(islice(merged, wanted))

    def _bound(self, place: bytes | KeySelector, conflicting: bool) -> bytes:
        if isinstance(place, KeySelector):
            return self._resolve(place, conflicting)
        limits.check_bound(place)
        return _shortened(place)

    def _resolve(self, selector: KeySelector, conflicting: bool) -> bytes:
        limits.check_bound(selector.key)
        edge = min(_shortened(selector.key + b"\0" if selector.or_equal else selector.key), KEYS_END)
        forward = selector.offset >= 1
        wanted = selector.offset if forward else 1 - selector.offset
        begin, end = (edge, KEYS_END) if forward else (b"", edge)
        entries = self._fetch(begin, end, wanted, not forward, conflicting) if begin < end else []
        if len(entries) == wanted:
            return entries[-1][0]
        if not entries and begin >= end:
            self._check_usable()
        return KEYS_END if forward else b""

    def _note_read_range(self, begin: bytes, end: bytes) -> None:
        if self._writes.mutations:
            self._read_ranges.extend(self._writes.undecided(begin, end))
        else:
            self._read_ranges.append((begin, end))

    def _ensure_open(self) -> None:
        """Starts the snapshot on the first read; afterwards checks that it may still be used. Needs the lock."""
        if self._txn is None:
            self._check_usable()
            self._txn, self._version = self._snapshots.open(self)
            self._expires_s = min(self._deadline_s, time.monotonic() + TRANSACTION_AGE_S_MAX)
        elif time.monotonic() > self._expires_s:
            self._check_usable()

    def _check_usable(self) -> None:
        if self._closed:
            raise TransactionCancelledError
        if time.monotonic() > self._deadline_s:
            raise TransactionTimedOutError
        if self._is_too_old():
            raise TransactionTooOldError

    def _is_too_old(self) -> bool:
        return self._too_old or (self._txn is not None and time.monotonic() > self._expires_s)

    # Writes

    def set(self, key: bytes, value: bytes) -> None:
        self._check_write(key, value)
        self._writes.set(key, value)
        self._trips.written(key)

    def clear(self, key: bytes) -> None:
        self._check_usable()
        limits.check_key(key)
        if len(key) <= KEY_BYTES_MAX:
            self._writes.clear(key)
            self._trips.written(key)

    def clear_range(self, begin: bytes, end: bytes) -> None:
        begin, end = self._checked_range(begin, end)
        if begin < end:
            self._writes.clear_range(begin, end)

    def atomic(self, operation: Atomic, key: bytes, operand: bytes) -> None:
        self._check_write(key, operand)
        self._writes.atomic(operation, key, operand)

    def set_versionstamped_key(self, template: bytes, value: bytes) -> None:
        self._check_write(template, value)
        position = limits.check_template(template)
        key = template[:-4]
        least = max(self._version, 0).to_bytes(8, "big") + b"\0\0"
        lowest = key[:position] + least + key[position + VERSIONSTAMP_BYTES :]
        highest = key[:position] + b"\xff" * VERSIONSTAMP_BYTES + key[position + VERSIONSTAMP_BYTES :]
        self._writes.set_versionstamped_key(template, value, lowest, highest)

    def set_versionstamped_value(self, key: bytes, template: bytes) -> None:
        self._check_write(key, template)
        limits.check_template(template)
        self._writes.set_versionstamped_value(key, template)

    def add_read_conflict_range(self, begin: bytes, end: bytes) -> None:
        begin, end = self._checked_range(begin, end)
        if begin < end:
            self._note_read_range(begin, end)

    def add_write_conflict_range(self, begin: bytes, end: bytes) -> None:
        begin, end = self._checked_range(begin, end)
        if begin < end:
            self._writes.add_conflict_range(begin, end)

    def approximate_size(self) -> int:
        reads = sum(2 * len(key) + 33 for key in self._read_keys)
        return self._writes.size_bytes + reads + sum(len(b) + len(e) + 32 for b, e in self._read_ranges)

    def watch(self, key: bytes) -> Watch:
        limits.check_watch(key)
        watch = EmbeddedWatch(self._store_watches, key, self._read(key, True))
        self._watches.append(watch)
        return watch

    def _check_write(self, key: bytes, value: bytes) -> None:
        self._check_usable()
        limits.check_write(key, value)

    def _checked_range(self, begin: bytes, end: bytes) -> tuple[bytes, bytes]:
        self._check_usable()
        limits.check_range(begin, end)
        return _shortened(begin), _shortened(end)

    # The end of a run

    def commit(self) -> tuple[int, bytes | None]:
        if self._closed:
            raise TransactionCancelledError
        if time.monotonic() > self._deadline_s:
            raise TransactionTimedOutError
        committed: tuple[int, bytes | None] = (-1, None)
        if self._writes:
            self._trips.committed()
            version, order = self._submit()
            committed = version, version.to_bytes(8, "big") + order.to_bytes(2, "big")
        self._let_go()
        for watch in self._watches:
            watch.start()
        self._watches = []
        return committed

    def _submit(self) -> tuple[int, int]:
        size_bytes = self.approximate_size()
        if size_bytes > TRANSACTION_BYTES_MAX:
            raise LimitError(2101, f"Transaction of {size_bytes} bytes exceeds limit {TRANSACTION_BYTES_MAX}")
        if (self._read_keys or self._read_ranges) and self._is_too_old():
            raise TransactionTooOldError
        writes = self._writes
        request = Request(
            self._version, self._read_keys, self._read_ranges, writes.mutations, writes.keys, writes.ranges, size_bytes
        )
        self._let_go()
        return self._committer.commit(request)

    def recover(self, error: EngineError) -> None:
        self._let_go()
        if not isinstance(error, RetryableError) or self._closed:
            raise error
        if isinstance(error, UnknownResultError) and not self._options.idempotent:
            raise error
        if self._options.retry_limit is not None and self._retries >= self._options.retry_limit:
            raise error
        self._retries += 1
        self._pause(error)
        self._renew()

    def _pause(self, error: EngineError) -> None:
        pause_s = self._backoff_s * random.random()
        self._backoff_s = min(2 * self._backoff_s, _BACKOFF_MAX_S)
        if time.monotonic() + pause_s >= self._deadline_s:
            raise TransactionTimedOutError from error
        time.sleep(pause_s)

    def close(self) -> None:
        self._let_go()
        self._closed = True
        for watch in self._watches:
            watch.cancel()

    def expire(self) -> None:
        """The reaper's call: ends a snapshot that is past its age, so that LMDB can reuse the pages it pins."""
        with self._lock:
            if self._txn is not None and time.monotonic() > self._expires_s:
                self._too_old = True
                self._release_snapshot()

    def _let_go(self) -> None:
        with self._lock:
            self._release_snapshot()

    def _release_snapshot(self) -> None:
        if self._txn is not None:
            self._snapshots.give_back(self, self._txn)
            self._txn = None


class _SnapshotView(Reader):
    """The reads of a transaction, without conflicts."""

    def __init__(self, transaction: EmbeddedTransaction) -> None:
        self._transaction = transaction

    def get(self, key: bytes) -> bytes | None:
        return self._transaction.read_together([key], False)[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._transaction.read_together(keys, False)

    def get_key(self, selector: KeySelector) -> bytes:
        return self._transaction.find_key(selector, False)

    def range(
        self,
        begin: bytes | KeySelector,
        end: bytes | KeySelector,
        *,
        limit: int = 0,
        reverse: bool = False,
        streaming: Streaming = Streaming.ITERATOR,
    ) -> Iterator[KeyValue]:
        return self._transaction.read_range(begin, end, limit, reverse, streaming, False)

    def range_many(
        self, ranges: Sequence[tuple[bytes, bytes]], *, limit: int = 0, reverse: bool = False
    ) -> list[list[KeyValue]]:
        return self._transaction.read_ranges(ranges, limit, reverse, False)

    def read_ahead(self, keys: Sequence[bytes], ranges: Sequence[RangeRead]) -> None:
        self._transaction.read_ahead(keys, ranges)

    def read_version(self) -> int:
        return self._transaction.read_version()


def _shortened(key: bytes) -> bytes:
    """Cuts a bound that is longer than any stored key. That does not change which stored keys are below it."""
    return key if len(key) <= KEY_BYTES_MAX else key[: KEY_BYTES_MAX + 1]
