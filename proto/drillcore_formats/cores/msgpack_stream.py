"""Reads msgpack from a file in pieces: a window over its bytes, the heads of values, and where values end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgpack

from drillcore_formats.cores.format import RECORD_BYTES_MAX, WrongShape

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
"""By the first byte: the kind of value, and how many bytes hold its length."""
_READ_BYTES: Final = 64 << 10


class Head(NamedTuple):
    """The first bytes of a value: what it is, and how long."""

    kind: str
    """`OTHER` for values without a length."""
    length: int
    """Bytes of a text or byte string, values of an array, pairs of a map."""
    end: int
    """Where the content begins."""


class Short(Exception):  # noqa: N818 - not an error: more bytes will come
    """The data ends in the middle of a head."""


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


class Window:
    """The bytes of a file that are in memory. It moves forward; bytes behind it are dropped when more are read."""

    __slots__ = ("_begin", "_pieces", "at", "data")

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._begin = 0
        self.data = bytearray()
        self.at = 0
        """The position in `data`."""

    @property
    def offset(self) -> int:
        """The position in the file."""
        return self._begin + self.at

    @property
    def at_hand(self) -> int:
        """How many bytes can be taken without reading more of the file."""
        return len(self.data) - self.at

    def more(self) -> bytes:
        """Reads the next piece of the file, which is empty at the end."""
        piece = next((piece for piece in self._pieces if piece), b"")
        if piece:
            del self.data[: self.at]
            self._begin += self.at
            self.at = 0
            self.data += piece
        return piece

    def need_more(self) -> bytes:
        """Reads the next piece of the file. Raises `WrongShape` at the end."""
        piece = self.more()
        if not piece:
            raise WrongShape("the file ends in the middle of it")
        return piece

    def move_to(self, offset: int) -> None:
        """Moves to an offset of the file that is in memory."""
        self.at = offset - self._begin

    def ended(self) -> bool:
        return not self.at_hand and not self.more()

    def head(self) -> Head:
        """The head of the next value. The window moves behind it, so its `end` is no longer valid."""
        while True:
            try:
                found = head_at(self.data, self.at)
            except Short:
                self.need_more()
                continue
            self.at = found.end
            return found

    def take(self, length: int) -> bytes:
        """The next `length` bytes. Keep it small: they are all held in memory."""
        while self.at_hand < length:
            self.need_more()
        self.at += length
        return bytes(self.data[self.at - length : self.at])

    def some(self, length_max: int) -> bytes:
        """Some of the next bytes: at least one, at most `length_max`."""
        if not self.at_hand:
            self.need_more()
        return self.take(min(self.at_hand, length_max))


class EndFinder:
    """Finds where values end, with msgpack's own `skip`. Starts where the window is; ask once for each value."""

    __slots__ = ("_begin", "_fed_to", "_unpacker", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._unpacker = msgpack.Unpacker(max_buffer_size=0, read_size=_READ_BYTES)
        self._begin = self._fed_to = window.offset

    def end(self) -> int | None:
        """The offset in the file where the value ends. Raises `WrongShape` if it is not msgpack.

        None if the window does not hold all of the value: continue with `read_to_end`, or make another finder.
        """
        self._feed()
        try:
            self._unpacker.skip()
        except msgpack.OutOfData:
            return None
        except msgpack.StackError:
            raise WrongShape("it is nested too deeply") from None
        except ValueError:
            raise WrongShape("it is not msgpack") from None
        return self._begin + int(self._unpacker.tell())

    def read_to_end(self) -> int:
        """Like `end`, but reads as much of the file as needed. Raises `WrongShape` if that is too much."""
        while (end := self.end()) is None:
            self._check_size(self._window.offset + self._window.at_hand)
            self._window.need_more()
        self._check_size(end)
        return end

    def _check_size(self, end: int) -> None:
        if end - self._window.offset > RECORD_BYTES_MAX:
            raise WrongShape(f"it has more than {RECORD_BYTES_MAX:,} bytes")

    def _feed(self) -> None:
        window = self._window
        fed = self._fed_to - window.offset + window.at
        if fed < len(window.data):
            self._unpacker.feed(memoryview(window.data)[fed:])
            self._fed_to = window.offset + window.at_hand
