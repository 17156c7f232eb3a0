"""The contract of an ordered transactional key-value store, with FoundationDB's semantics.

Two engines keep it: `embedded` (one process, one directory) and `cluster` (FoundationDB). One suite,
`tests/conformance`, runs on both, so what is promised here is what both do.

Keys and values are bytes; keys sort by byte value and are below `\\xff`. A transaction reads one version of the
whole store, sees its own writes, and commits only if nothing it read was changed by another commit since. Reads
through `Transaction.snapshot` are not part of that check; a transaction that only reads, or only writes
blindly, never conflicts.
"""

from __future__ import annotations

import enum
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from drillcore_fdb.errors import EngineError
from drillcore_fdb.tuples import Subspace

T = TypeVar("T")
KeyValue = tuple[bytes, bytes]

KEY_BYTES_MAX = 10_000
VALUE_BYTES_MAX = 100_000
TRANSACTION_BYTES_MAX = 10_000_000
TRANSACTION_AGE_S_MAX = 5.0
SHARED_AGE_S_MAX = 1.0
"""How long `Reads` goes on with one transaction. The last piece of work then still has four seconds."""
VERSIONSTAMP_BYTES = 10
KEYS_END = b"\xff"
"""The end of the keys a transaction may touch. FoundationDB keeps its own records from here on."""


@dataclass(frozen=True, slots=True)
class KeySelector:
    """Names a key by its place: `offset` keys after the last key below `key` (with `or_equal`: below or equal)."""

    key: bytes
    or_equal: bool
    offset: int

    @classmethod
    def last_less_than(cls, key: bytes) -> KeySelector:
        return cls(key, False, 0)

    @classmethod
    def last_less_or_equal(cls, key: bytes) -> KeySelector:
        return cls(key, True, 0)

    @classmethod
    def first_greater_than(cls, key: bytes) -> KeySelector:
        return cls(key, True, 1)

    @classmethod
    def first_greater_or_equal(cls, key: bytes) -> KeySelector:
        return cls(key, False, 1)

    def __add__(self, offset: int) -> KeySelector:
        return KeySelector(self.key, self.or_equal, self.offset + offset)

    def __sub__(self, offset: int) -> KeySelector:
        return self + -offset


class Atomic(enum.Enum):
    """Operations that combine an operand with whatever is stored when the commit is applied, without reading it.

    ADD, BIT_AND, BIT_OR, BIT_XOR, MAX and MIN take little-endian unsigned integers and give a value as long as the
    operand.
    """

    ADD = "add"
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"
    MAX = "max"
    MIN = "min"
    BYTE_MAX = "byte_max"
    BYTE_MIN = "byte_min"
    APPEND_IF_FITS = "append_if_fits"
    COMPARE_AND_CLEAR = "compare_and_clear"


@dataclass(frozen=True, slots=True)
class RangeRead:
    """A range as `Reader.range` takes it."""

    begin: bytes
    end: bytes
    limit: int = 0
    reverse: bool = False


class Streaming(enum.Enum):
    """How much of a range to fetch at a time. It changes speed, never the result."""

    ITERATOR = "iterator"
    SMALL = "small"
    WANT_ALL = "want_all"


class Priority(enum.Enum):
    """Who goes first when a cluster is short of capacity. The embedded engine admits everyone at once."""

    DEFAULT = "default"
    BATCH = "batch"
    SYSTEM_IMMEDIATE = "system_immediate"


@dataclass(frozen=True, slots=True)
class Options:
    """Limits of one `Engine.run`, all its retries included.

    `timeout_s` None means the engine's own default; `retry_limit` None means to retry until the timeout.
    `idempotent` says that the work can tell whether an earlier run of it was committed (by a request id it
    records), so a commit with an unknown result may be run again. Without it such a commit is raised.
    """

    timeout_s: float | None = None
    retry_limit: int | None = None
    priority: Priority = Priority.DEFAULT
    idempotent: bool = False


DEFAULT_OPTIONS = Options()


@dataclass(frozen=True, slots=True)
class Committed(Generic[T]):
    """The result of a committed transaction, and its place in the order of commits.

    A transaction without writes and write conflict ranges has no place in that order: version -1, no versionstamp.
    """

    value: T
    version: int
    versionstamp: bytes | None


class Watch(ABC):
    """Fires once after the value of the watched key has changed from what the transaction saw or wrote.

    It starts when the transaction that made it commits, and ends with the engine. It may fire although the value is
    back to what it was. A cluster that keeps too many watches fails some: then `wait` raises.
    """

    @abstractmethod
    def wait(self, timeout_s: float | None = None) -> bool:
        """True when the key has changed, False when `timeout_s` passed first. Raises if the watch was cancelled."""

    @abstractmethod
    def cancel(self) -> None:
        """Stops watching; a wait under way raises `TransactionCancelledError`."""


