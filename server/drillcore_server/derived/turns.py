"""Many may read at once, or one may write. Neither keeps the other out for long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """A lock for readers and writers who take turns.

    Whoever waits to read while somebody writes comes before the next writer; whoever comes to read while a writer
    waits comes after it. So a writer who writes in small slices makes a reader wait for one slice.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._reading = 0
        self._queued = 0
        self._writing = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._changed:
            self._queued += 1
            self._changed.wait_for(lambda: not self._writing)
            self._queued -= 1
            self._reading += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._reading -= 1
                self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._writing and not self._queued)
            self._writing = True
            self._changed.wait_for(lambda: not self._reading)
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
