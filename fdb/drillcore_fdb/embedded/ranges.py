"""A set of keys kept as disjoint ranges, each from a begin up to, not including, an end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class RangeSet:
    __slots__ = ("_begins", "_ends")

    def __init__(self) -> None:
        self._begins: list[bytes] = []
        self._ends: list[bytes] = []

    def __bool__(self) -> bool:
        return bool(self._begins)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(zip(self._begins, self._ends, strict=True))

    def __contains__(self, key: bytes) -> bool:
        place = bisect_right(self._begins, key) - 1
        return place >= 0 and key < self._ends[place]

    def add(self, begin: bytes, end: bytes) -> None:
        first, last = bisect_left(self._ends, begin), bisect_right(self._begins, end)
        if first < last:
            begin, end = min(begin, self._begins[first]), max(end, self._ends[last - 1])
        self._begins[first:last] = [begin]
        self._ends[first:last] = [end]

    def remove(self, begin: bytes, end: bytes) -> None:
        kept = [(b, e) for b, e in self.overlapping(begin, end) if b < begin or e > end]
        first, last = self._touched(begin, end)
        pieces = [(b, min(e, begin)) for b, e in kept if b < begin] + [(max(b, end), e) for b, e in kept if e > end]
        self._begins[first:last] = [b for b, _ in pieces]
        self._ends[first:last] = [e for _, e in pieces]

    def overlapping(self, begin: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        """The ranges that share a key with begin..end, whole."""
        first, last = self._touched(begin, end)
        return list(zip(self._begins[first:last], self._ends[first:last], strict=True))

    def _touched(self, begin: bytes, end: bytes) -> tuple[int, int]:
        first, last = bisect_right(self._ends, begin), bisect_left(self._begins, end)
        return first, max(first, last)
