"""The first bytes of a msgpack value: what it is and how long. Only what has a length is told apart."""

from __future__ import annotations

from typing import Final, NamedTuple

ARRAY: Final = "array"
MAP: Final = "map"
TEXT: Final = "text"
BYTES: Final = "bytes"
OTHER: Final = "other"

_SIZED: Final = {
    0xC4: (BYTES, 1),
    0xC5: (BYTES, 2),
    0xC6: (BYTES, 4),
    0xD9: (TEXT, 1),
    0xDA: (TEXT, 2),
    0xDB: (TEXT, 4),
    0xDC: (ARRAY, 2),
    0xDD: (ARRAY, 4),
    0xDE: (MAP, 2),
    0xDF: (MAP, 4),
}
"""By the first byte: what it is, and in how many bytes its length follows."""


class Head(NamedTuple):
    kind: str
    length: int
    """In bytes of a text or bytes, in values of an array, in pairs of a map."""
    end: int
    """Where the value's content begins."""


class Short(Exception):  # noqa: N818 - no error: there is more to come
    """The head is not whole."""


def head_at(data: bytes | bytearray, at: int) -> Head:
    """Raises `Short` if the data ends before the head does."""
    if at >= len(data):
        raise Short
    first = data[at]
    if 0x80 <= first <= 0x8F:
        return Head(MAP, first & 0x0F, at + 1)
    if 0x90 <= first <= 0x9F:
        return Head(ARRAY, first & 0x0F, at + 1)
    if 0xA0 <= first <= 0xBF:
        return Head(TEXT, first & 0x1F, at + 1)
    kind, width = _SIZED.get(first, (OTHER, 0))
    end = at + 1 + width
    if end > len(data):
        raise Short
    return Head(kind, int.from_bytes(data[at + 1 : end], "big"), end)
