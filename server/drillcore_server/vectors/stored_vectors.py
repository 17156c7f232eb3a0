"""The stored form of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Row = npt.NDArray[np.float16]
COMPONENT: Final = np.dtype("<f2")


def packed(vector: npt.NDArray[Any] | Sequence[float]) -> bytes:
    """A vector of length 1 in its stored form."""
    return np.asarray(vector, np.float32).astype(COMPONENT).tobytes()


def unpacked(stored: bytes) -> npt.NDArray[np.float32]:
    """The vector that is stored."""
    return np.frombuffer(stored, COMPONENT).astype(np.float32)


def row_of(stored: bytes) -> Row:
    """The stored numbers as an index keeps them: in the direction of the vector, of any length."""
    return np.frombuffer(stored, COMPONENT)


def size_bytes(dimensions: int) -> int:
    return dimensions * COMPONENT.itemsize
