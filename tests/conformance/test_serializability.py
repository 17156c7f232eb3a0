"""Concurrent transactions behave as if they had run one after another, and the checker can tell when they do not."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from drillcore_fdb.engine import Atomic, Engine, Transaction
from tests.conformance.history import Answer, NotSerializableError, Record, check
from tests.conformance.plain_store import Clear, ClearRange, Combine, Get, Read, Scan, Set, Write
from tests.conformance.staging import Space, contents

THREADS = 6
TRANSACTIONS = 40
KEYS = (b"a", b"b", b"c", b"d", b"e")


class Recorder:
    """Runs scripts of reads and writes in many threads, and keeps what each transaction was answered."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.runs = 0
        self.records: list[Record] = []
        self._acknowledged = 0
        self._lock = threading.Lock()

    def run(self, name: str, script: list[Read | Write], pause_s: float) -> None:
        acknowledged = self._acknowledged

        def work(tr: Transaction) -> tuple[int, tuple[Answer | Write, ...]]:
            with self._lock:
                self.runs += 1
            read_version = tr.read_version()
            time.sleep(pause_s)  # waits for nothing: it lets others run in between
            return read_version, tuple(perform(tr, step) for step in script)

        committed = self.engine.commit(work)
        read_version, steps = committed.value
        with self._lock:
            self._acknowledged = max(self._acknowledged, committed.version)
            self.records.append(
                Record(name, read_version, committed.version, committed.versionstamp, steps, acknowledged)
            )


def perform(tr: Transaction, step: Read | Write) -> Answer | Write:
    if isinstance(step, Set | Clear | ClearRange | Combine):
        step.perform(tr)
        return step
    return Answer(step, step.perform(tr))


def random_step(rng: random.Random, space: Space, unique: bytes) -> Read | Write:
    key = space.key(rng.choice(KEYS))
    begin, end = sorted(space.key(rng.choice([*KEYS, b"f"])) for _ in range(2))
    operation = rng.choice([Atomic.ADD, Atomic.MAX, Atomic.BYTE_MIN, Atomic.APPEND_IF_FITS, Atomic.COMPARE_AND_CLEAR])
    steps: list[Read | Write] = [
        Get(key),
        Get(key),
        Scan(begin, end, rng.choice([0, 1, 2]), rng.random() < 0.5),
        Set(key, unique),
        Combine(operation, key, unique),
        Clear(key),
        ClearRange(begin, end),
    ]
    return rng.choices(steps, weights=[3, 3, 4, 4, 3, 1, 1])[0]


def random_script(rng: random.Random, space: Space, name: str) -> list[Read | Write]:
    steps = [random_step(rng, space, f"{name}.{number}".encode()) for number in range(rng.randint(1, 6))]
    if rng.random() < 0.25:
        return [step for step in steps if isinstance(step, Get | Scan)]
    return steps


@pytest.mark.parametrize("seed", [1, 2])
def test_random_concurrent_transactions_are_serializable(engine: Engine, space: Space, seed: int) -> None:
    recorder = Recorder(engine)

    def work(thread: int) -> None:
        rng = random.Random(f"{seed}/{thread}")
        for number in range(TRANSACTIONS):
            name = f"{thread}.{number}"
            recorder.run(name, random_script(rng, space, name), rng.random() * 0.002)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    assert len(recorder.records) == THREADS * TRANSACTIONS
    assert recorder.runs > len(recorder.records), "no transactions conflicted, so this run proves nothing"
    assert sorted(check(recorder.records).pairs.items()) == contents(engine, space)