class Reader(ABC):
    """Reads one version of the store, combined with the transaction's own writes."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or None."""

    @abstractmethod
    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of several keys, in the order of `keys`, in one round trip."""

    @abstractmethod
    def get_key(self, selector: KeySelector) -> bytes:
        """The key that a selector names. `b""` if that is before the first key, `KEYS_END` if it is after the last."""

    @abstractmethod
    def range(
        self,
        begin: bytes | KeySelector,
        end: bytes | KeySelector,
        *,
        limit: int = 0,
        reverse: bool = False,
        streaming: Streaming = Streaming.ITERATOR,
    ) -> Iterator[KeyValue]:
        """Keys from `begin` up to, not including, `end`, in order; brought as they are consumed.

        `limit` 0 means all. With `reverse` the last keys come first, and `limit` counts from the end. What the
        transaction writes into the range while it is being consumed may or may not be seen.
        """

    @abstractmethod
    def range_many(
        self, ranges: Sequence[tuple[bytes, bytes]], *, limit: int = 0, reverse: bool = False
    ) -> list[list[KeyValue]]:
        """The entries of several ranges, in the order of `ranges`. Every range is asked for before any is awaited.

        `limit` and `reverse` are as for `range`, and hold for each. Takes one round trip unless a range has more
        entries than a cluster sends at once. Everything is in memory at the end: use it for small ranges.
        """

    @abstractmethod
    def read_ahead(self, keys: Sequence[bytes], ranges: Sequence[RangeRead]) -> None:
        """Reads keys and ranges of different kinds in one round trip. Reading the same later takes none.

        Of a range this brings as much as a cluster sends at once. Makes no conflicts: the later reads make them.
        """

    @abstractmethod
    def read_version(self) -> int:
        """The version this transaction reads. Fixed by its first read."""


class Transaction(Reader):
    """The transaction that `work` gets. Valid only during that call of `work`."""

    @property
    @abstractmethod
    def snapshot(self) -> Reader:
        """Reads the same version and own writes, but without conflicts."""

    @abstractmethod
    def set(self, key: bytes, value: bytes) -> None: ...

    @abstractmethod
    def clear(self, key: bytes) -> None: ...

    @abstractmethod
    def clear_range(self, begin: bytes, end: bytes) -> None:
        """Removes every key from `begin` up to, not including, `end`."""

    @abstractmethod
    def atomic(self, operation: Atomic, key: bytes, operand: bytes) -> None: ...

    def add(self, key: bytes, amount: int) -> None:
        """Adds to the 64-bit counter at `key`, without reading it."""
        self.atomic(Atomic.ADD, key, (amount % (1 << 64)).to_bytes(8, "little"))

    @abstractmethod
    def set_versionstamped_key(self, template: bytes, value: bytes) -> None:
        """Sets a key that holds the commit's versionstamp.

        `template` is the key with ten bytes to be replaced, then their position as four bytes, little-endian
        (`tuples.pack_with_versionstamp` makes it). The key cannot be read in the same transaction.
        """

    @abstractmethod
    def set_versionstamped_value(self, key: bytes, template: bytes) -> None:
        """Sets a value that holds the commit's versionstamp; `template` as for `set_versionstamped_key`."""

    @abstractmethod
    def add_read_conflict_range(self, begin: bytes, end: bytes) -> None:
        """Treats the range as read: a commit of another transaction that writes into it is a conflict."""

    @abstractmethod
    def add_write_conflict_range(self, begin: bytes, end: bytes) -> None:
        """Treats the range as written: another transaction that read from it conflicts."""

    def add_read_conflict_key(self, key: bytes) -> None:
        self.add_read_conflict_range(key, key + b"\0")

    def add_write_conflict_key(self, key: bytes) -> None:
        self.add_write_conflict_range(key, key + b"\0")

    @abstractmethod
    def approximate_size(self) -> int:
        """Bytes this transaction would commit now; `TRANSACTION_BYTES_MAX` is the limit."""

    @abstractmethod
    def watch(self, key: bytes) -> Watch:
        """A watch that starts when this transaction commits. Reads the key.

        Return it from `work` and keep it: a watch that is garbage collected is cancelled.
        """


class Attempts(Transaction):
    """One `Engine.run` as the engine implements it: the transaction, its commit, and recovery from a failure.

    Only engines and wrappers of engines use this.
    """

    @abstractmethod
    def commit(self) -> tuple[int, bytes | None]:
        """Commits, and returns version and versionstamp: (-1, None) if nothing was written."""

    @abstractmethod
    def recover(self, error: EngineError) -> None:
        """Waits, then resets the transaction for another run. Raises `error` if it must not be run again."""

    @abstractmethod
    def close(self) -> None:
        """Releases everything. Without a commit nothing was written."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures for metrics: gauges show the present state, totals count since the engine was opened."""

    gauges: Mapping[str, float]
    totals: Mapping[str, float]


