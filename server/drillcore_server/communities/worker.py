"""The process that finds communities: `python -m drillcore_server.communities.worker`. One task, then it ends.

It ends with the server, however that ends: until all rows are read by the end of its input, from then on by a signal.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import sys
import time
import traceback
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from drillcore_server.communities.figures import Figures
from drillcore_server.communities.graph import similarity_graph
from drillcore_server.communities.leiden import partition
from drillcore_server.communities.settings import Parameters
from drillcore_server.communities.wire import COMMUNITY, Outcome, Task, message, read_message, read_rows

NICENESS: Final = 10
"""Calls come first."""


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # meant for the server, which says when its processes end
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold vectors
    os.nice(NICENESS)
    try:
        _answer(sys.stdin.buffer, sys.stdout.buffer)
    except (EOFError, BrokenPipeError):
        os._exit(1)  # the server is done with us


def _answer(source: BinaryIO, sink: BinaryIO) -> None:
    task = read_message(source, Task)
    rows = read_rows(source, task)
    _end_with(source)
    figures = Figures()
    try:
        communities = find_communities(rows, task.parameters, figures)
    except Exception as error:
        sink.write(message(Outcome(figures, _place(error))))
    else:
        sink.write(message(Outcome(figures)))
        sink.write(communities.astype(COMMUNITY).tobytes())
    sink.flush()


def find_communities(rows: npt.NDArray[np.float32], parameters: Parameters, figures: Figures) -> npt.NDArray[np.int32]:
    """The community of each row, or none. Rows have length 1 and are in the order of their facts' ids."""
    begun = time.perf_counter()
    graph = similarity_graph(rows, parameters, figures)
    figures.edges, figures.graph_s = graph.edges, time.perf_counter() - begun
    found = partition(graph, parameters, figures)
    figures.leiden_s = time.perf_counter() - begun - figures.graph_s
    return found


def _end_with(source: BinaryIO) -> None:
    """Asks the kernel for a signal when the other end of the input closes: SIGIO ends a process.

    A thread that watches it would not get its turn while a library keeps the interpreter's lock.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(source, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(source, fcntl.F_SETFL, fcntl.fcntl(source, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([source], [], [], 0)[0]:
        raise EOFError  # it closed before we asked


def _place(error: Exception) -> str:
    """Where it happened; what it says might be content."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {frame.name}, line {frame.lineno}"


if __name__ == "__main__":
    main()
