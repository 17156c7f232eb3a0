"""The writes of a transaction: the mutations to commit, and their effect on what the transaction reads."""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from sortedcontainers import SortedList

from drillcore_fdb.embedded.atomics import apply
from drillcore_fdb.embedded.ranges import RangeSet
from drillcore_fdb.engine import Atomic, KeyValue


class Op(enum.Enum):
    SET = "set"
    CLEAR = "clear"
    CLEAR_RANGE = "clear_range"
    ATOMIC = "atomic"
    VERSIONSTAMPED_KEY = "versionstamped_key"
    VERSIONSTAMPED_VALUE = "versionstamped_value"


Mutation = tuple[Op, bytes, bytes] | tuple[Op, bytes, bytes, Atomic]
"""SET key value; CLEAR key -; CLEAR_RANGE begin end; ATOMIC key operand operation; the versionstamped, key value."""


class Unwritten:
    """The transaction's writes do not fix this key's value: apply `pending` to the stored value."""

    __slots__ = ("pending",)

    def __init__(self, pending: tuple[tuple[Atomic, bytes], ...] = ()) -> None:
        self.pending = pending

    def resolve(self, stored: bytes | None) -> bytes | None:
        for operation, operand in self.pending:
            stored = apply(operation, stored, operand)
        return stored


UNTOUCHED: Final = Unwritten()
_MUTATION_BYTES = 24
_RANGE_BYTES = 32
"""The bytes that FoundationDB adds to a transaction's size for each mutation and each conflict range."""


class WriteBuffer:
    """Own writes in order, and the view of the keys they touch."""

    __slots__ = ("_cleared", "_sorted", "_values", "keys", "mutations", "ranges", "size_bytes", "unreadable")

    def __init__(self) -> None:
        self.mutations: list[Mutation] = []
        self.keys: list[bytes] = []
        self.ranges: list[tuple[bytes, bytes]] = []
        self.unreadable = RangeSet()
        self.size_bytes = 0
        self._values: dict[bytes, bytes | Unwritten | None] = {}
        self._cleared = RangeSet()
        self._sorted: SortedList | None = None

    def __bool__(self) -> bool:
        return bool(self.mutations or self.ranges or self.keys)

    def set(self, key: bytes, value: bytes) -> None:
        self._record((Op.SET, key, value))
        self._remember(key, value)

    def clear(self, key: bytes) -> None:
        self._record((Op.CLEAR, key, b""))
        self.unreadable.remove(key, key + b"\0")
        self._remember(key, None)

    def clear_range(self, begin: bytes, end: bytes) -> None:
        self.mutations.append((Op.CLEAR_RANGE, begin, end))
        self.ranges.append((begin, end))
        self.size_bytes += 2 * (len(begin) + len(end)) + _MUTATION_BYTES + _RANGE_BYTES
        for key in self._keys_in(begin, end):
            del self._values[key]
            self._sorted_keys().remove(key)
        self._cleared.add(begin, end)
        self.unreadable.remove(begin, end)

    def atomic(self, operation: Atomic, key: bytes, operand: bytes) -> None:
        self._record((Op.ATOMIC, key, operand, operation))
        known = self.lookup(key)
        if isinstance(known, Unwritten):
            self._remember(key, Unwritten((*known.pending, (operation, operand))))
        else:
            self._remember(key, apply(operation, known, operand))

    def set_versionstamped_value(self, key: bytes, template: bytes) -> None:
        self._record((Op.VERSIONSTAMPED_VALUE, key, template))
        self._remember(key, b"")
        self.unreadable.add(key, key + b"\0")

    def set_versionstamped_key(self, template: bytes, value: bytes, lowest: bytes, highest: bytes) -> None:
        """`lowest` to `highest` are the keys it may become, both included; none of them can be read from now on."""
        self.mutations.append((Op.VERSIONSTAMPED_KEY, template, value))
        self.size_bytes += len(template) + len(value) + _MUTATION_BYTES
        self.unreadable.add(lowest, highest + b"\0")

    def add_conflict_range(self, begin: bytes, end: bytes) -> None:
        self.ranges.append((begin, end))
        self.size_bytes += len(begin) + len(end) + _RANGE_BYTES

    def lookup(self, key: bytes) -> bytes | Unwritten | None:
        """The key's value if own writes fix it, else the operations to apply to the stored value."""
        known = self._values.get(key, UNTOUCHED)
        if known is UNTOUCHED and key in self._cleared:
            return None
        return known

    def touches(self, begin: bytes, end: bytes) -> bool:
        """Whether own writes change what a range contains."""
        return bool(self._cleared.overlapping(begin, end)) or any(True for _ in self._keys_in(begin, end))

    def merge(
        self, begin: bytes, end: bytes, stored: Iterable[KeyValue], reverse: bool, get: Callable[[bytes], bytes | None]
    ) -> Iterator[KeyValue]:
        """`stored` entries of begin..end with own writes on top; `get` reads one stored value."""
        untouched = (entry for entry in stored if self.lookup(entry[0]) is UNTOUCHED)
        own = self._own_entries(self._keys_in(begin, end, reverse), get)
        return heapq.merge(untouched, own, reverse=reverse)

    def undecided(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The parts of a range whose values depend on the store, because own writes do not fix them."""
        decided = RangeSet()
        for cleared_begin, cleared_end in self._cleared.overlapping(begin, end):
            decided.add(cleared_begin, cleared_end)
        for key in self._keys_in(begin, end):
            if not isinstance(self._values[key], Unwritten):
                decided.add(key, key + b"\0")
        for decided_begin, decided_end in decided.overlapping(begin, end):
            if begin < decided_begin:
                yield begin, decided_begin
            begin = decided_end
        if begin < end:
            yield begin, end

    def _record(self, mutation: Mutation) -> None:
        key = mutation[1]
        self.mutations.append(mutation)
        self.keys.append(key)
        self.size_bytes += 3 * len(key) + 1 + len(mutation[2]) + _MUTATION_BYTES + _RANGE_BYTES

    def _remember(self, key: bytes, value: bytes | Unwritten | None) -> None:
        if self._sorted is not None and key not in self._values:
            self._sorted.add(key)
        self._values[key] = value

    def _sorted_keys(self) -> SortedList:
        if self._sorted is None:
            self._sorted = SortedList(self._values)
        return self._sorted

    def _keys_in(self, begin: bytes, end: bytes, reverse: bool = False) -> list[bytes]:
        if not self._values:
            return []
        return list(self._sorted_keys().irange(begin, end, (True, False), reverse))

    def _own_entries(self, keys: list[bytes], get: Callable[[bytes], bytes | None]) -> Iterator[KeyValue]:
        for key in keys:
            value = self._values[key]
            if isinstance(value, Unwritten):
                value = value.resolve(get(key))
            if value is not None:
                yield key, value
