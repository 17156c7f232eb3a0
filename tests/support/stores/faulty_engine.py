"""An engine that fails as FoundationDB does, from a seed: each `run` draws its faults in the order they can happen."""

from __future__ import annotations

import enum
import random
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from drillcore_fdb.engine import (
    Atomic,
    Attempts,
    Engine,
    Figures,
    KeySelector,
    KeyValue,
    Options,
    RangeRead,
    Reader,
    Streaming,
    Watch,
)
from drillcore_fdb.errors import EngineError, from_code
from drillcore_fdb.tuples import Subspace


class Fault(enum.Enum):
    """A fault and when it strikes: at a read, at a commit that is thrown away, or at a commit that is kept."""

    CONFLICT = (1020, False)
    TOO_OLD = (1007, False)
    UNKNOWN_NOT_APPLIED = (1021, False)
    UNKNOWN_APPLIED = (1021, True)
    TIMED_OUT_NOT_APPLIED = (1031, False)
    TIMED_OUT_APPLIED = (1031, True)
    CLUSTER_CHANGED_NOT_APPLIED = (1039, False)
    CLUSTER_CHANGED_APPLIED = (1039, True)
    READ_FUTURE_VERSION = (1009, None)
    READ_PROCESS_BEHIND = (1037, None)
    READ_PROXY_MEMORY = (1042, None)
    READ_TAG_THROTTLED = (1213, None)

    @property
    def code(self) -> int:
        return self.value[0]

    @property
    def applied(self) -> bool:
        return self.value[1] is True

    @property
    def strikes_reads(self) -> bool:
        return self.value[1] is None

    def error(self) -> EngineError:
        return from_code(self.code, f"injected: {self.name}")


COMMIT_FAULTS = tuple(fault for fault in Fault if not fault.strikes_reads)
READ_FAULTS = tuple(fault for fault in Fault if fault.strikes_reads)


def rates(commit: float = 0.0, read: float = 0.0) -> dict[Fault, float]:
    """How likely a fault is at each commit and at each read. All faults of a kind are equally likely."""
    at_commit = dict.fromkeys(COMMIT_FAULTS, commit / len(COMMIT_FAULTS))
    return at_commit | dict.fromkeys(READ_FAULTS, read / len(READ_FAULTS))


@dataclass(slots=True)
class Faults:
    """The faults that shall happen, and those that did. They are drawn per `run`: equal seeds and calls fail alike."""

    seed: int
    rates: Mapping[Fault, float]
    injected: Counter[Fault] = field(default_factory=Counter)
    _runs: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> random.Random:
        with self._lock:
            self._runs += 1
            return random.Random(f"{self.seed}/{self._runs}")

    def draw(self, dice: random.Random, among: Sequence[Fault]) -> Fault | None:
        thrown = dice.random()
        for fault in among:
            thrown -= self.rates.get(fault, 0.0)
            if thrown < 0:
                with self._lock:
                    self.injected[fault] += 1
                return fault
        return None


class FaultyEngine(Engine):
    """Another engine with faults. Directories and figures are the other engine's."""

    def __init__(self, inner: Engine, faults: Faults) -> None:
        self.inner = inner
        self.faults = faults

    def begin(self, options: Options) -> Attempts:
        return FaultyAttempts(self.inner.begin(options), self.faults)

    def directories(self, paths: Sequence[tuple[str, ...]]) -> list[Subspace]:
        return self.inner.directories(paths)

    def list_directories(self, *path: str) -> list[str]:
        return self.inner.list_directories(*path)

    def remove_directory(self, *path: str) -> bool:
        return self.inner.remove_directory(*path)

    def describe(self) -> dict[str, str | int | float]:
        return {**self.inner.describe(), "faults": self.faults.injected.total()}

    def figures(self) -> Figures:
        return self.inner.figures()

    def close(self) -> None:
        self.inner.close()


