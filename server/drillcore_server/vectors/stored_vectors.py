"""The stored form of vectors: their direction, in one byte for each component.

The largest component is stored as 127 or -127, and the others in proportion. A stored vector is read back with length
1. Packing it again gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Row = npt.NDArray[np.int8]
COMPONENT: Final = np.dtype("i1")
_PEAK: Final = 127


def packed(vector: npt.NDArray[Any] | Sequence[float]) -> bytes:
    """The stored form of a vector. It must not be zero."""
    (row,) = rows_of(np.asarray(vector)[np.newaxis])
    return bytes(row.tobytes())


def unpacked(stored: bytes) -> npt.NDArray[np.float32]:
    """The vector that is stored, with length 1."""
    vector: npt.NDArray[np.float32] = units_of(row_of(stored)[np.newaxis])[0]
    return vector


def as_stored(vectors: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Rounds vectors to the precision in which they are stored."""
    return units_of(rows_of(vectors))


def row_of(stored: bytes) -> Row:
    """The stored numbers as an index keeps them: in the direction of the vector, of any length."""
    return np.frombuffer(stored, COMPONENT)


def rows_of(vectors: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
    """The stored numbers of vectors, which are rows. None of them may be zero."""
    wide = vectors.astype(np.float64)
    peaks = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    assert (peaks > 0).all(), "a vector without a direction"
    return np.asarray(np.rint(wide * (_PEAK / peaks)), COMPONENT)


def units_of(rows: npt.NDArray[np.int8]) -> npt.NDArray[np.float32]:
    """The vectors of stored numbers, with length 1. A row gets the same bits alone and among others."""
    wide = rows.astype(np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))  # exact: the squares are whole numbers
    return np.asarray(wide / lengths[:, np.newaxis], np.float32)


def dimensions_of(stored: bytes) -> int:
    return len(stored) // COMPONENT.itemsize


def size_bytes(dimensions: int) -> int:
    return dimensions * COMPONENT.itemsize
