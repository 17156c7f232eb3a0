"""An engine that counts what calls read, so that a test sees whether a cost grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from drillcore_fdb.engine import Attempts, Engine, KeySelector, KeyValue, Options, RangeRead, Reader, Streaming
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
        self._counted = engine.counted
        self._reads = _CountingReader(inner, engine.counted)

    @property
    def snapshot(self) -> Reader:
        return _CountingReader(self._inner.snapshot, self._counted)


class _CountingReader(Reader):
    """Reading ahead does not count: what is read ahead is read afterwards."""

    def __init__(self, inner: Reader, reads: Reads) -> None:
        self._inner = inner
        self._counted = reads

    def get(self, key: bytes) -> bytes | None:
        self._counted.note(keys=1)
        return self._inner.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._counted.note(keys=len(keys))
        return self._inner.get_many(keys)

    def get_key(self, selector: KeySelector) -> bytes:
        self._counted.note(keys=1)
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
        self._counted.note(ranges=1)
        for entry in self._inner.range(begin, end, limit=limit, reverse=reverse, streaming=streaming):
            self._counted.note(entries=1)
            yield entry

    def range_many(
        self, ranges: Sequence[tuple[bytes, bytes]], *, limit: int = 0, reverse: bool = False
    ) -> list[list[KeyValue]]:
        found = self._inner.range_many(ranges, limit=limit, reverse=reverse)
        self._counted.note(ranges=len(ranges), entries=sum(map(len, found)))
        return found

    def read_ahead(self, keys: Sequence[bytes], ranges: Sequence[RangeRead]) -> None:
        self._inner.read_ahead(keys, ranges)

    def read_version(self) -> int:
        return self._inner.read_version()
