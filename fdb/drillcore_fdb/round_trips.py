"""Counts sequential round trips: how often a piece of work waits for an answer of a cluster before it can go on.

    with counted() as trips:
        engine.run(work)
    trips.count

Both engines count alike, so the embedded engine shows what the same work costs on a cluster:

    the read version     one, at the first read of a run
    a read               one; reads that are asked for together are one
    a range              one for each page that a cluster sends
    a commit             one, if anything was written
    what was read or written before in the same run    none, since FoundationDB's client keeps it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from typing import Final

from drillcore_fdb.engine import KeySelector, KeyValue, Streaming

_ENTRY_BYTES: Final = 24
"""What FoundationDB adds to the bytes of a key and its value when it measures a page."""
_PAGE_BYTES: Final = {
    Streaming.SMALL: (256,),
    Streaming.WANT_ALL: (80_000,),
    Streaming.ITERATOR: (4_096, 6_144, 9_216, 13_824, 20_736, 31_104, 46_656, 69_984, 80_000, 120_000),
}
"""The sizes of the pages of a range, as FoundationDB 7.3's client asks for them. The last size repeats."""


class RoundTrips:
    """The round trips and transactions of a piece of work."""

    __slots__ = ("count", "transactions")

    def __init__(self) -> None:
        self.count = 0
        self.transactions = 0
        """Runs of transactions that read or wrote, retries included."""


_total: ContextVar[RoundTrips | None] = ContextVar("round trips of the work under way", default=None)


@contextmanager
def counted() -> Iterator[RoundTrips]:
    """Counts the round trips that this thread makes in the block. Blocks inside also count for those around them."""
    outer, total = _total.get(), RoundTrips()
    token = _total.set(total)
    try:
        yield total
    finally:
        _total.reset(token)
        if outer is not None:
            outer.count += total.count
            outer.transactions += total.transactions


RangePage = tuple[bytes | KeySelector, bytes | KeySelector, int, bool, int]
"""A page of a range: begin, end, limit, whether it is reversed, and the page's number, from 0 on."""


class RunCounter:
    """Counts the round trips of one `Engine.run`. It adds them to the block of `counted` that the run began in."""

    __slots__ = ("_began", "_known", "_total")

    def __init__(self) -> None:
        total = _total.get()
        self._total = RoundTrips() if total is None else total
        self.begin()

    def begin(self) -> None:
        """Starts a run, or starts it again: nothing is known yet."""
        self._began = False
        self._known: set[bytes | KeySelector | RangePage] = set()

    def ask(self, requests: Iterable[bytes | KeySelector | RangePage]) -> None:
        """Reads that are asked for together: keys, selectors, or pages of ranges."""
        unknown = set(requests) - self._known
        if unknown:
            self.read_version()
            self._known |= unknown
            self._total.count += 1

    def read_version(self) -> None:
        if not self._began:
            self._began = True
            self._total.count += 1
            self._total.transactions += 1

    def written(self, key: bytes) -> None:
        """A key whose value the transaction decides itself."""
        self._known.add(key)

    def committed(self) -> None:
        """A commit with writes."""
        if not self._began:
            self._total.transactions += 1
        self._total.count += 1


class Pages:
    """Splits the entries of a range into pages as a cluster sends them. The entries may come in several batches."""

    __slots__ = ("_left", "_number", "_sizes")

    def __init__(self, streaming: Streaming) -> None:
        self._sizes = _PAGE_BYTES[streaming]
        self._number = 0
        self._left = self._sizes[0]

    def split(self, entries: Sequence[KeyValue]) -> Iterator[tuple[int, Sequence[KeyValue]]]:
        """The parts of the next batch, each with the number of its page, from 0 on."""
        size = _ENTRY_BYTES * len(entries) + sum(map(len, chain.from_iterable(entries)))
        if size < self._left:
            self._left -= size
            yield self._number, entries
            return
        start = 0
        for place, (key, value) in enumerate(entries):
            if self._left <= 0:
                if start < place:
                    yield self._number, entries[start:place]
                self._number, start = self._number + 1, place
                self._left = self._sizes[min(self._number, len(self._sizes) - 1)]
            self._left -= _ENTRY_BYTES + len(key) + len(value)
        yield self._number, entries[start:]


def pages_together(ranges: Iterable[Sequence[KeyValue]]) -> list[int]:
    """For each range that is read with others at once: the number of pages in which a cluster sends its entries."""
    return [1 + max(number for number, _ in Pages(Streaming.WANT_ALL).split(entries)) for entries in ranges]
