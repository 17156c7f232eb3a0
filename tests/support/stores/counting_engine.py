"""An engine that counts what is read and written through it, so that a test sees whether a cost grows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from drillcore_fdb.engine import (
    Attempts,
    Engine,
    KeySelector,
    KeyValue,
    Options,
    RangeRead,
    Reader,
    Streaming,
)
from drillcore_fdb.errors import EngineError
from tests.support.stores.faulty_engine import Faults, FaultyAttempts, FaultyEngine

_Range = tuple[bytes | KeySelector, bytes | KeySelector, int, bool]


@dataclass(slots=True)
class Counts:
    """What was read and written. What a transaction reads again costs a cluster nothing, and does not count again."""

    keys: int = 0
    """Keys that were asked for one by one, or many at once."""
    ranges: int = 0
    """Ranges that were asked for."""
    entries: int = 0
    """The entries of these ranges."""
    written: int = 0
    """Keys that were set."""
    bytes: int = 0
    """Bytes of all keys and values that were found or set."""

    @property
    def reads(self) -> int:
        return self.keys + self.ranges


class CountingEngine(FaultyEngine):
    """Has no faults. `counts` may be replaced at any time. Threads that `counted` refuses do not count."""

    def __init__(self, inner: Engine, counted: Callable[[], bool] = lambda: True) -> None:
        super().__init__(inner, Faults(0, {}))
        self.counts = Counts()
        self.counted = counted

    def begin(self, options: Options) -> Attempts:
        return _CountingAttempts(self.inner.begin(options), self)


class _Once:
    """Counts what one transaction reads, once each."""

    def __init__(self, engine: CountingEngine) -> None:
        self._engine = engine
        self.begin()

    def begin(self) -> None:
        self._asked: set[bytes | KeySelector | _Range] = set()
        self._found: set[bytes | _Range] = set()

    def ask_keys(self, keys: Iterable[bytes | KeySelector]) -> None:
        self._note(keys=self._new(keys))

    def ask_ranges(self, ranges: Iterable[_Range]) -> None:
        self._note(ranges=self._new(ranges))

    def find(self, key: bytes, value: bytes | None) -> None:
        if value is not None and key not in self._found:
            self._found.add(key)
            self._note(bytes_=len(key) + len(value))

    def find_entries(self, of: _Range, entries: Sequence[KeyValue]) -> None:
        if of not in self._found:
            self._found.add(of)
            self._note(entries=len(entries), bytes_=sum(len(key) + len(value) for key, value in entries))

    def write(self, key: bytes, value: bytes) -> None:
        self._note(written=1, bytes_=len(key) + len(value))

    def _new(self, asked: Iterable[bytes | KeySelector | _Range]) -> int:
        new = set(asked) - self._asked
        self._asked |= new
        return len(new)

    def _note(self, keys: int = 0, ranges: int = 0, entries: int = 0, written: int = 0, bytes_: int = 0) -> None:
        if self._engine.counted():
            counts = self._engine.counts
            counts.keys += keys
            counts.ranges += ranges
            counts.entries += entries
            counts.written += written
            counts.bytes += bytes_


class _CountingReader(Reader):
    def __init__(self, inner: Reader, once: _Once) -> None:
        self._inner = inner
        self._once = once

    def get(self, key: bytes) -> bytes | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._once.ask_keys(keys)
        values = self._inner.get_many(keys)
        for key, value in zip(keys, values, strict=True):
            self._once.find(key, value)
        return values

    def get_key(self, selector: KeySelector) -> bytes:
        self._once.ask_keys([selector])
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
        asked, found = (begin, end, limit, reverse), []
        self._once.ask_ranges([asked])
        try:
            for entry in self._inner.range(begin, end, limit=limit, reverse=reverse, streaming=streaming):
                found.append(entry)
                yield entry
        finally:
            self._once.find_entries(asked, found)

    def range_many(
        self, ranges: Sequence[tuple[bytes, bytes]], *, limit: int = 0, reverse: bool = False
    ) -> list[list[KeyValue]]:
        asked = [(begin, end, limit, reverse) for begin, end in ranges]
        self._once.ask_ranges(asked)
        found = self._inner.range_many(ranges, limit=limit, reverse=reverse)
        for of, entries in zip(asked, found, strict=True):
            self._once.find_entries(of, entries)
        return found

    def read_ahead(self, keys: Sequence[bytes], ranges: Sequence[RangeRead]) -> None:
        self._once.ask_keys(keys)
        self._once.ask_ranges((of.begin, of.end, of.limit, of.reverse) for of in ranges)
        self._inner.read_ahead(keys, ranges)

    def read_version(self) -> int:
        return self._inner.read_version()


class _CountingAttempts(FaultyAttempts):
    def __init__(self, inner: Attempts, engine: CountingEngine) -> None:
        super().__init__(inner, engine.faults)
        self._once = _Once(engine)
        self._reads = _CountingReader(inner, self._once)

    @property
    def snapshot(self) -> Reader:
        return _CountingReader(self._inner.snapshot, self._once)

    def set(self, key: bytes, value: bytes) -> None:
        self._once.write(key, value)
        super().set(key, value)

    def set_versionstamped_key(self, template: bytes, value: bytes) -> None:
        self._once.write(template, value)
        super().set_versionstamped_key(template, value)

    def recover(self, error: EngineError) -> None:
        super().recover(error)
        self._once.begin()