def test_concurrent_transfers_neither_make_nor_lose_money(engine: Engine, space: Space) -> None:
    accounts = [space.key(bytes([letter])) for letter in b"abcd"]
    engine.run(lambda tr: [tr.set(account, b"100") for account in accounts])
    done = threading.Event()

    def transfer(source: bytes, target: bytes) -> None:
        def work(tr: Transaction) -> None:
            balances = [int(value or b"0") for value in tr.get_many([source, target])]
            tr.set(source, str(balances[0] - 7).encode())
            tr.set(target, str(balances[1] + 7).encode())

        engine.run(work)

    def transfers(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(30):
            transfer(*rng.sample(accounts, 2))

    def audit() -> set[int]:
        totals = set()
        while not done.is_set():
            totals.add(sum(int(value) for _, value in contents(engine, space)))
        return totals

    with ThreadPoolExecutor(5) as pool:
        auditor = pool.submit(audit)
        try:
            list(pool.map(transfers, range(4)))
        finally:
            done.set()
    assert auditor.result() <= {400}
    assert sum(int(value) for _, value in contents(engine, space)) == 400


def stamp(version: int, batch: int = 0) -> bytes:
    return version.to_bytes(8, "big") + batch.to_bytes(2, "big")


def writer(name: str, read_version: int, version: int, *steps: Answer | Write) -> Record:
    return Record(name, read_version, version, stamp(version), steps)


def reader(name: str, read_version: int, *steps: Answer | Write) -> Record:
    return Record(name, read_version, -1, None, steps)


FIRST = writer("first", 0, 10, Set(b"a", b"1"), Set(b"b", b"1"))

WRONG = {
    "lost update": [
        writer("one", 10, 20, Answer(Get(b"a"), b"1"), Set(b"a", b"2")),
        writer("two", 10, 30, Answer(Get(b"a"), b"1"), Set(b"a", b"2")),
    ],
    "write skew": [
        writer("one", 10, 20, Answer(Get(b"a"), b"1"), Clear(b"b")),
        writer("two", 10, 30, Answer(Get(b"b"), b"1"), Clear(b"a")),
    ],
    "phantom": [
        writer("one", 10, 20, Answer(Scan(b"c", b"e"), []), Set(b"d", b"1")),
        writer("two", 10, 30, Answer(Scan(b"c", b"e"), []), Set(b"dd", b"1")),
    ],
    "stale read": [writer("one", 10, 20, Set(b"a", b"2")), reader("late", 20, Answer(Get(b"a"), b"1"))],
    "read from the future": [writer("one", 10, 20, Set(b"a", b"2")), reader("early", 19, Answer(Get(b"a"), b"2"))],
    "read of two versions": [
        writer("one", 10, 20, Set(b"a", b"2"), Set(b"b", b"2")),
        reader("torn", 20, Answer(Get(b"a"), b"2"), Answer(Get(b"b"), b"1")),
    ],
    "write that others read but never happened": [reader("dreamer", 15, Answer(Get(b"x"), b"1"))],
    "own write not seen": [writer("one", 10, 20, Set(b"a", b"2"), Answer(Get(b"a"), b"1"))],
    "atomic lost": [
        writer("one", 10, 20, Combine(Atomic.ADD, b"n", b"\x01")),
        writer("two", 10, 30, Combine(Atomic.ADD, b"n", b"\x01")),
        reader("counter", 30, Answer(Get(b"n"), b"\x01")),
    ],
    "read at the commit instead of the read version": [
        writer("one", 10, 20, Set(b"a", b"2")),
        writer("two", 15, 30, Answer(Get(b"a"), b"2"), Set(b"b", b"2")),
    ],
    "one versionstamp twice": [writer("one", 10, 20), writer("two", 10, 20)],
    "committed before it read": [writer("one", 20, 20, Set(b"a", b"2"))],
    "commit not seen though acknowledged": [replace(reader("late", 9), acknowledged=10)],
}


@pytest.mark.parametrize("records", WRONG.values(), ids=WRONG.keys())
def test_the_checker_refuses_a_wrong_history(records: list[Record]) -> None:
    with pytest.raises(NotSerializableError):
        check([FIRST, *records])


def test_the_checker_accepts_a_serial_history_in_any_order_of_records() -> None:
    records = [
        reader("late", 30, Answer(Scan(b"a", b"z", 1, True), [(b"n", b"\x02")])),
        writer("three", 20, 30, Answer(Get(b"a"), b"2"), Combine(Atomic.ADD, b"n", b"\x01")),
        reader("early", 19, Answer(Scan(b"a", b"z"), [(b"a", b"1"), (b"b", b"1")])),
        writer("two", 10, 20, Combine(Atomic.ADD, b"n", b"\x01"), Set(b"a", b"2"), Answer(Get(b"n"), b"\x01")),
        Record("batch mate", 10, 20, stamp(20, 1), (Clear(b"b"),)),
        FIRST,
    ]
    assert check(records).pairs == {b"a": b"2", b"n": b"\x02"}
