"""Commits in groups: one disk write and one sync for every transaction that is waiting.

The first thread to arrive leads: it takes what is queued, checks each transaction for conflicts, applies those that
have none to one LMDB transaction and commits that. Whoever arrives meanwhile queues up; when the group is on disk the
leader wakes its members, and the first of the queue leads the next. So a lone writer pays for no thread switch, and
many share each sync.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import lmdb

from drillcore_fdb.embedded.atomics import apply
from drillcore_fdb.embedded.conflicts import ConflictWindow
from drillcore_fdb.embedded.ordered import OrderedStore
from drillcore_fdb.embedded.storage import VERSION_KEY, as_engine_error, pack_version
from drillcore_fdb.embedded.values import LmdbTransaction
from drillcore_fdb.embedded.watches import Watches
from drillcore_fdb.embedded.writes import Mutation, Op
from drillcore_fdb.engine import TRANSACTION_AGE_S_MAX, VERSIONSTAMP_BYTES
from drillcore_fdb.errors import (
    ConflictError,
    DiskFullError,
    EngineError,
    StorageError,
    TransactionTooOldError,
    UnavailableError,
    UnknownResultError,
)

_GROUP_TRANSACTIONS_MAX = 1024
_GROUP_BYTES_MAX = 32_000_000
_WINDOW_S = TRANSACTION_AGE_S_MAX + 1.0
"""How long writes of earlier commits are kept: the longest life of a transaction and a second in the queue."""


class Request:
    """A transaction that waits to be committed, and then the result of its commit."""

    __slots__ = (
        "done",
        "error",
        "mutations",
        "order",
        "promoted",
        "read_keys",
        "read_ranges",
        "read_version",
        "size_bytes",
        "version",
        "wake",
        "write_keys",
        "write_ranges",
    )

    def __init__(
        self,
        read_version: int,
        read_keys: Sequence[bytes],
        read_ranges: Sequence[tuple[bytes, bytes]],
        mutations: Sequence[Mutation],
        write_keys: list[bytes],
        write_ranges: Sequence[tuple[bytes, bytes]],
        size_bytes: int,
    ) -> None:
        self.read_version = read_version
        self.read_keys = read_keys
        self.read_ranges = read_ranges
        self.mutations = mutations
        self.write_keys = write_keys
        self.write_ranges = write_ranges
        self.size_bytes = size_bytes
        self.version = -1
        self.order = -1
        self.error: EngineError | None = None
        self.done = False
        self.promoted = False
        """Whether this request's thread must lead the next group."""
        self.wake = threading.Lock()
        self.wake.acquire()


@dataclass(slots=True)
class CommitCounts:
    """Totals since the engine was opened."""

    commits: int = 0
    conflicts: int = 0
    groups: int = 0


