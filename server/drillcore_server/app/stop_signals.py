"""Waits for Ctrl-C or SIGTERM, which tell a server to stop."""

from __future__ import annotations

import os
import signal
from typing import Final

_STOPPING: Final = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Once made, these signals no longer end the process. `wait` returns after the first one."""

    def __init__(self) -> None:
        # Not an Event or a queue: a signal that arrives in another thread, or just before the main thread begins to
        # wait for a lock, does not wake the main thread. The pipe is written at once, whichever thread gets the signal.
        self._received, written = os.pipe()
        os.set_blocking(written, False)
        signal.set_wakeup_fd(written)
        for number in _STOPPING:
            signal.signal(number, lambda _received, _frame: None)

    def wait(self) -> None:
        while os.read(self._received, 1)[0] not in _STOPPING:
            pass
