"""Vectors for tests of indexes: by chance, but the same each time; and the plain way to search them."""

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
"""With which a few hundred vectors are many."""


def never() -> bool:
    """Nobody wants it to stop."""
    return False


def one_id(number: int) -> UUID:
    """In the order of their numbers, though not by the second half alone."""
    return UUID(int=(number + 1 << 64) + (1 << 32) - number)


def rows(count: int, seed: int = 1, dimensions: int = DIMENSIONS) -> list[Row]:
    return list(np.random.default_rng(seed).standard_normal((count, dimensions)).astype(np.float16))


def items(count: int, first: int = 0, seed: int = 1) -> Items:
    return {one_id(first + place): row for place, row in enumerate(rows(count, seed + first))}


def index_of(vectors: Items, settings: VectorSettings = SMALL) -> VectorIndex[UUID]:
    return VectorIndex[UUID].of(vectors.items(), settings)


def plain_search(
    vectors: Mapping[UUID, Row], query: Row, k: int, allowed: Collection[UUID] | None = None
) -> list[tuple[UUID, float]]:
    """Every vector compared in double precision."""
    scored = [(one, _cosine(row, query)) for one, row in vectors.items() if allowed is None or one in allowed]
    return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:k]


def _cosine(row: Row, query: Row) -> float:
    a, b = row.astype(np.float64), query.astype(np.float64)
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def ids(found: list[tuple[UUID, float]]) -> list[UUID]:
    return [one for one, _ in found]
