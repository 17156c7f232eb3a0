"""The process that finds communities: `python -m drillcore_server.communities.find.worker`. It does one task and ends.

It also ends when the server does: until it has all rows because its input ends, from then on by a signal.
"""

from __future__ import annotations

import os
import sys
import time
from multiprocessing.connection import Connection
from typing import Final

import numpy as np
import numpy.typing as npt

from drillcore_server.communities.find.neighbour_graph import partition, similarity_graph
from drillcore_server.communities.find.process import COMMUNITY, OUTCOME, TASK, Figures, Outcome, Task
from drillcore_server.communities.settings import Parameters
from drillcore_server.kernel.child_process import (
    end_when_closed,
    leave_no_core_file,
    leave_stop_signals_to_the_server,
    place_of,
)
from drillcore_server.vectors.stored_vectors import row_of

NICENESS: Final = 10
"""Calls to the server come first."""


def main() -> None:
    leave_stop_signals_to_the_server()
    leave_no_core_file()
    os.nice(NICENESS)
    source = Connection(sys.stdin.fileno(), writable=False)
    sink = Connection(sys.stdout.fileno(), readable=False)
    try:
        _answer(source, sink)
    except (EOFError, BrokenPipeError):
        os._exit(1)  # the server closed its end


def _answer(source: Connection, sink: Connection) -> None:
    task = TASK.decode(source.recv_bytes())
    rows = _read_rows(source, task)
    end_when_closed(source.fileno())
    figures = Figures()
    try:
        communities = find_communities(rows, task.parameters, figures)
    except Exception as error:
        sink.send_bytes(OUTCOME.encode(Outcome(figures, place_of(error))))
    else:
        sink.send_bytes(OUTCOME.encode(Outcome(figures)))
        sink.send_bytes(communities.astype(COMMUNITY).tobytes())


def _read_rows(source: Connection, task: Task) -> npt.NDArray[np.float32]:
    """Scales the rows to length 1 as they come: there may be very many, and memory has room for them once."""
    rows = np.empty((task.count, task.dimensions), np.float32)
    start = 0
    while start < task.count:
        received = row_of(source.recv_bytes()).reshape(-1, task.dimensions)
        block = rows[start : start + len(received)]
        block[:] = received
        lengths = np.sqrt(np.einsum("ij,ij->i", block, block))
        np.divide(block, np.maximum(lengths, np.float32(1e-12))[:, np.newaxis], out=block)
        start += len(received)
    return rows


def find_communities(rows: npt.NDArray[np.float32], parameters: Parameters, figures: Figures) -> npt.NDArray[np.int32]:
    """Returns the community of each row, or -1. Rows have length 1 and come in the order of their facts' ids."""
    begun = time.perf_counter()
    graph = similarity_graph(rows, parameters, figures)
    figures.edges, figures.graph_s = graph.edges, time.perf_counter() - begun
    found = partition(graph, parameters, figures)
    figures.leiden_s = time.perf_counter() - begun - figures.graph_s
    return found


if __name__ == "__main__":
    main()
