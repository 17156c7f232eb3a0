"""The wrapper injects the faults it should, and the engine keeps its promises about each fault."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from drillcore_fdb.embedded import EmbeddedEngine
from drillcore_fdb.engine import Engine, Options, Transaction
from drillcore_fdb.errors import EngineError, TransactionTimedOutError, UnknownResultError
from tests.support.stores.faulty_engine import COMMIT_FAULTS, READ_FAULTS, Fault, Faults, FaultyEngine, rates

IDEMPOTENT = Options(idempotent=True)
RESULT_UNKNOWN = [fault for fault in COMMIT_FAULTS if fault.code in {1021, 1039}]
COUNTER = b"counter"


def count_up(tr: Transaction) -> None:
    tr.add(COUNTER, 1)


def count(engine: Engine) -> int:
    return int.from_bytes(engine.run(lambda tr: tr.get(COUNTER)) or b"", "little")


def failing_first(engine: Engine, fault: Fault, times: int = 1) -> FaultyEngine:
    """An engine on which `fault` strikes on the first `times` occasions and then never again."""

    class Striking(Faults):
        def draw(self, dice: random.Random, among: Sequence[Fault]) -> Fault | None:  # noqa: ARG002 - nothing random
            if fault not in among or self.injected[fault] == times:
                return None
            self.injected[fault] += 1
            return fault

    return FaultyEngine(engine, Striking(0, {}))


@pytest.mark.parametrize("fault", RESULT_UNKNOWN)
def test_an_unknown_commit_result_is_raised_unless_the_work_is_idempotent(engine: EmbeddedEngine, fault: Fault) -> None:
    faulty = failing_first(engine, fault)
    with pytest.raises(UnknownResultError) as raised:
        faulty.run(count_up)
    assert raised.value.code == fault.code
    assert count(engine) == fault.applied


@pytest.mark.parametrize("fault", RESULT_UNKNOWN)
def test_idempotent_work_is_run_again_after_an_unknown_commit_result(engine: EmbeddedEngine, fault: Fault) -> None:
    faulty = failing_first(engine, fault, times=3)
    faulty.run(count_up, IDEMPOTENT)
    assert faulty.faults.injected[fault] == 3
    assert count(engine) == (4 if fault.applied else 1)


@pytest.mark.parametrize("fault", [Fault.TIMED_OUT_APPLIED, Fault.TIMED_OUT_NOT_APPLIED])
def test_a_timeout_during_the_commit_is_never_run_again(engine: EmbeddedEngine, fault: Fault) -> None:
    faulty = failing_first(engine, fault)
    with pytest.raises(TransactionTimedOutError):
        faulty.run(count_up, IDEMPOTENT)
    assert count(engine) == fault.applied


@pytest.mark.parametrize("fault", [Fault.CONFLICT, Fault.TOO_OLD])
def test_a_refused_commit_is_run_again_and_applied_once(engine: EmbeddedEngine, fault: Fault) -> None:
    faulty = failing_first(engine, fault, times=3)
    faulty.run(count_up)
    assert faulty.faults.injected[fault] == 3
    assert count(engine) == 1


READS: dict[str, Callable[[Transaction], object]] = {
    "get": lambda tr: tr.get(b"a"),
    "get_many": lambda tr: tr.get_many([b"a"]),
    "range": lambda tr: list(tr.range(b"a", b"b")),
    "snapshot": lambda tr: tr.snapshot.get(b"a"),
    "snapshot_range": lambda tr: list(tr.snapshot.range(b"a", b"b")),
    "read_version": lambda tr: tr.read_version(),
    "watch": lambda tr: tr.watch(b"a").cancel(),
}


@pytest.mark.parametrize("fault", READ_FAULTS)
@pytest.mark.parametrize("read", READS)
def test_work_is_run_again_after_a_failed_read(engine: EmbeddedEngine, fault: Fault, read: str) -> None:
    faulty = failing_first(engine, fault)
    runs: list[None] = []

    def work(tr: Transaction) -> None:
        runs.append(None)
        READS[read](tr)

    faulty.run(work)
    assert len(runs) == 2


def test_a_range_can_fail_between_two_of_its_entries(engine: EmbeddedEngine) -> None:
    engine.run(lambda tr: [tr.set(b"a%d" % number, b"") for number in range(20)])
    faulty = FaultyEngine(engine, Faults(3, rates(read=0.1)))
    seen: list[int] = []

    def work(tr: Transaction) -> int:
        seen.append(0)
        for _ in tr.range(b"a", b"b"):
            seen[-1] += 1
        return seen[-1]

    assert faulty.run(work) == 20
    assert any(0 < entries < 20 for entries in seen[:-1])


def test_transactions_without_writes_have_no_commit_that_could_fail(engine: EmbeddedEngine) -> None:
    faulty = FaultyEngine(engine, Faults(0, {Fault.UNKNOWN_APPLIED: 1.0}))
    assert faulty.run(lambda tr: tr.get(b"a")) is None
    assert not faulty.faults.injected


def injected_by(engine: Engine, seed: int) -> list[str]:
    """The faults that one hundred transactions met, in order."""
    faulty = FaultyEngine(engine, Faults(seed, rates(commit=0.5, read=0.2)))

    def work(tr: Transaction) -> None:
        tr.get(COUNTER)
        tr.set(COUNTER, b"")

    met = []
    for _ in range(100):
        try:
            faulty.run(work, Options(retry_limit=0, idempotent=True))
            met.append("committed")
        except EngineError as error:
            met.append(error.message)
    return met


def test_equal_seeds_fail_alike_and_different_seeds_do_not(engine: EmbeddedEngine) -> None:
    assert injected_by(engine, 1) == injected_by(engine, 1)
    assert injected_by(engine, 1) != injected_by(engine, 2)


def test_every_fault_is_injected_and_counted(engine: EmbeddedEngine) -> None:
    faulty = FaultyEngine(engine, Faults(4, rates(commit=0.8, read=0.4)))
    failures = 0
    for _ in range(300):
        try:
            faulty.run(lambda tr: tr.set(COUNTER, tr.get(COUNTER) or b""), Options(retry_limit=0, idempotent=True))
        except EngineError:
            failures += 1
    assert set(faulty.faults.injected) == set(Fault)
    assert faulty.faults.injected.total() == failures
    assert faulty.describe()["faults"] == failures