class Engine(ABC):
    """A store. Safe to use from many threads at once."""

    def run(self, work: Callable[[Transaction], T], options: Options = DEFAULT_OPTIONS) -> T:
        """Runs `work` in a transaction, commits it, and returns the result of the committed run.

        `work` may be run more than once, so it must not keep state between runs or act on the outside world: make
        ids, times and random numbers before it. There are two exceptions: nonces and salts of what it encrypts, which
        must be new for each run, and an id by which to recognise the run that was committed. An error that `work`
        raises ends the transaction with nothing written. Raises `EngineError` when the limits in `options` do not
        allow another try.
        """
        return self.commit(work, options).value

    def commit(self, work: Callable[[Transaction], T], options: Options = DEFAULT_OPTIONS) -> Committed[T]:
        """Same as `run`, but also returns the version and versionstamp of the commit."""
        attempts = self.begin(options)
        try:
            while True:
                try:
                    value = work(attempts)
                    version, versionstamp = attempts.commit()
                    return Committed(value, version, versionstamp)
                except EngineError as error:
                    attempts.recover(error)
        finally:
            attempts.close()

    def reads(self) -> Reads:
        """Reads that follow one another, in one transaction while it is young. Use it in a `with` statement."""
        return Reads(self)

    @abstractmethod
    def begin(self, options: Options) -> Attempts:
        """Starts the attempts of one `run`. Do not call it: call `run` or `reads`, which retry and close."""

    def directory(self, *path: str) -> Subspace:
        """The key prefix of a path of names. It is short, made on first use, and never changes."""
        return self.directories([path])[0]

    @abstractmethod
    def directories(self, paths: Sequence[tuple[str, ...]]) -> list[Subspace]:
        """The key prefixes of several paths, in the order of `paths`. Makes those that do not exist, in that order.

        An engine may make them in several transactions.
        """

    @abstractmethod
    def list_directories(self, *path: str) -> list[str]:
        """The names below a path, sorted. Raises `KeyError` if there is no such path."""

    @abstractmethod
    def remove_directory(self, *path: str) -> bool:
        """Removes a path, everything below it and all their keys. False if there is no such path."""

    @abstractmethod
    def describe(self) -> dict[str, str | int | float]:
        """Describes the engine and its state for people: name, version, place, sizes."""

    def figures(self) -> Figures:
        """Figures for metrics; fast to read. The cluster engine has none, because a cluster has its own metrics."""
        return Figures({}, {})

    @abstractmethod
    def close(self) -> None:
        """Waits for commits under way, then closes the store. May be called again."""


class Reads:
    """Pieces of work that only read, one after the other, such as the steps of a plan.

    They share a transaction while it is young: only the first waits for a read version, and what one has read costs the
    following ones nothing. Later ones get a new transaction, so they may see a newer version of the store. Each may be
    run more than once. Threads that share the reads wait for each other.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._attempts: Attempts | None = None
        self._until_s = 0.0
        self._is_running = False
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the transaction back. May be called again, and further work gets a new one."""
        with self._lock:
            if self._attempts is not None:
                self._attempts.close()
                self._attempts = None

    def run(self, work: Callable[[Reader], T]) -> T:
        """Returns what `work` finds. Raises `EngineError` as `Engine.run` does. `work` may itself call `run`."""
        with self._lock:
            return self._run_inside(work) if self._is_running else self._run_alone(work)

    def _run_alone(self, work: Callable[[Reader], T]) -> T:
        attempts = self._young()
        self._is_running = True
        try:
            while True:
                try:
                    return work(attempts.snapshot)
                except EngineError as error:
                    attempts.recover(error)
                    self._until_s = time.monotonic() + SHARED_AGE_S_MAX
        except EngineError:
            self.close()
            raise
        finally:
            self._is_running = False

    def _run_inside(self, work: Callable[[Reader], T]) -> T:
        """Runs work that other work has called. The transaction of that one must not become too old."""
        if self._attempts is not None and time.monotonic() < self._until_s:
            return work(self._attempts.snapshot)
        return self._engine.run(lambda tr: work(tr.snapshot))

    def _young(self) -> Attempts:
        if time.monotonic() >= self._until_s:
            self.close()
        if self._attempts is None:
            self._attempts = self._engine.begin(DEFAULT_OPTIONS)
            self._until_s = time.monotonic() + SHARED_AGE_S_MAX
        return self._attempts
