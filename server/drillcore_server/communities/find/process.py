"""Runs the process that finds communities, and defines the messages that go between it and the server.

server -> process    the task, then the rows in order, as they are stored: any number of whole rows in a message
process -> server    the outcome, then the community of each row: 32-bit integers
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Final

import numpy as np
import numpy.typing as npt

from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.communities.settings import Parameters
from drillcore_server.kernel.child_process import exit_text
from drillcore_server.storage.records import RecordKind

COMMUNITY: Final = np.dtype("<i4")
BEAT_S: Final = 5.0
_MESSAGE_BYTES: Final = 1 << 20
_COMMAND: Final = (sys.executable, "-m", "drillcore_server.communities.find.worker")
_ONE_THREAD: Final = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")}
"""The process must not take processors from calls that wait for an answer."""
_KILL_S: Final = 5.0
"""The time that the kernel has to end a killed process."""


@dataclass(slots=True)
class Figures:
    """What a run found and took, for benchmarks. Times are in seconds."""

    edges: int = 0
    modularity: float = 0.0
    graph_s: float = 0.0
    leiden_s: float = 0.0
    native_s: float = 0.0
    """The part of both that was spent in libraries: matrix products, HNSW, Leiden."""

    @contextmanager
    def native(self) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.native_s += time.perf_counter() - begun


@dataclass(frozen=True, slots=True)
class Task:
    count: int
    dimensions: int
    parameters: Parameters = field(default_factory=Parameters)


@dataclass(frozen=True, slots=True)
class Outcome:
    figures: Figures
    defect: str = ""
    """Where the process failed, if it did. Then no communities follow."""


TASK: Final = RecordKind(Task)
OUTCOME: Final = RecordKind(Outcome)


class FailedError(Exception):
    """The process ended without a result. The message says how, without content."""


@dataclass(frozen=True, slots=True)
class Found:
    communities: npt.NDArray[np.int32]
    """One for each row, in order; -1 for a row in no community."""
    figures: Figures


@dataclass(frozen=True, slots=True)
class _Child:
    process: subprocess.Popen[bytes]
    input: Connection
    output: Connection

    def send(self, task: Task, rows: Iterable[bytes]) -> None:
        """Leaves the input open: closing it would end the process."""
        self.input.send_bytes(TASK.encode(task))
        waiting = bytearray()
        for row in rows:
            waiting += row
            if len(waiting) >= _MESSAGE_BYTES:
                self.input.send_bytes(waiting)
                waiting = bytearray()
        if waiting:
            self.input.send_bytes(waiting)

    def receive(self, task: Task, beat: Callable[[], object]) -> Found:
        while not self.output.poll(BEAT_S):
            beat()
        outcome = OUTCOME.decode(self.output.recv_bytes())
        if outcome.defect:
            raise FailedError(f"the process that finds communities failed: {outcome.defect}")
        communities = np.frombuffer(self.output.recv_bytes(), COMMUNITY)
        if len(communities) != task.count:
            raise ValueError("not one community for each row")
        return Found(communities.astype(np.int32), outcome.figures)

    def end(self) -> str:
        """Kills the process unless it has ended. Says what ended it. May be called again."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(0.1 if self.process.poll() is None else 0.0)
        self.process.kill()
        code = self.process.wait(_KILL_S)
        self.input.close()
        self.output.close()
        return exit_text(code)


class Processes:
    """The running processes of one server. `close` ends them and lets no other start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def find(self, task: Task, rows: Iterable[bytes], beat: Callable[[], object] = int) -> Found:
        """Returns the community of each row. Calls `beat` every few seconds meanwhile.

        Raises `FailedError` if the process fails or is killed. Whatever `rows` and `beat` raise also ends it.
        """
        child = self._start()
        try:
            child.send(task, rows)
            beat()
            return child.receive(task, beat)
        except (EOFError, OSError, ValueError, StoreCorruptError) as error:
            raise FailedError(f"the process that finds communities ended early ({child.end()})") from error
        finally:
            child.end()
            with self._lock:
                self._running.discard(child.process)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            running = list(self._running)
        for process in running:
            process.kill()

    def _start(self) -> _Child:
        with self._lock:
            if self._closed:
                raise FailedError("the server is stopping")
            child = _start_child()
            self._running.add(child.process)
        return child


def _start_child() -> _Child:
    stdin, ours_to_write = Pipe(duplex=False)
    ours_to_read, stdout = Pipe(duplex=False)
    with stdin, stdout:
        process = subprocess.Popen(  # noqa: S603 - this interpreter, our own module
            _COMMAND,
            stdin=stdin.fileno(),
            stdout=stdout.fileno(),
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_ONE_THREAD},
            process_group=0,  # signals that a terminal sends to the server are not meant for the process
        )
    return _Child(process, ours_to_write, ours_to_read)
