"""How much memory a process takes at its peak."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_EVERY_S = 0.02


@dataclass
class Peak:
    """Sizes in bytes. `own` leaves out pages of files, such as the store's, which the process can do without."""

    own: int = 0
    resident: int = 0


@contextmanager
def peak_of(pid: int) -> Iterator[Peak]:
    """The peak of a process during the block, known at its end. `own` is measured many times a second."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # resets the peak to the present use
    peak, ended = Peak(own_bytes(pid)), threading.Event()

    def watch() -> None:
        while not ended.wait(_EVERY_S):
            peak.own = max(peak.own, own_bytes(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        ended.set()
        watcher.join()
        peak.resident = _status(pid, "VmHWM")


def own_bytes(pid: int) -> int:
    return _status(pid, "RssAnon")


def _status(pid: int, name: str) -> int:
    """A figure of /proc/PID/status; 0 once the process has gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)
