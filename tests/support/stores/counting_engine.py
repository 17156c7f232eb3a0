"""An engine that counts what calls read, so that a test sees whether a cost grows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from drillcore_fdb.engine import Attempts, Engine, KeySelector, KeyValue, Options, RangeRead, Reader, Streaming
from drillcore_fdb.errors import EngineError
from tests.support.stores.faulty_engine import Faults, FaultyAttempts, FaultyEngine
from tests.support.stores.held_store import is_of_a_call


@dataclass(slots=True)
class Reads:
    """What calls have read so far. Background work does not count."""

    keys: int = 0
    ranges: int = 0
    entries: int = 0
    """The entries of all ranges."""

    def note(self, keys: int = 0, ranges: int = 0, entries: int = 0) -> None:
        if is_of_a_call():
            self.keys += keys
            self.ranges += ranges
            self.entries += entries

    def copy(self) -> Reads:
        return replace(self)

    def since(self, before: Reads) -> Reads:
        return Reads(self.keys - before.keys, self.ranges - before.ranges, self.entries - before.entries)


class CountingEngine(FaultyEngine):
    """Has no faults. `counted` is what calls have read."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner, Faults(0, {}))
        self.counted = Reads()

    def begin(self, options: Options) -> Attempts:
        return _CountingAttempts(self.inner.begin(options), self)


class _CountingAttempts(FaultyAttempts):
    def __init__(self, inner: Attempts, engine: CountingEngine) -> None:
        super().__init__(inner, engine.faults)
        self._once = _Once(engine.counted)
        self._reads = _CountingReader(inner, self._once)

    @property
    def snapshot(self) -> Reader:
        return _CountingReader(self._inner.snapshot, self._once)

    def recover(self, error: EngineError) -> None:
        super().recover(error)
        self._once.begin()


_Range = tuple[bytes | KeySelector, bytes | KeySelector, int, bool]


class _Once:
    """Counts what a transaction reads, once each: it keeps what it has read."""

    def __init__(self, counted: Reads) -> None:
        self._counted = counted
        self.begin()

    def begin(self) -> None:
        self._asked: set[bytes | KeySelector | _Range] = set()
        self._returned: set[_Range] = set()

    def keys(self, keys: Iterable[bytes | KeySelector]) -> None:
        new = set(keys) - self._asked
        self._asked |= new
        self._counted.note(keys=len(new))

    def ranges(self, ranges: Iterable[_Range]) -> None:
        new = set(ranges) - self._asked
        self._asked |= new
        self._counted.note(ranges=len(new))

    def entries(self, of: _Range, count: int) -> None:
        if of not in self._returned:
            self._returned.add(of)
            self._counted.note(entries=count)


class _CountingReader(Reader):
    def __init__(self, inner: Reader, once: _Once) -> None:
        self._inner = inner
        self._once = once

    def get(self, key: bytes) -> bytes | None:
        self._once.keys([key])
        return self._inner.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._once.keys(keys)
        return self._inner.get_many(keys)

    def get_key(self, selector: KeySelector) -> bytes:
        self._once.keys([selector])
        return self._inner.get_key(selector)

    def range(
        self,
        begin: bytes | KeySelector,
        end: bytes | KeySelector,
        *,
        limit: int = 0,
        reverse: bool = False,
        streaming: Streaming = Streaming.ITERATOR,
    ) -> Iterator[KeyValue]:
        asked, count = (begin, end, limit, reverse), 0
        self._once.ranges([asked])
        try:
            for entry in self._inner.range(begin, end, limit=limit, reverse=reverse, streaming=streaming):
                count += 1
                yield entry
        finally:
            self._once.entries(asked, count)

    def range_many(
        self, ranges: Sequence[tuple[bytes, bytes]], *, limit: int = 0, reverse: bool = False
    ) -> list[list[KeyValue]]:
        asked = [(begin, end, limit, reverse) for begin, end in ranges]
        self._once.ranges(asked)
        found = self._inner.range_many(ranges, limit=limit, reverse=reverse)
        for of, entries in zip(asked, found, strict=True):
            self._once.entries(of, len(entries))
        return found

    def read_ahead(self, keys: Sequence[bytes], ranges: Sequence[RangeRead]) -> None:
        self._once.keys(keys)
        self._once.ranges((of.begin, of.end, of.limit, of.reverse) for of in ranges)
        self._inner.read_ahead(keys, ranges)

    def read_version(self) -> int:
        return self._inner.read_version()
