"""An engine that counts what is read and written through it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from drillcore_fdb.engine import Attempts, Engine, KeySelector, KeyValue, Options, RangeRead, Reader, Streaming
from drillcore_fdb.errors import EngineError
from tests.support.stores.faulty_engine import Faults, FaultyAttempts, FaultyEngine, FaultyReader


@dataclass(slots=True)
class Counts:
    """What was read and written. What a transaction reads again costs a cluster nothing, and does not count again."""

    reads: int = 0
    """Keys and ranges that were asked for."""
    keys: int = 0
    """Keys that were found or written."""
    bytes: int = 0
    """Bytes of these keys and of their values."""

    def note(self, entries: Iterable[KeyValue]) -> None:
        for key, value in entries:
            self.keys += 1
            self.bytes += len(key) + len(value)


class MeteredEngine(FaultyEngine):
    """Has no faults. `counts` may be replaced at any time."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner, Faults(0, {}))
        self.counts = Counts()

    def begin(self, options: Options) -> Attempts:
        return _MeteredAttempts(self.inner.begin(options), self)


class _MeteredReader(FaultyReader):
    def __init__(self, inner: Reader, engine: MeteredEngine, known: set[object]) -> None:
        super().__init__(inner, engine.faults, engine.faults.begin())
        self._engine = engine
        self._known = known
        """What the transaction has read."""

    def _is_new(self, asked: object) -> bool:
        if asked in self._known:
            return False
        self._known.add(asked)
        self._engine.counts.reads += 1
        return True

    def get(self, key: bytes) -> bytes | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found = super().get_many(keys)
        for key, value in zip(keys, found, strict=True):
            if self._is_new(key) and value is not None:
                self._engine.counts.note([(key, value)])
        return found

    def range(
        self,
        begin: bytes | KeySelector,
        end: bytes | KeySelector,
        *,
        limit: int = 0,
        reverse: bool = False,
        streaming: Streaming = Streaming.ITERATOR,
    ) -> Iterator[KeyValue]:
        is_new = self._is_new((begin, end, limit, reverse))
        for entry in super().range(begin, end, limit=limit, reverse=reverse, streaming=streaming):
            self._engine.counts.note([entry] if is_new else [])
            yield entry

    def range_many(
        self, ranges: Sequence[tuple[bytes, bytes]], *, limit: int = 0, reverse: bool = False
    ) -> list[list[KeyValue]]:
        found = super().range_many(ranges, limit=limit, reverse=reverse)
        for (begin, end), entries in zip(ranges, found, strict=True):
            self._engine.counts.note(entries if self._is_new((begin, end, limit, reverse)) else [])
        return found

    def read_ahead(self, keys: Sequence[bytes], ranges: Sequence[RangeRead]) -> None:
        """Counts nothing: whoever reads the same later counts."""
        super().read_ahead(keys, ranges)


class _MeteredAttempts(_MeteredReader, FaultyAttempts):
    def __init__(self, inner: Attempts, engine: MeteredEngine) -> None:
        FaultyAttempts.__init__(self, inner, engine.faults)
        self._engine = engine
        self._known = set()

    @property
    def snapshot(self) -> Reader:
        return _MeteredReader(self._inner.snapshot, self._engine, self._known)

    def recover(self, error: EngineError) -> None:
        super().recover(error)
        self._known.clear()

    def set(self, key: bytes, value: bytes) -> None:
        self._engine.counts.note([(key, value)])
        super().set(key, value)

    def set_versionstamped_key(self, template: bytes, value: bytes) -> None:
        self._engine.counts.note([(template, value)])
        super().set_versionstamped_key(template, value)