class FaultyReader(Reader):
    def __init__(self, inner: Reader, faults: Faults, dice: random.Random) -> None:
        self._reads = inner
        self._faults = faults
        self._dice = dice

    def _may_fail(self) -> None:
        fault = self._faults.draw(self._dice, READ_FAULTS)
        if fault is not None:
            raise fault.error()

    def get(self, key: bytes) -> bytes | None:
        self._may_fail()
        return self._reads.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._may_fail()
        return self._reads.get_many(keys)

    def get_key(self, selector: KeySelector) -> bytes:
        self._may_fail()
        return self._reads.get_key(selector)

    def range(
        self,
        begin: bytes | KeySelector,
        end: bytes | KeySelector,
        *,
        limit: int = 0,
        reverse: bool = False,
        streaming: Streaming = Streaming.ITERATOR,
    ) -> Iterator[KeyValue]:
        entries = self._reads.range(begin, end, limit=limit, reverse=reverse, streaming=streaming)
        return self._failing_between(entries)

    def range_many(
        self, ranges: Sequence[tuple[bytes, bytes]], *, limit: int = 0, reverse: bool = False
    ) -> list[list[KeyValue]]:
        self._may_fail()
        return self._reads.range_many(ranges, limit=limit, reverse=reverse)

    def read_ahead(self, keys: Sequence[bytes], ranges: Sequence[RangeRead]) -> None:
        self._may_fail()
        self._reads.read_ahead(keys, ranges)

    def _failing_between(self, entries: Iterator[KeyValue]) -> Iterator[KeyValue]:
        self._may_fail()
        for entry in entries:
            yield entry
            self._may_fail()

    def read_version(self) -> int:
        self._may_fail()
        return self._reads.read_version()


class FaultyAttempts(FaultyReader, Attempts):
    """The inner attempts do all the work. A fault at the commit is raised before the commit, or after it has happened.

    In both cases the inner attempts get the error to recover from. They accept it after a commit too: it is the same as
    a real commit with an unknown result. They start over or give up by their own rules.
    """

    def __init__(self, inner: Attempts, faults: Faults) -> None:
        super().__init__(inner, faults, faults.begin())
        self._inner = inner
        self._written = False

    @property
    def snapshot(self) -> Reader:
        return FaultyReader(self._inner.snapshot, self._faults, self._dice)

    def set(self, key: bytes, value: bytes) -> None:
        self._writing().set(key, value)

    def clear(self, key: bytes) -> None:
        self._writing().clear(key)

    def clear_range(self, begin: bytes, end: bytes) -> None:
        self._writing().clear_range(begin, end)

    def atomic(self, operation: Atomic, key: bytes, operand: bytes) -> None:
        self._writing().atomic(operation, key, operand)

    def set_versionstamped_key(self, template: bytes, value: bytes) -> None:
        self._writing().set_versionstamped_key(template, value)

    def set_versionstamped_value(self, key: bytes, template: bytes) -> None:
        self._writing().set_versionstamped_value(key, template)

    def add_read_conflict_range(self, begin: bytes, end: bytes) -> None:
        self._inner.add_read_conflict_range(begin, end)

    def add_write_conflict_range(self, begin: bytes, end: bytes) -> None:
        self._writing().add_write_conflict_range(begin, end)

    def approximate_size(self) -> int:
        return self._inner.approximate_size()

    def watch(self, key: bytes) -> Watch:
        self._may_fail()
        return self._inner.watch(key)

    def commit(self) -> tuple[int, bytes | None]:
        # Attempts that only read have nothing to send, so their commit cannot fail.
        fault = self._faults.draw(self._dice, COMMIT_FAULTS) if self._written else None
        if fault is None:
            return self._inner.commit()
        if fault.applied:
            self._inner.commit()
        raise fault.error()

    def recover(self, error: EngineError) -> None:
        self._inner.recover(error)
        self._written = False

    def close(self) -> None:
        self._inner.close()

    def _writing(self) -> Attempts:
        self._written = True
        return self._inner
