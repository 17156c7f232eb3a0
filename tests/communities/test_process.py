"""The process that finds communities: its input, its failures, and when it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import pytest

from drillcore_server.communities.find.neighbour_graph import NONE
from drillcore_server.communities.find.process import TASK, FailedError, Processes, Task
from drillcore_server.communities.settings import Parameters
from drillcore_server.vectors.stored_vectors import packed
from drillcore_server.vectors.stored_vectors import rows_of as vectors_as_rows
from tests.support.processes.children import gone_afterwards
from tests.support.stores.stores import wait_until

COMMAND = [sys.executable, "-m", "drillcore_server.communities.find.worker"]
LONG = vectors_as_rows(np.random.default_rng(1).standard_normal((60_000, 64)))
"""Takes the process many seconds."""


@pytest.fixture
def processes() -> Iterator[Processes]:
    found = Processes()
    yield found
    found.close()


def rows_of(*vectors: list[float]) -> list[bytes]:
    return [packed(vector) for vector in vectors]


def test_the_process_finds_communities_of_rows_of_any_length(processes: Processes) -> None:
    near, far = [[3.0, 0.1 * place] for place in range(4)], [[0.0, -1.0 - place] for place in range(3)]
    found = processes.find(Task(8, 2, Parameters()), rows_of(*near, [-5.0, 0.5], *far))
    assert found.communities.tolist() == [0, 0, 0, 0, NONE, 1, 1, 1]
    assert found.figures.edges == 9
    assert found.figures.native_s > 0


def test_parameters_reach_the_process(processes: Processes) -> None:
    rows = rows_of(*[[1.0, 0.5 * place] for place in range(4)])
    assert processes.find(Task(4, 2, Parameters(size_min=5)), rows).communities.tolist() == [NONE] * 4


def test_no_rows_are_no_error(processes: Processes) -> None:
    assert processes.find(Task(0, 0, Parameters()), []).communities.tolist() == []


def test_too_few_rows_do_not_keep_the_process_waiting_for_ever(processes: Processes) -> None:
    def rows() -> Iterator[bytes]:
        yield from rows_of([1.0, 0.0])
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        processes.find(Task(2, 2, Parameters()), rows())


def test_a_killed_process_is_reported_as_killed(processes: Processes) -> None:
    def rows() -> Iterator[bytes]:
        (process,) = processes._running
        process.send_signal(signal.SIGKILL)
        process.wait()
        while True:
            yield LONG.tobytes()

    with pytest.raises(FailedError, match="SIGKILL"):
        processes.find(Task(len(LONG), 64, Parameters()), rows())


def test_a_defect_is_reported_with_its_place_and_without_content(processes: Processes) -> None:
    with pytest.raises(FailedError, match=r"failed: \w+Error at \w+\.py:\d+$"):
        processes.find(Task(4, 2, Parameters(iterations=-1)), rows_of(*[[1.0, 0.5]] * 4))


def test_close_ends_running_processes_and_lets_none_begin(processes: Processes) -> None:
    sent = threading.Event()

    def rows() -> Iterator[bytes]:
        yield LONG.tobytes()
        sent.set()

    with ThreadPoolExecutor(1) as beside:
        found = beside.submit(processes.find, Task(len(LONG), 64, Parameters()), rows())
        assert sent.wait(30)
        processes.close()
        with pytest.raises(FailedError):
            found.result(30)
    with pytest.raises(FailedError, match="stopping"):
        processes.find(Task(0, 0, Parameters()), [])


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_the_process_ends_with_the_server_before_and_after_it_has_all_rows(share: float) -> None:
    """The kernel closes the input of the process when the server dies."""
    stdin, ours = Pipe(duplex=False)
    with stdin:
        started = subprocess.Popen(COMMAND, stdin=stdin.fileno(), stdout=subprocess.PIPE)
    with gone_afterwards(started) as process:
        assert process.stdout is not None
        with ours:
            ours.send_bytes(TASK.encode(Task(len(LONG), 64, Parameters())))
            ours.send_bytes(LONG[: int(share * len(LONG))].tobytes())
        assert process.wait(timeout=30) != 0
        assert process.stdout.read() == b""


def test_a_signal_meant_for_the_server_does_not_end_the_process(processes: Processes) -> None:
    meant = (signal.SIGINT, signal.SIGTERM)

    def rows() -> Iterator[bytes]:
        (process,) = processes._running
        yield from rows_of([1.0, 0.0])
        wait_until(lambda: all(ignores(process.pid, number) for number in meant), "the process has begun")
        for number in meant:
            os.kill(process.pid, number)
        yield from rows_of([1.0, 0.0], [1.0, 0.0])

    assert processes.find(Task(3, 2, Parameters()), rows()).communities.tolist() == [0, 0, 0]


def ignores(pid: int, number: signal.Signals) -> bool:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(status["SigIgn"], 16) >> (number - 1) & 1)
