"""The Leiden algorithm, and what it finds in an order of our own."""

from __future__ import annotations

import graspologic_native
import numpy as np
import numpy.typing as npt

from drillcore_server.communities.figures import Figures
from drillcore_server.communities.graph import Graph
from drillcore_server.communities.settings import Parameters

NONE = -1
"""The community of a row that is in none."""


def partition(graph: Graph, parameters: Parameters, figures: Figures) -> npt.NDArray[np.int32]:
    """The community of each row: numbers from 0 on in the order of their first rows, or `NONE`."""
    count = len(graph.starts) - 1
    if graph.edges == 0:
        return np.full(count, NONE, np.int32)
    with figures.native():
        figures.modularity, found = graspologic_native.leiden_csr(
            graph.starts,
            graph.ends,
            graph.weights,
            count,
            resolution=parameters.resolution,
            iterations=parameters.iterations,
            use_modularity=True,
            seed=parameters.seed,
        )
    return numbered(np.fromiter((found[row] for row in range(count)), np.int64, count), parameters.size_min)


def numbered(communities: npt.NDArray[np.int64], size_min: int) -> npt.NDArray[np.int32]:
    """The same communities under numbers that only depend on which rows are together, without those too small."""
    _, first, own, sizes = np.unique(communities, return_index=True, return_inverse=True, return_counts=True)
    kept = np.flatnonzero(sizes >= size_min)
    numbers = np.full(len(sizes), NONE, np.int32)
    numbers[kept[np.argsort(first[kept])]] = np.arange(len(kept), dtype=np.int32)
    return numbers[own]
