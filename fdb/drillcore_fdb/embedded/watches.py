"""Watches of the embedded engine: which keys are watched, and the values that their watchers have seen."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable

from drillcore_fdb.engine import Watch
from drillcore_fdb.errors import TransactionCancelledError


class Watches:
    """All watches that have started. `read` gives the committed value of a key."""

    def __init__(self, read: Callable[[bytes], bytes | None]) -> None:
        self.read = read
        self._lock = threading.Lock()
        self._by_key: dict[bytes, set[EmbeddedWatch]] = defaultdict(set)

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def add(self, watch: EmbeddedWatch) -> None:
        with self._lock:
            self._by_key[watch.key].add(watch)

    def discard(self, watch: EmbeddedWatch) -> None:
        with self._lock:
            waiting = self._by_key.get(watch.key)
            if waiting is not None:
                waiting.discard(watch)
                if not waiting:
                    del self._by_key[watch.key]

    def committed(self, keys: Iterable[bytes], ranges: Iterable[tuple[bytes, bytes]]) -> None:
        """Tells the watches of keys that a commit has touched."""
        with self._lock:
            touched = {key for key in keys if key in self._by_key}
            for begin, end in ranges:
                touched.update(key for key in self._by_key if begin <= key < end)
            watches = [watch for key in touched for watch in self._by_key[key]]
        for watch in watches:
            watch.check()

    def cancel_all(self) -> None:
        with self._lock:
            watches = [watch for waiting in self._by_key.values() for watch in waiting]
        for watch in watches:
            watch.cancel()


class EmbeddedWatch(Watch):
    def __init__(self, watches: Watches, key: bytes, seen: bytes | None) -> None:
        self.key = key
        self._watches = watches
        self._seen = seen
        self._fired = threading.Event()
        self._cancelled = False

    def start(self) -> None:
        """Called when the transaction has committed. A change since its read counts: checked after registering."""
        if not self._cancelled:
            self._watches.add(self)
            self.check()

    def check(self) -> None:
        if not self._fired.is_set() and self._watches.read(self.key) != self._seen:
            self._watches.discard(self)
            self._fired.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        fired = self._fired.wait(timeout_s)
        if self._cancelled:
            raise TransactionCancelledError("The watch was cancelled")
        return fired

    def cancel(self) -> None:
        if not self._fired.is_set():
            self._cancelled = True
            self._watches.discard(self)
            self._fired.set()
