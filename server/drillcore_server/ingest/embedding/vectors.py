"""Unit vectors: made from what clients send, packed for storage, and compared."""

from __future__ import annotations

import enum
import heapq
from collections.abc import Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from drillcore_server.ingest.embedding.errors import ModelUnusable, VectorProblem, VectorRefused
from drillcore_server.ingest.embedding.ports import Vector, Vectors

UNIT_TOLERANCE: Final = 2.5e-7
"""A vector this close to length 1 is kept as it is, so that sending back what was read changes no bit. Wide enough for
what rounding to single precision does, and half of what could move a score to the next millionth."""
SCORE_STEPS: Final = 1_000_000
"""Scores are compared as whole millionths."""
EXACT_ROWS_MAX: Final = 4_096
"""Rows scored in double precision at once: 8 MB at 256 dimensions."""


class Comparable(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


Id = TypeVar("Id", bound=Comparable)


class Hit(NamedTuple, Generic[Id]):
    id: Id
    score: float


class Precision(enum.Enum):
    """How a component is stored, little-endian. Value: numpy's name for it."""

    FLOAT32 = "<f4"
    FLOAT16 = "<f2"
    """Half the bytes. Moves the cosine of two vectors by 1e-4 at most on regulations, and never by 1e-3."""


def unit_rows(rows: Vectors) -> Vectors:
    """Rows of length 1, for what a model gave. Raises ModelUnusable for zeros, NaN and infinity."""
    with np.errstate(all="ignore"):
        unit: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    if not np.isfinite(unit).all():
        raise ModelUnusable("the model gave a vector that is all zeros or not finite")
    return unit


def checked_vector(values: Sequence[float] | npt.NDArray[Any], dimensions: int) -> Vector:
    """One vector from outside, of length 1. Raises VectorRefused."""
    unit: Vector = checked_vectors([values], dimensions)[0]
    return unit


def checked_vectors(vectors: Sequence[Sequence[float] | npt.NDArray[Any]], dimensions: int) -> Vectors:
    """Vectors from outside as rows of length 1. Raises VectorRefused for one that cannot be used."""
    rows = [_numbers(values, dimensions, position) for position, values in enumerate(vectors)]
    wide = np.array(rows, np.float64).reshape(len(rows), dimensions)
    _refuse_where(np.asarray(~np.isfinite(wide).all(axis=1)), VectorProblem.NOT_FINITE)
    peaks = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    _refuse_where(peaks[:, 0] == 0, VectorProblem.ZERO)
    return _normalised(wide, peaks)


def _numbers(values: Sequence[float] | npt.NDArray[Any], dimensions: int, position: int) -> npt.NDArray[Any]:
    try:
        row = np.asarray(values)
    except ValueError:  # lists within lists, of different lengths
        raise VectorRefused(VectorProblem.NOT_NUMBERS, position) from None
    if row.ndim != 1 or row.dtype.kind not in "fiu":
        raise VectorRefused(VectorProblem.NOT_NUMBERS, position)
    if len(row) != dimensions:
        raise VectorRefused(VectorProblem.WRONG_LENGTH, position, f": {len(row)} components, not {dimensions}")
    return row


def _refuse_where(bad: npt.NDArray[np.bool_], problem: VectorProblem) -> None:
    if bad.any():
        raise VectorRefused(problem, int(bad.argmax()))


def _normalised(wide: npt.NDArray[np.float64], peaks: npt.NDArray[np.float64]) -> Vectors:
    """Divided by the largest component first: squares of very large or small components leave even doubles' range."""
    scaled = wide / peaks
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        already = np.abs(lengths * peaks - 1) <= UNIT_TOLERANCE
    return np.where(already, wide, scaled / lengths).astype(np.float32)


def pack(vector: Vector, precision: Precision = Precision.FLOAT32) -> bytes:
    assert vector.ndim == 1
    assert np.isfinite(vector).all()
    return vector.astype(precision.value).tobytes()


def unpack(data: bytes, dimensions: int, precision: Precision = Precision.FLOAT32) -> Vector:
    """The packed vector. Raises ValueError when it is not one of that size: damage, or another model's."""
    vector: Vector = unpack_many([data], dimensions, precision)[0]
    return vector


def unpack_many(packed: Sequence[bytes], dimensions: int, precision: Precision = Precision.FLOAT32) -> Vectors:
    """One row each. Of full precision the bytes that were packed; halves are brought back to length 1."""
    size_bytes = dimensions * np.dtype(precision.value).itemsize
    for position, data in enumerate(packed):
        if len(data) != size_bytes:
            raise ValueError(f"packed vector {position} has {len(data)} bytes, not {size_bytes}")
    rows = np.frombuffer(bytearray().join(packed), precision.value).reshape(len(packed), dimensions)
    if precision is Precision.FLOAT32:
        return rows.astype(np.float32, copy=False)
    return unit_rows(rows.astype(np.float32))


def top_k(query: Vector, ids: Sequence[Id], rows: Vectors, k: int) -> list[Hit[Id]]:
    """The k ids whose unit vectors have the greatest cosine with the query, all rows looked at.

    Scores are rounded to 1e-6 and ties go to the smaller id. The answer depends only on the vectors and ids, not on the
    order of the rows: a fast pass finds all that could be among the first k, and those are scored in double precision.
    """
    if len(ids) != len(rows):
        raise ValueError(f"{len(ids)} ids for {len(rows)} vectors")
    if k <= 0 or not len(rows):
        return []
    rough = rows @ query
    error = len(query) * 2.0**-23 + 1 / SCORE_STEPS
    floor = np.partition(rough, len(rows) - k)[len(rows) - k] - 2 * error if k < len(rows) else -np.inf
    candidates = np.flatnonzero(rough >= floor)
    scored = (
        (-steps, ids[row])
        for row, steps in zip(candidates.tolist(), _exact_steps(query, rows, candidates), strict=True)
    )
    return [Hit(id_, -negated / SCORE_STEPS) for negated, id_ in heapq.nsmallest(k, scored)]


def _exact_steps(query: Vector, rows: Vectors, chosen: npt.NDArray[np.intp]) -> Iterator[int]:
    wide = query.astype(np.float64)
    for start in range(0, len(chosen), EXACT_ROWS_MAX):
        scores = (rows[chosen[start : start + EXACT_ROWS_MAX]] * wide).sum(axis=1)
        yield from np.rint(scores * SCORE_STEPS).astype(np.int64).tolist()
