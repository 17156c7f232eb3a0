"""The `[vectors]` table: how vectors are searched, and where indexes are saved."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path


def _half_of_the_cpus() -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(usable // 2, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSettings:
    """Scores are cosines, and so are the thresholds they are compared with (edges of communities, relevance of a
    cache)."""

    m: int = 16
    """The neighbours that a vector is linked to in the graph (HNSW)."""
    ef_construction: int = 200
    """The candidates examined for each vector that is added to the graph."""
    ef_search: int = 100
    """The candidates examined for each search of the graph: more find better results and take longer."""
    exact_below: int = 10_000
    """Up to this many vectors, a search compares every one. Above, it follows the graph."""
    tail_max: int = 1_000
    """Vectors outside the graph, which every search compares. More of them are added to the graph in the background."""
    rebuild_share: float = 0.2
    """An index of which a larger share was removed or changed is rebuilt in the background."""
    remove_after_days: int = 30
    """An index is also rebuilt this long after something was removed or changed, so that its vector leaves
    the graph."""
    build_threads: int = field(default_factory=_half_of_the_cpus)
    """Threads that build a graph; by default half as many as there are usable CPUs."""
    snapshot_dir: Path | None = None
    """Where indexes are saved for the next start; by default `indexes` in the data directory."""

    def folder(self, data_dir: Path) -> Path:
        return self.snapshot_dir or data_dir / "indexes"

    def __post_init__(self) -> None:
        for name in ("ef_construction", "ef_search", "tail_max", "remove_after_days", "build_threads"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0")
        if not 2 <= self.m <= 100:
            raise ValueError("m must be from 2 to 100")
        if self.exact_below < 0:
            raise ValueError("exact_below must be 0 or more")
        if not 0 < self.rebuild_share < 1:
            raise ValueError("rebuild_share must be between 0 and 1")