class Committer:
    def __init__(self, environment: lmdb.Environment, store: OrderedStore, watches: Watches, version: int) -> None:
        self.counts = CommitCounts()
        self._environment = environment
        self._store = store
        self._watches = watches
        self._version = version
        self._window = ConflictWindow(version, _WINDOW_S)
        self._queue: list[Request] = []
        self._queue_lock = threading.Lock()
        self._idle = threading.Condition(self._queue_lock)
        self._led = False
        self._failure: str | None = None
        self._closed = False

    def commit(self, request: Request) -> tuple[int, int]:
        """Returns version and place within it, once the transaction is on disk. Raises if it is not committed."""
        with self._queue_lock:
            if self._closed:
                raise UnavailableError("the store is closed")
            self._queue.append(request)
            leads = not self._led
            self._led = True
        if not leads:
            self._await_turn(request)
        if not request.done:
            self._lead(request)
        if request.error is not None:
            raise request.error
        return request.version, request.order

    def _await_turn(self, request: Request) -> None:
        """Returns when the request is committed or must lead. If interrupted, it leaves the queue or hands over."""
        try:
            request.wake.acquire()
        except BaseException:
            with self._queue_lock:
                if request in self._queue:
                    self._queue.remove(request)
            if request.promoted and not request.done:
                self._hand_over()
            raise

    def close(self) -> None:
        """Refuses new commits and waits for those under way."""
        with self._idle:
            self._closed = True
            self._idle.wait_for(lambda: not self._led)

    def _lead(self, own: Request) -> None:
        group = self._take_group()
        try:
            self._commit_group(group)
        except BaseException as error:
            for request in group:
                request.error = request.error or UnknownResultError(message=f"The commit was interrupted: {error!r}")
            raise
        finally:
            for request in group:
                request.done = True
                if request is not own:
                    request.wake.release()
            self._hand_over()

    def _take_group(self) -> list[Request]:
        with self._queue_lock:
            count, size_bytes = 0, 0
            for request in self._queue[:_GROUP_TRANSACTIONS_MAX]:
                size_bytes += request.size_bytes
                if count and size_bytes > _GROUP_BYTES_MAX:
                    break
                count += 1
            group, self._queue = self._queue[:count], self._queue[count:]
        return group

    def _hand_over(self) -> None:
        with self._idle:
            if self._queue:
                self._queue[0].promoted = True
                self._queue[0].wake.release()
            else:
                self._led = False
                self._idle.notify_all()

    def _commit_group(self, group: list[Request]) -> None:
        if self._failure is not None:
            for request in group:
                request.error = StorageError(self._failure)
            return
        try:
            self._write(group)
        except DiskFullError as error:
            self._window.reset(self._version)
            if len(group) == 1:
                group[0].error = error
                return
            for request in group:
                self._commit_group([request])
        except EngineError as error:
            self._fail(group, error)

    def _fail(self, group: list[Request], error: EngineError) -> None:
        """Fails a group after a disk error that leaves unknown what was written. Only a restart can find out."""
        self._failure = f"the disk failed during a commit, restart to recover: {error.message}"
        for request in group:
            request.error = UnknownResultError(message=f"Transaction may or may not have committed: {error.message}")

    def _write(self, group: list[Request]) -> None:
        """Commits the transactions of the group without conflicts. Raises on a disk error; then none is committed."""
        version = self._version + 1
        accepted: list[Request] = []
        try:
            with self._environment.begin(write=True) as txn:
                for request in group:
                    if self._judge(request):
                        request.version, request.order = version, len(accepted)
                        self._apply(txn, request)
                        self._window.record(version, request.write_keys, request.write_ranges, time.monotonic())
                        accepted.append(request)
                if not accepted:
                    txn.abort()
                    return
                txn.put(VERSION_KEY, pack_version(version), db=self._store.meta)
        except lmdb.Error as error:
            raise as_engine_error(error) from error
        self._version = version
        self.counts.groups += 1
        self.counts.commits += len(accepted)
        self._window.forget_old(time.monotonic())
        if self._watches:
            for request in accepted:
                self._watches.committed(request.write_keys, request.write_ranges)

    def _judge(self, request: Request) -> bool:
        request.error = None
        if request.read_version < 0 or not (request.read_keys or request.read_ranges):
            return True
        if request.read_version < self._window.oldest_version:
            request.error = TransactionTooOldError()
            return False
        if self._window.conflicts(request.read_version, request.read_keys, request.read_ranges):
            self.counts.conflicts += 1
            request.error = ConflictError()
            return False
        return True

    def _apply(self, txn: LmdbTransaction, request: Request) -> None:
        """Applies its mutations in order. Those that only set keys, one after the other, are applied together."""
        for op, together in groupby(request.mutations, lambda mutation: mutation[0]):
            if op is Op.SET:
                self._store.put_many(txn, {mutation[1]: mutation[2] for mutation in together})
            else:
                self._apply_others(txn, request, together)

    def _apply_others(self, txn: LmdbTransaction, request: Request, mutations: Iterable[Mutation]) -> None:
        store = self._store
        for mutation in mutations:
            op, first, second = mutation[0], mutation[1], mutation[2]
            if op is Op.CLEAR:
                store.delete(txn, first)
            elif op is Op.CLEAR_RANGE:
                store.delete_range(txn, first, second)
            elif op is Op.VERSIONSTAMPED_KEY:
                key = _stamped(first, request)
                request.write_keys.append(key)
                store.put(txn, key, second)
            elif op is Op.VERSIONSTAMPED_VALUE:
                store.put(txn, first, _stamped(second, request))
            else:
                assert len(mutation) == 4
                value = apply(mutation[3], store.get(txn, first), second)
                if value is None:
                    store.delete(txn, first)
                else:
                    store.put(txn, first, value)


def _stamped(template: bytes, request: Request) -> bytes:
    """The template with the commit's version and order in the place it names."""
    position = int.from_bytes(template[-4:], "little")
    stamp = request.version.to_bytes(8, "big") + request.order.to_bytes(2, "big")
    return template[:position] + stamp + template[position + VERSIONSTAMP_BYTES : -4]
