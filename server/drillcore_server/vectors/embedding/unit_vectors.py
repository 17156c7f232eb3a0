"""Makes unit vectors from what models and clients send, and packs them for the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drillcore_proto.reasons import Reason
from drillcore_server.kernel.errors import BadInput
from drillcore_server.vectors.embedding.embedders import (
    ModelUnusable,
    Vector,
    VectorProblem,
    VectorRefused,
    Vectors,
)
from drillcore_server.vectors.stored_vectors import rows_of

UNIT_TOLERANCE: Final = 2.5e-7
"""A vector this close to length 1 stays as it is, so that sending back what was read changes no bit. The tolerance
covers rounding to single precision, and is half of what could move a score by a millionth."""
_PACKED: Final = np.dtype("<f4")


def unit_rows(rows: Vectors) -> Vectors:
    """Scales what a model gave to rows of length 1. Raises `ModelUnusable` for zeros, NaN and infinity."""
    with np.errstate(all="ignore"):
        unit: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    if not np.isfinite(unit).all():
        raise ModelUnusable("the model gave a vector that is all zeros or not finite")
    return unit


def checked_vector(values: Sequence[float] | npt.NDArray[Any], dimensions: int) -> Vector:
    """Scales a vector from outside to length 1. Raises `VectorRefused`."""
    unit: Vector = checked_vectors([values], dimensions)[0]
    return unit


def checked_vectors(vectors: Sequence[Sequence[float] | npt.NDArray[Any]], dimensions: int) -> Vectors:
    """Scales vectors from outside to rows of length 1. Raises `VectorRefused` for the first unusable one."""
    rows = [_numbers(values, dimensions, position) for position, values in enumerate(vectors)]
    wide = np.array(rows, np.float64).reshape(len(rows), dimensions)
    _refuse_where(np.asarray(~np.isfinite(wide).all(axis=1)), VectorProblem.NOT_FINITE)
    peaks = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    _refuse_where(peaks[:, 0] == 0, VectorProblem.ZERO)
    return _normalised(wide, peaks)


def _numbers(values: Sequence[float] | npt.NDArray[Any], dimensions: int, position: int) -> npt.NDArray[Any]:
    try:
        row = np.asarray(values)
    except ValueError:  # nested lists of different lengths
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
    """Divides by the largest component first: squares of very large or small components overflow even doubles."""
    scaled = wide / peaks
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        already = np.abs(lengths * peaks - 1) <= UNIT_TOLERANCE
    return np.where(already, wide, scaled / lengths).astype(np.float32)


def pack(vector: Vector) -> bytes:
    assert vector.ndim == 1
    assert np.isfinite(vector).all()
    return vector.astype(_PACKED).tobytes()


def unpack_many(packed: Sequence[bytes], dimensions: int) -> Vectors:
    """Returns the vectors as rows, bit for bit. Raises `ValueError` for damage, or for vectors of another length."""
    size_bytes = dimensions * _PACKED.itemsize
    for position, data in enumerate(packed):
        if len(data) != size_bytes:
            raise ValueError(f"packed vector {position} has {len(data)} bytes, not {size_bytes}")
    rows = np.frombuffer(bytearray().join(packed), _PACKED).reshape(len(packed), dimensions)
    return rows.astype(np.float32, copy=False)


DIMENSIONS_MAX: Final = 4_096


def client_vector(values: Sequence[float], what: str) -> Vector:
    """Returns a client's vector, scaled to length 1. Raises `BadInput` with a message that begins with `what`."""
    if len(values) > DIMENSIONS_MAX:
        raise BadInput(Reason.INVALID_VECTOR, f"{what} has over {DIMENSIONS_MAX} components", field="vector")
    try:
        return checked_vector(np.fromiter(values, np.float32, len(values)), len(values))
    except VectorRefused as refused:
        raise BadInput(Reason.INVALID_VECTOR, f"{what} {refused.problem.value}", field="vector") from refused


_FACTS_AT_ONCE: Final = 1_024
"""Facts that are embedded together."""


def packed_in_portions(embed: Callable[[Sequence[str]], Vectors], texts: Sequence[str]) -> Iterator[bytes]:
    """Embeds texts in portions and packs the vectors: unpacked they take twice the memory, and facts may be many."""
    for start in range(0, len(texts), _FACTS_AT_ONCE):
        for row in rows_of(embed(texts[start : start + _FACTS_AT_ONCE])):
            yield row.tobytes()
