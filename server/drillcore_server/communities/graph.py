"""The graph that communities are found in: facts that are near neighbours, joined by their cosine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from drillcore_server.communities.figures import Figures
from drillcore_server.communities.nearest import NOBODY, ONE, Neighbours, Rows, approximate_neighbours, exact_neighbours
from drillcore_server.communities.settings import Parameters


@dataclass(frozen=True, slots=True)
class Graph:
    """Undirected: each edge stands at both of its ends. Row by row, as sparse matrices are kept (CSR)."""

    starts: npt.NDArray[np.int64]
    """Where the edges of each row begin, and where the last one's end."""
    ends: npt.NDArray[np.int32]
    """The row that each edge leads to."""
    weights: npt.NDArray[np.float64]

    @property
    def edges(self) -> int:
        return len(self.ends) // 2


def similarity_graph(rows: Rows, parameters: Parameters, figures: Figures) -> Graph:
    """Of rows of length 1."""
    find = exact_neighbours if len(rows) <= parameters.exact_facts_max else approximate_neighbours
    return joined(find(rows, parameters.neighbours, parameters.similarity_min, figures))


def joined(neighbours: Neighbours) -> Graph:
    """Two rows have an edge if one of them is a neighbour of the other."""
    count = len(neighbours.places)
    there = neighbours.places != NOBODY
    one = np.nonzero(there)[0]
    other = neighbours.places[there].astype(np.int64)
    weights = neighbours.cosines[there]
    pairs = np.minimum(one, other) * count + np.maximum(one, other)
    order = np.lexsort((-weights, pairs))  # an approximate index may give its two ends different last digits
    pairs, first = np.unique(pairs[order], return_index=True)
    low, high, weights = pairs // max(count, 1), pairs % max(count, 1), weights[order][first]
    begin, end = np.concatenate([low, high]), np.concatenate([high, low])
    order = np.lexsort((end, begin))
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(begin, minlength=count), out=starts[1:])
    return Graph(starts, end[order].astype(np.int32), np.concatenate([weights, weights])[order] / ONE)
