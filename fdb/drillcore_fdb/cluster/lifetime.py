"""The commits and watches of an engine, so that closing it can wait for the commits and cancel the watches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

from drillcore_fdb.engine import Watch
from drillcore_fdb.errors import UnavailableError


class Lifetime:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._commits_under_way = 0
        self._watches: WeakSet[Watch] = WeakSet()
        self._closed = False

    def check_open(self) -> None:
        if self._closed:
            raise UnavailableError("The engine is closed")

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Around a commit. Raises `UnavailableError` after `close`."""
        with self._changed:
            self.check_open()
            self._commits_under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._commits_under_way -= 1
                self._changed.notify_all()

    def add_watch(self, watch: Watch) -> None:
        with self._changed:
            self._watches.add(watch)

    def close(self) -> None:
        """Refuses further commits and waits for those under way, at most until their timeouts."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: self._commits_under_way == 0)
            watches = list(self._watches)
        for watch in watches:
            watch.cancel()
