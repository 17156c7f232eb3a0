"""The bytes of a file that are at hand, and where in the file they are."""

from __future__ import annotations

from collections.abc import Iterable

from drillcore.cores.failures import WrongShape
from drillcore.cores.heads import Head, Short, head_at

TRUNCATED = "the file ends in the middle of it"


class Window:
    """Moves forward over pieces. What it has passed is forgotten when more is taken."""

    __slots__ = ("_begin", "_pieces", "at", "data")

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._begin = 0
        self.data = bytearray()
        self.at = 0
        """In `data`: what comes next."""

    @property
    def offset(self) -> int:
        """In the file: what comes next."""
        return self._begin + self.at

    @property
    def at_hand(self) -> int:
        return len(self.data) - self.at

    def more(self) -> bytes:
        """Takes the next piece; empty if there is none."""
        piece = next((one for one in self._pieces if one), b"")
        if piece:
            del self.data[: self.at]
            self._begin += self.at
            self.at = 0
            self.data += piece
        return piece

    def move_to(self, offset: int) -> None:
        """To a place in the file that is at hand."""
        self.at = offset - self._begin

    def ended(self) -> bool:
        return not self.at_hand and not self.more()

    def head(self) -> Head:
        """Of the next value, which is passed. Its `end` means nothing any more."""
        while True:
            try:
                found = head_at(self.data, self.at)
            except Short:
                self.need_more()
                continue
            self.at = found.end
            return found

    def take(self, length: int) -> bytes:
        """So many bytes, which are few."""
        while self.at_hand < length:
            self.need_more()
        self.at += length
        return bytes(self.data[self.at - length : self.at])

    def some(self, length_max: int) -> bytes:
        """At least one byte, and no more than these; what is at hand."""
        if not self.at_hand:
            self.need_more()
        return self.take(min(self.at_hand, length_max))

    def need_more(self) -> bytes:
        piece = self.more()
        if not piece:
            raise WrongShape(TRUNCATED)
        return piece
