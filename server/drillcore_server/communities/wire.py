"""What the server and the process that finds communities say to each other, over pipes: vectors are content.

server -> process    length of the task (4 bytes), the task as JSON, then the rows: 16-bit floats, in order
process -> server    length of the outcome (4), the outcome as JSON, then a community for each row: 32-bit integers
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from drillcore_server.communities.figures import Figures
from drillcore_server.communities.settings import Parameters

T = TypeVar("T")
COMMUNITY: Final = np.dtype("<i4")
COMPONENT: Final = np.dtype("<f2")
_LENGTH_BYTES: Final = 4
_ROWS_AT_ONCE: Final = 4_096


@dataclass(frozen=True, slots=True)
class Task:
    count: int
    dimensions: int
    parameters: Parameters = field(default_factory=Parameters)

    @property
    def row_bytes(self) -> int:
        return self.dimensions * COMPONENT.itemsize


@dataclass(frozen=True, slots=True)
class Outcome:
    figures: Figures
    defect: str = ""
    """Where the process failed, if it did: then there are no communities."""


def message(said: Task | Outcome) -> bytes:
    encoded = msgspec.json.encode(said)
    return len(encoded).to_bytes(_LENGTH_BYTES, "big") + encoded


def read_message(stream: BinaryIO, kind: type[T]) -> T:
    """Raises `EOFError` if the other side has ended, `ValueError` if it talks nonsense."""
    length = int.from_bytes(read_exactly(stream, _LENGTH_BYTES), "big")
    return msgspec.json.decode(read_exactly(stream, length), type=kind)


def read_exactly(stream: BinaryIO, size_bytes: int) -> bytes:
    found = stream.read(size_bytes)
    if len(found) != size_bytes:
        raise EOFError
    return found


def read_rows(stream: BinaryIO, task: Task) -> npt.NDArray[np.float32]:
    """Rows of length 1, block by block: there may be very many, and they are to be in memory once."""
    rows = np.empty((task.count, task.dimensions), np.float32)
    for block in _blocks(rows):
        block[:] = np.frombuffer(read_exactly(stream, len(block) * task.row_bytes), COMPONENT).reshape(block.shape)
        lengths = np.sqrt(np.einsum("ij,ij->i", block, block))
        np.divide(block, np.maximum(lengths, np.float32(1e-12))[:, np.newaxis], out=block)
    return rows


def _blocks(rows: npt.NDArray[np.float32]) -> Iterator[npt.NDArray[np.float32]]:
    return (rows[start : start + _ROWS_AT_ONCE] for start in range(0, len(rows), _ROWS_AT_ONCE))
