"""`[vectors]`: how vectors are searched, and where indexes are saved."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path


def _half_of_the_cpus() -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(usable // 2, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSettings:
    """Scores are cosines: what is compared with them (edges of communities, relevance of a cache) is given as one."""

    m: int = 16
    """Neighbours that a vector is linked to in the graph (HNSW)."""
    ef_construction: int = 200
    """Candidates that are looked at for each vector that is put into the graph."""
    ef_search: int = 100
    """Candidates that are looked at for each search of the graph: more find better and take longer."""
    exact_below: int = 10_000
    """Up to so many vectors a search compares every one. Above, the graph leads to the nearest."""
    tail_max: int = 1_000
    """Vectors beside the graph, which every search compares; more of them are put into the graph in the background."""
    rebuild_share: float = 0.2
    """An index in which more than this share was removed or changed is built anew, in the background."""
    remove_after_days: int = 30
    """The same for one in which something was removed or changed so long ago: its vector leaves the graph for good."""
    build_threads: int = field(default_factory=_half_of_the_cpus)
    """That build a graph; by default half as many as there are usable CPUs."""
    snapshot_dir: Path | None = None
    """Where indexes are saved for the next start; by default `indexes` in the data directory."""

    def folder(self, data_dir: Path) -> Path:
        """Where indexes are saved."""
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
