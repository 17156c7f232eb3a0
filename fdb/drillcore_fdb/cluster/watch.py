"""Waiting, for a bounded time, for what FoundationDB's network thread reports."""

from __future__ import annotations

import threading
import weakref

import fdb

from drillcore_fdb.cluster.binding import translate
from drillcore_fdb.engine import Watch
from drillcore_fdb.errors import TransactionCancelledError

_OPERATION_CANCELLED = 1101


def when_ready(future: fdb.Future) -> threading.Event:
    """An event set once the future has its value or its error. The binding itself can only wait without a limit."""
    ready = threading.Event()
    future.on_ready(lambda _: ready.set())
    return ready


class ClusterWatch(Watch):
    """A watch by FoundationDB's future for it, which outlives the transaction once that has committed."""

    def __init__(self, future: fdb.impl.FutureVoid) -> None:
        self._future = future
        self._ready = when_ready(future)
        # The binding keeps a future with a callback until it fires; for a watch nobody holds any more that may be
        # never, and a cluster allows a limited number of them. No __del__: in a cycle of garbage the future may be
        # freed before the watch.
        weakref.finalize(self, future.cancel).atexit = False

    def wait(self, timeout_s: float | None = None) -> bool:
        if not self._ready.wait(timeout_s):
            return False
        try:
            self._future.wait()
        except fdb.FDBError as error:
            if error.code == _OPERATION_CANCELLED:
                raise TransactionCancelledError("The watch was cancelled") from error
            raise translate(error) from error
        return True

    def cancel(self) -> None:
        self._future.cancel()
