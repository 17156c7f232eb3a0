"""Watches, and waiting for a limited time for results of FoundationDB's network thread."""

from __future__ import annotations

import threading
import weakref

import fdb

from drillcore_fdb.cluster.binding import translate
from drillcore_fdb.engine import Watch
from drillcore_fdb.errors import TransactionCancelledError

_OPERATION_CANCELLED = 1101


def when_ready(future: fdb.Future) -> threading.Event:
    """An event that is set once the future has a value or an error. The binding can only wait without a time limit."""
    ready = threading.Event()
    future.on_ready(lambda _: ready.set())
    return ready


class ClusterWatch(Watch):
    """A watch, made from FoundationDB's future, which stays valid after the transaction has committed."""

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
