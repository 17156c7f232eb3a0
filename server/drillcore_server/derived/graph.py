"""The graph of near vectors (HNSW): hnswlib behind a lock, since it must not be searched while something is added."""

from __future__ import annotations

import os
from typing import Any, Final

import hnswlib
import numpy as np
import numpy.typing as npt

from drillcore_server.derived.settings import VectorSettings
from drillcore_server.derived.turns import Turns

Units = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
_SPACE: Final = "ip"
"""Inner product: that of vectors of length 1 is their cosine."""
_SLICE: Final = 4
"""Vectors added at once beside searches: each takes about a millisecond."""
_ROOM: Final = 1_024
"""Vectors that there is room for at least: hnswlib needs to know."""


class Graph:
    """Labels 0 up to `count`. What is added is found by searches that begin afterwards."""

    def __init__(self, index: Any, count: int, ef_search: int) -> None:
        """`index`: hnswlib's own, which has no types."""
        self._index = index
        self._index.set_ef(ef_search)
        self._turns = Turns()
        self.count = count
        self.blanked = 0
        """How many of the erased vectors of its log were taken out of it, or were not in it."""

    @classmethod
    def empty(cls, dimensions: int, room: int, settings: VectorSettings) -> Graph:
        index = hnswlib.Index(_SPACE, dimensions)
        index.init_index(max(room, _ROOM), M=settings.m, ef_construction=settings.ef_construction)
        return cls(index, 0, settings.ef_search)

    def build(self, vectors: Units, threads: int) -> None:
        """Adds vectors under the next labels. Only for a graph that nobody searches yet."""
        self._make_room(self.count + len(vectors))
        labels = np.arange(self.count, self.count + len(vectors))
        self._index.add_items(vectors, labels, num_threads=threads)
        self.count += len(vectors)

    def absorb(self, vectors: Units) -> None:
        """The same beside searches, which wait for a few milliseconds at most."""
        for start in range(0, len(vectors), _SLICE):
            with self._turns.writing():
                self.build(vectors[start : start + _SLICE], threads=1)

    def blank(self, labels: list[int]) -> None:
        """Puts zeros in the place of vectors. They stay linked, so that the others are still found."""
        zeros = np.zeros((1, self._index.dim), np.float32)
        for label in labels:
            if label < self.count:
                with self._turns.writing():
                    self._index.add_items(zeros, np.array([label]), num_threads=1)
            self.blanked += 1

    def nearest(self, vector: Units, count: int) -> Labels | None:
        """The labels of the nearest vectors. None if so many cannot be reached."""
        with self._turns.reading():
            try:
                labels, _ = self._index.knn_query(vector, k=min(count, self.count), num_threads=1)
            except RuntimeError:
                return None
        return np.asarray(labels[0], dtype=np.int64)

    def save(self) -> int:
        """A file in memory with the graph, which the caller closes.

        hnswlib can only write to a path. It lets nothing else run meanwhile: under a second for a million vectors.
        """
        file = os.memfd_create("drillcore-graph")
        try:
            with self._turns.reading():
                self._index.save_index(f"/proc/self/fd/{file}")
            return file
        except BaseException:
            os.close(file)
            raise

    @classmethod
    def load(cls, file: int, dimensions: int, settings: VectorSettings) -> Graph:
        """From a file in memory. Raises RuntimeError if it holds no graph."""
        index = hnswlib.Index(_SPACE, dimensions)
        index.load_index(f"/proc/self/fd/{file}")
        return cls(index, index.element_count, settings.ef_search)

    def _make_room(self, size: int) -> None:
        if size > self._index.max_elements:
            self._index.resize_index(max(size, self._index.max_elements * 3 // 2))
