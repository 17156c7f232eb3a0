"""The server's side of the process that finds communities."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Final, cast

import numpy as np
import numpy.typing as npt

from drillcore_server.communities.figures import Figures
from drillcore_server.communities.wire import COMMUNITY, Outcome, Task, message, read_exactly, read_message

_COMMAND: Final = (sys.executable, "-m", "drillcore_server.communities.worker")
_ONE_THREAD: Final = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")}
"""It must not take the processors from those who wait for an answer."""
BEAT_S: Final = 5.0
_LAST_WORDS_S: Final = 5.0


class FailedError(Exception):
    """The process ended without a result. Says how, without content."""


@dataclass(frozen=True, slots=True)
class Found:
    communities: npt.NDArray[np.int32]
    """Of each row, in order; -1 for none."""
    figures: Figures


class Processes:
    """Those of one server. `close` ends them, and lets none begin."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def find(self, task: Task, rows: Iterable[bytes], beat: Callable[[], object] = int) -> Found:
        """The community of each row. `beat` is called every few seconds meanwhile.

        Raises `FailedError` if the process is killed or fails; whatever `rows` and `beat` raise ends it too.
        """
        process = self._start()
        try:
            _send(process, task, rows, beat)
            return _receive(process, task, beat)
        except (EOFError, OSError, ValueError) as error:
            raise FailedError(f"the process that finds communities ended early ({_end(process)})") from error
        finally:
            _end(process)
            with self._lock:
                self._running.discard(process)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            running = list(self._running)
        for process in running:
            process.kill()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise FailedError("the server is stopping")
            process = subprocess.Popen(  # noqa: S603 - this interpreter, our own module
                _COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **_ONE_THREAD},
                process_group=0,  # what a terminal tells the server is not for it
            )
            self._running.add(process)
        return process


def _send(process: subprocess.Popen[bytes], task: Task, rows: Iterable[bytes], beat: Callable[[], object]) -> None:
    sink = cast(BinaryIO, process.stdin)
    sink.write(message(task))
    for row in rows:
        sink.write(row)
    sink.flush()  # and not closed: that would end the process
    beat()


def _receive(process: subprocess.Popen[bytes], task: Task, beat: Callable[[], object]) -> Found:
    source = cast(BinaryIO, process.stdout)
    with selectors.DefaultSelector() as selector:
        selector.register(source, selectors.EVENT_READ)
        while not selector.select(BEAT_S):
            beat()
    outcome = read_message(source, Outcome)
    if outcome.defect:
        raise FailedError(f"the process that finds communities failed: {outcome.defect}")
    communities = np.frombuffer(read_exactly(source, task.count * COMMUNITY.itemsize), COMMUNITY)
    return Found(communities.astype(np.int32), outcome.figures)


def _end(process: subprocess.Popen[bytes]) -> str:
    """Ends it if it has not ended yet. What ended it: a signal's name, or its exit code."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.1 if process.poll() is None else 0.0)
    process.kill()
    code = process.wait(_LAST_WORDS_S)
    for stream in (process.stdin, process.stdout):
        with suppress(OSError):
            cast(BinaryIO, stream).close()
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
