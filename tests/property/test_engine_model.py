"""The embedded engine against a plain dict: several transactions open at once, committed or dropped in any order.

The model knows what each open transaction must see, and bounds its conflicts from both sides. After a commit that
succeeds, every serializable read must still have its answer. A commit that is refused must have read from a range that
another commit wrote since.
"""

import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from drillcore_fdb.embedded import Durability, EmbeddedEngine, EmbeddedSettings
from drillcore_fdb.engine import DEFAULT_OPTIONS, KEYS_END, Atomic, Attempts, KeySelector, Transaction
from drillcore_fdb.errors import ConflictError
from tests.conformance.plain_store import (
    Clear,
    ClearRange,
    Combine,
    Get,
    PlainStore,
    Read,
    Result,
    Scan,
    Select,
    Set,
    Write,
)

LONG = b"l" * 3_000
KEYS = [b"", b"\0", b"a", b"a\0", b"a\0\0", b"ab", b"b", LONG, LONG + b"\0", LONG + b"x", LONG[:511], b"z", b"\xfe\xff"]
OPEN_MAX = 4
AGE_S_MAX = 4.0
"""A transaction of this age, on a slow machine, is dropped before the engine calls it too old."""

Interval = tuple[bytes, bytes]


def key_at(index: int) -> bytes:
    """A key by its index. Hypothesis prints its strategies, which would be slow with the long keys."""
    return KEYS[index]


keys = st.integers(0, len(KEYS) - 1).map(key_at)
edges = st.one_of(keys, st.just(KEYS_END))
bounds = st.tuples(edges, edges).map(sorted)
values = st.one_of(st.binary(max_size=9), st.just(5_000).map(bytes))
writes = st.one_of(
    st.builds(Set, keys, values),
    st.builds(Clear, keys),
    bounds.map(lambda pair: ClearRange(*pair)),
    st.builds(Combine, st.sampled_from(Atomic), keys, values),
)
selectors = st.builds(KeySelector, edges, st.booleans(), st.integers(-4, 4))
scans = st.builds(
    lambda pair, limit, reverse: Scan(pair[0], pair[1], limit, reverse), bounds, st.integers(0, 4), st.booleans()
)
reads = st.one_of(st.builds(Get, keys), scans, st.builds(Select, selectors))


@dataclass(eq=False)
class Open:
    """An open transaction, and what the model knows about it."""

    attempts: Attempts
    view: PlainStore
    """What it must see: the store at its read version, with its own writes."""
    began_s: float = field(default_factory=time.monotonic)
    writes: list[Write] = field(default_factory=list)
    answers: list[tuple[int, Read, Result]] = field(default_factory=list)
    """Serializable reads, each with the number of own writes made before it."""
    read: list[Interval] = field(default_factory=list)
    overtaken: list[Interval] = field(default_factory=list)
    """The ranges that other transactions have written since it began."""


def written(write: Write) -> Interval:
    if isinstance(write, ClearRange):
        return write.begin, write.end
    return write.key, write.key + b"\0"


def is_effective(write: Write) -> bool:
    """False for a clear of an empty range: a transaction without other writes only reads."""
    return not isinstance(write, ClearRange) or write.begin < write.end


def looked_at(read: Read, result: Result) -> Interval:
    """The widest range from which a read may take its answer."""
    if isinstance(read, Get):
        return read.key, read.key + b"\0"
    if isinstance(read, Scan):
        return looked_at_by_scan(read, result)
    assert isinstance(result, bytes)
    return min(read.selector.key, result), max(read.selector.key, result) + b"\0"


def looked_at_by_scan(scan: Scan, result: Result) -> Interval:
    """The range of a scan. A scan that its limit ended looked no further than the last key it returned."""
    assert isinstance(result, list)
    if not scan.limit or len(result) < scan.limit:
        return scan.begin, scan.end
    last = result[-1][0]
    return (last, scan.end) if scan.reverse else (scan.begin, last + b"\0")


def overlap(left: Interval, right: Interval) -> bool:
    return max(left[0], right[0]) < min(left[1], right[1])


