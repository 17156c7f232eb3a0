"""Decides whether a transaction may commit: has anything it read been written since its read version?"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Sequence

KeyRangeTuple = tuple[bytes, bytes]
_FEW_KEYS = 8
"""Up to this many keys, looking at each key is faster than sorting them."""


class _Written:
    """The keys and ranges that one commit wrote."""

    __slots__ = ("_sorted", "at_s", "keys", "ranges", "version")

    def __init__(self, version: int, keys: Sequence[bytes], ranges: Sequence[KeyRangeTuple], at_s: float) -> None:
        self.version = version
        self.keys = keys
        self.ranges = ranges
        self.at_s = at_s
        self._sorted: list[bytes] | None = None

    def meets(self, begin: bytes, end: bytes) -> bool:
        if len(self.keys) <= _FEW_KEYS:
            for key in self.keys:
                if begin <= key < end:
                    return True
        elif self._has_key_in(begin, end):
            return True
        if not self.ranges:
            return False
        return any(begin < written_end and written_begin < end for written_begin, written_end in self.ranges)

    def _has_key_in(self, begin: bytes, end: bytes) -> bool:
        if self._sorted is None:
            self._sorted = sorted(self.keys)
        place = bisect_left(self._sorted, begin)
        return place < len(self._sorted) and self._sorted[place] < end


class ConflictWindow:
    """The writes of recent commits. Used by one thread at a time: the thread that leads the commit.

    A single key is checked in constant time against the last version that wrote it; a range against each commit
    since the read version. Commits older than `keep_s` are forgotten, and a transaction from before them can
    no longer be judged: it is too old.
    """

    def __init__(self, version: int, keep_s: float) -> None:
        self.oldest_version = version
        """Conflicts of reads at this version or a later one can be decided."""
        self._keep_s = keep_s
        self._written: deque[_Written] = deque()
        self._last_version: dict[bytes, int] = {}
        self._range_writes = 0

    def conflicts(self, read_version: int, keys: Collection[bytes], ranges: Collection[KeyRangeTuple]) -> bool:
        last_version = self._last_version
        if any(last_version.get(key, 0) > read_version for key in keys):
            return True
        if ranges and self._any_range_written(read_version, ranges):
            return True
        return bool(self._range_writes and keys) and self._any_key_in_written_range(read_version, sorted(keys))

    def record(self, version: int, keys: Sequence[bytes], ranges: Sequence[KeyRangeTuple], now_s: float) -> None:
        self._written.append(_Written(version, keys, ranges, now_s))
        self._range_writes += bool(ranges)
        last_version = self._last_version
        for key in keys:
            last_version[key] = version

    def forget_old(self, now_s: float) -> None:
        while self._written and self._written[0].at_s < now_s - self._keep_s:
            old = self._written.popleft()
            self.oldest_version = old.version
            self._range_writes -= bool(old.ranges)
            for key in old.keys:
                if self._last_version.get(key) == old.version:
                    del self._last_version[key]

    def reset(self, version: int) -> None:
        """Forgets everything; transactions that read before `version` become too old."""
        self._written.clear()
        self._last_version.clear()
        self._range_writes = 0
        self.oldest_version = version

    def _any_range_written(self, read_version: int, ranges: Collection[KeyRangeTuple]) -> bool:
        for written in reversed(self._written):
            if written.version <= read_version:
                return False
            if any(written.meets(begin, end) for begin, end in ranges):
                return True
        return False

    def _any_key_in_written_range(self, read_version: int, keys: list[bytes]) -> bool:
        for written in reversed(self._written):
            if written.version <= read_version:
                return False
            for begin, end in written.ranges:
                place = bisect_left(keys, begin)
                if place < len(keys) and keys[place] < end:
                    return True
        return False
