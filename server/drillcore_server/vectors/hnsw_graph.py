"""The HNSW graph of near vectors: faiss behind a lock, since nobody may search it while vectors are added."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import faiss
import numpy as np
import numpy.typing as npt

from drillcore_server.vectors.settings import VectorSettings


class ReadWriteLock:
    """A lock for many readers or one writer. Neither keeps the other out for long.

    A reader that waits for a writer comes before the next writer; a reader that comes while a writer waits comes after
    it. So a writer that writes in small slices makes a reader wait for one slice.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._reading = 0
        self._queued = 0
        self._writing = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        with self._changed:
            self._queued += 1
            self._changed.wait_for(lambda: not self._writing)
            self._queued -= 1
            self._reading += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._reading -= 1
                self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._writing and not self._queued)
            self._writing = True
            self._changed.wait_for(lambda: not self._reading)
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()


Units = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
_SLICE: Final = 4
"""Vectors added at once while others search: each takes about a millisecond."""


class Graph:
    """Vectors of length 1 under the labels 0 up to `count`. A search finds what was added before it began."""

    def __init__(self, index: Any, settings: VectorSettings) -> None:
        """`index` is a faiss.IndexHNSWFlat; faiss has no types."""
        self._index = index
        self._index.hnsw.efConstruction = settings.ef_construction
        self._index.hnsw.efSearch = settings.ef_search
        self._lock = ReadWriteLock()
        self.blanked = 0
        """How many of the erased vectors of its log are blanked in it, or were never in it."""

    @classmethod
    def empty(cls, dimensions: int, settings: VectorSettings) -> Graph:
        """Compares by inner product, which for two vectors of length 1 is their cosine."""
        return cls(faiss.IndexHNSWFlat(dimensions, settings.m, faiss.METRIC_INNER_PRODUCT), settings)

    @property
    def count(self) -> int:
        found: int = self._index.ntotal
        return found

    def build(self, vectors: Units, threads: int) -> None:
        """Adds vectors under the next labels. Only for a graph that nobody searches yet."""
        faiss.omp_set_num_threads(threads)  # applies to the calling thread only
        self._index.add(vectors)

    def absorb(self, vectors: Units) -> None:
        """Adds vectors under the next labels while others search; searches wait a few milliseconds at most."""
        for start in range(0, len(vectors), _SLICE):
            with self._lock.writing():
                self.build(vectors[start : start + _SLICE], threads=1)

    def blank(self, labels: list[int]) -> None:
        """Overwrites vectors with zeros. Their links stay, so that searches still find the others."""
        inside = [label for label in labels if label < self.count]
        with self._lock.writing():
            self._vectors()[inside] = 0
        self.blanked += len(labels)

    def nearest(self, vector: Units, count: int) -> Labels | None:
        """Returns the labels of the nearest vectors; None if the search reaches fewer than `count`."""
        with self._lock.reading():
            _, labels = self._index.search(vector[np.newaxis], min(count, self.count))
        found: Labels = labels[0]
        return None if (found < 0).any() else found

    def save(self) -> npt.NDArray[np.uint8]:
        """Returns the whole graph with its vectors as bytes for `load`."""
        with self._lock.reading():
            saved: npt.NDArray[np.uint8] = faiss.serialize_index(self._index)
        return saved

    @classmethod
    def load(cls, saved: npt.NDArray[np.uint8], dimensions: int, settings: VectorSettings) -> Graph:
        """Raises `RuntimeError` if the bytes are not a graph of vectors with so many dimensions."""
        index = faiss.deserialize_index(saved)
        if not isinstance(index, faiss.IndexHNSWFlat) or index.d != dimensions:
            raise RuntimeError("its graph has another kind")
        return cls(index, settings)

    def _vectors(self) -> Units:
        """Returns a view of the vectors in faiss. It is valid only until more are added."""
        kept: Any = faiss.downcast_index(self._index.storage)
        view: Units = faiss.rev_swig_ptr(kept.get_xb(), self.count * self._index.d)
        return view.reshape(self.count, self._index.d)