class EngineAgainstModel(RuleBasedStateMachine):
    transactions = Bundle("transactions")

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="drillcore-model-")
        self.engine = self.open_engine()
        self.store = PlainStore()
        self.open: list[Open] = []

    def open_engine(self) -> EmbeddedEngine:
        return EmbeddedEngine.open(EmbeddedSettings(path=Path(self.directory.name), durability=Durability.RELAXED))

    def teardown(self) -> None:
        for transaction in self.open:
            transaction.attempts.close()
        self.engine.close()
        self.directory.cleanup()

    @precondition(lambda self: len(self.open) < OPEN_MAX)
    @rule(target=transactions)
    def begin(self) -> Open:
        transaction = Open(self.engine.begin(DEFAULT_OPTIONS), self.store.copy())
        transaction.attempts.read_version()
        self.open.append(transaction)
        return transaction

    @rule(transaction=transactions, write=writes)
    def write(self, transaction: Open, write: Write) -> None:
        if self.is_usable(transaction):
            write.perform(transaction.attempts)
            transaction.view.apply(write)
            if is_effective(write):
                transaction.writes.append(write)

    @rule(transaction=transactions, read=reads)
    def read(self, transaction: Open, read: Read) -> None:
        if self.is_usable(transaction):
            result = read.perform(transaction.attempts)
            assert result == transaction.view.read(read)
            transaction.answers.append((len(transaction.writes), read, result))
            transaction.read.append(looked_at(read, result))

    @rule(transaction=transactions, read=reads)
    def read_snapshot(self, transaction: Open, read: Read) -> None:
        if self.is_usable(transaction):
            assert read.perform(transaction.attempts.snapshot) == transaction.view.read(read)

    @rule(transaction=transactions, pair=bounds)
    def add_read_conflict_range(self, transaction: Open, pair: list[bytes]) -> None:
        if self.is_usable(transaction):
            transaction.attempts.add_read_conflict_range(*pair)
            transaction.read.append((pair[0], pair[1]))

    @rule(transaction=consumes(transactions))
    def commit(self, transaction: Open) -> None:
        if not self.is_usable(transaction):
            return
        self.open.remove(transaction)
        may_conflict = any(
            overlap(read, written_since) for read in transaction.read for written_since in transaction.overtaken
        )
        try:
            transaction.attempts.commit()
        except ConflictError:
            assert transaction.writes, "a transaction that only reads was refused"
            assert may_conflict, "refused although nothing it read was written"
        else:
            self.check_reads_still_hold(transaction)
            self.apply(transaction.writes)
        finally:
            transaction.attempts.close()

    def check_reads_still_hold(self, transaction: Open) -> None:
        """A commit with writes comes last in the order, so its reads must have the same answers there."""
        if not transaction.writes:
            return
        for made_before, read, result in transaction.answers:
            now = self.store.copy()
            for write in transaction.writes[:made_before]:
                now.apply(write)
            assert now.read(read) == result, "committed although what it read has changed"

    def apply(self, committed: list[Write]) -> None:
        for write in committed:
            self.store.apply(write)
            for transaction in self.open:
                transaction.overtaken.append(written(write))

    @rule(transaction=consumes(transactions))
    def drop(self, transaction: Open) -> None:
        if transaction in self.open:
            self.open.remove(transaction)
            transaction.attempts.close()

    @rule(made=st.lists(writes, min_size=1, max_size=4))
    def run(self, made: list[Write]) -> None:
        self.engine.run(lambda tr: [write.perform(tr) for write in made])
        self.apply(made)

    @precondition(lambda self: not self.open)
    @rule()
    def reopen(self) -> None:
        self.engine.close()
        self.engine = self.open_engine()

    @invariant()
    def the_store_is_the_model(self) -> None:
        found = self.engine.run(lambda tr: list(tr.range(b"", KEYS_END)))
        assert found == sorted(self.store.pairs.items())

    def is_usable(self, transaction: Open) -> bool:
        """False for a transaction that was dropped because it grew old on this machine."""
        if transaction not in self.open:
            return False
        if time.monotonic() - transaction.began_s > AGE_S_MAX:
            self.drop_aged(transaction)
            return False
        return True

    def drop_aged(self, transaction: Open) -> None:
        self.open.remove(transaction)
        transaction.attempts.close()


def test_a_store_opens_again_after_a_commit_that_cleared_its_own_writes(tmp_path: Path) -> None:
    """LMDB need not write pages that a commit both filled and freed, so its file may end before its last page."""
    store = EmbeddedSettings(path=tmp_path, durability=Durability.RELAXED)

    def set_and_clear(tr: Transaction) -> None:
        tr.set(b"a", bytes(5_000))
        tr.clear_range(b"", KEYS_END)

    engine = EmbeddedEngine.open(store)
    engine.run(lambda tr: tr.set(b"b", bytes(5_000)))
    engine.run(set_and_clear)
    engine.close()
    reopened = EmbeddedEngine.open(store)
    assert reopened.run(lambda tr: list(tr.range(b"", KEYS_END))) == []
    reopened.close()


EngineAgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestEngineAgainstModel = EngineAgainstModel.TestCase
