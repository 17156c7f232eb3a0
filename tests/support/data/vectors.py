"""Vectors for tests of indexes, random but the same on each run, and a plain search over them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

import numpy as np
import numpy.typing as npt

from drillcore_server.vectors.settings import VectorSettings
from drillcore_server.vectors.vector_index import VectorIndex

DIMENSIONS = 16
Row = npt.NDArray[np.float16]
Items = dict[UUID, Row]

SMALL = VectorSettings(exact_below=50, tail_max=10, build_threads=1)
"""Settings under which a few hundred vectors count as many."""


def never() -> bool:
    """A stop function that never asks to stop."""
    return False


def numbered_id(number: int) -> UUID:
    """Ids in the order of their numbers. The second half alone does not give the order."""
    return UUID(int=(number + 1 << 64) + (1 << 32) - number)


def rows(count: int, seed: int = 1, dimensions: int = DIMENSIONS) -> list[Row]:
    return list(np.random.default_rng(seed).standard_normal((count, dimensions)).astype(np.float16))


def items(count: int, first: int = 0, seed: int = 1) -> Items:
    return {numbered_id(first + place): row for place, row in enumerate(rows(count, seed + first))}


def index_of(vectors: Items, settings: VectorSettings = SMALL) -> VectorIndex[UUID]:
    return VectorIndex[UUID].of(vectors.items(), settings)


def plain_search(
    vectors: Mapping[UUID, Row], query: Row, k: int, allowed: Collection[UUID] | None = None
) -> list[tuple[UUID, float]]:
    """Every vector compared in double precision."""
    scored = [
        (identity, _cosine(row, query)) for identity, row in vectors.items() if allowed is None or identity in allowed
    ]
    return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:k]


def _cosine(row: Row, query: Row) -> float:
    a, b = row.astype(np.float64), query.astype(np.float64)
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def ids(found: list[tuple[UUID, float]]) -> list[UUID]:
    return [identity for identity, _ in found]
