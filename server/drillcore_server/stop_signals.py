"""Ctrl-C and SIGTERM: what tells a server to stop."""

from __future__ import annotations

import signal
from queue import SimpleQueue


class StopSignals:
    """From now on they no longer end the process: `wait` returns after the first of them."""

    def __init__(self) -> None:
        # Not an Event: a signal that comes while `wait` has the Event's lock would wait for that lock for ever.
        self._received: SimpleQueue[int] = SimpleQueue()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda received, _frame: self._received.put(received))

    def wait(self) -> None:
        self._received.get()
