"""Builds the graph of facts that are near neighbours, and finds communities in it with the Leiden algorithm."""

from __future__ import annotations

from dataclasses import dataclass

import graspologic_native
import numpy as np
import numpy.typing as npt

from drillcore_server.communities.find.nearest import (
    NOBODY,
    ONE,
    Neighbours,
    Rows,
    approximate_neighbours,
    exact_neighbours,
)
from drillcore_server.communities.find.process import Figures
from drillcore_server.communities.settings import Parameters


@dataclass(frozen=True, slots=True)
class Graph:
    """Undirected: each edge is stored at both ends, row by row like a sparse matrix (CSR)."""

    starts: npt.NDArray[np.int64]
    """Where the edges of each row begin, and where those of the last row end."""
    ends: npt.NDArray[np.int32]
    """The row that each edge leads to."""
    weights: npt.NDArray[np.float64]

    @property
    def edges(self) -> int:
        return len(self.ends) // 2


def similarity_graph(rows: Rows, parameters: Parameters, figures: Figures) -> Graph:
    """Rows must have length 1."""
    find = exact_neighbours if len(rows) <= parameters.exact_facts_max else approximate_neighbours
    return joined(find(rows, parameters.neighbours, parameters.similarity_min, figures))


def joined(neighbours: Neighbours) -> Graph:
    """Joins two rows by an edge if one of them is a neighbour of the other."""
    count = len(neighbours.places)
    there = neighbours.places != NOBODY
    rows = np.nonzero(there)[0]
    near = neighbours.places[there].astype(np.int64)
    weights = neighbours.cosines[there]
    pairs = np.minimum(rows, near) * count + np.maximum(rows, near)
    order = np.lexsort((-weights, pairs))  # an approximate index may give the two ends different last digits
    pairs, first = np.unique(pairs[order], return_index=True)
    low, high, weights = pairs // max(count, 1), pairs % max(count, 1), weights[order][first]
    begin, end = np.concatenate([low, high]), np.concatenate([high, low])
    order = np.lexsort((end, begin))
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(begin, minlength=count), out=starts[1:])
    return Graph(starts, end[order].astype(np.int32), np.concatenate([weights, weights])[order] / ONE)


NONE = -1
"""The community of a row that is in none."""


def partition(graph: Graph, parameters: Parameters, figures: Figures) -> npt.NDArray[np.int32]:
    """Returns the community of each row: numbers from 0 on in the order of their first rows, or `NONE`."""
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
    """Renumbers communities so that numbers depend only on which rows are together. Drops those that are too small."""
    _, first, own, sizes = np.unique(communities, return_index=True, return_inverse=True, return_counts=True)
    kept = np.flatnonzero(sizes >= size_min)
    numbers = np.full(len(sizes), NONE, np.int32)
    numbers[kept[np.argsort(first[kept])]] = np.arange(len(kept), dtype=np.int32)
    return numbers[own]


Places = npt.NDArray[np.int64]


def groups(communities: npt.NDArray[np.int32], importances: npt.NDArray[np.float64], size_min: int) -> list[Places]:
    """Returns the rows of each community, most important first, then in order. Communities with too few rows are left
    out."""
    within = np.flatnonzero(communities != NONE)
    order = within[np.lexsort((-importances[within], communities[within]))]
    cuts = np.flatnonzero(np.diff(communities[order])) + 1
    return [rows for rows in np.split(order, cuts) if len(rows) >= max(size_min, 1)]
