"""Ctrl-C and SIGTERM: what tells a server to stop."""

from __future__ import annotations

import os
import signal
from typing import Final

_STOPPING: Final = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """From now on they no longer end the process: `wait` returns after the first of them."""

    def __init__(self) -> None:
        # Not an Event or a queue: a signal that the system hands to another thread, or that comes just before the main
        # thread begins to wait for a lock, wakes nobody who waits for one. The pipe is written to at once, in whichever
        # thread the signal comes.
        self._received, told = os.pipe()
        os.set_blocking(told, False)
        signal.set_wakeup_fd(told)
        for number in _STOPPING:
            signal.signal(number, lambda _received, _frame: None)

    def wait(self) -> None:
        while os.read(self._received, 1)[0] not in _STOPPING:
            pass
