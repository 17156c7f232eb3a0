"""The order of a log's records: their indexes, the places of their commits, and the keys that signed them."""

from __future__ import annotations

from drillcore.audit.failures import Mismatch
from drillcore.audit.leaves import Leaf


class Sequence:
    """Sees the records of a log one after the other: all of them from `first` on, or with `gaps` some."""

    def __init__(self, first: int, size: int, *, gaps: bool) -> None:
        self._size = size
        self._gaps = gaps
        self._place = (-1, b"")
        self._seen: set[bytes] = set()
        self._key_number = 0
        self.next = first
        """The index that the next record has, or if there may be gaps, has at least."""

    def missing_before(self, index: int) -> range:
        """The indexes that are left out if the record of this one comes next."""
        return range(0) if self._gaps else range(self.next, min(index, self._size))

    def check(self, index: int, leaf: Leaf) -> None:
        """Raises `Mismatch` unless the record may come next."""
        expected, self.next = self.next, max(self.next, index + 1)
        if index >= self._size:
            raise Mismatch(f"it is said to be at {index}, but the log has only {self._size} records")
        if index < expected:
            raise Mismatch(f"it is said to be at {index}, where another record is already")
        if leaf.record.bytes in self._seen:
            raise Mismatch("it is there twice")
        self._seen.add(leaf.record.bytes)
        if leaf.place <= self._place:
            raise Mismatch("it is out of order: it was committed before the record that stands before it")
        self._place = leaf.place

    def check_key(self, number: int) -> None:
        """Raises `Mismatch` if a later key had taken over already: from then on none before it signs."""
        if number < self._key_number:
            raise Mismatch(f"it is signed by key {number}, after key {self._key_number} had taken over")
        self._key_number = number

    def rotated_to(self, number: int) -> None:
        self._key_number = max(self._key_number, number)
