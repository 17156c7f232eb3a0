"""What a run took, for those who measure."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Figures:
    """Of the process that finds the communities; times in seconds."""

    edges: int = 0
    modularity: float = 0.0
    graph_s: float = 0.0
    leiden_s: float = 0.0
    native_s: float = 0.0
    """Of both, in the libraries: products of matrices, HNSW, Leiden."""

    @contextmanager
    def native(self) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.native_s += time.perf_counter() - begun
