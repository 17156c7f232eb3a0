"""The limits of a run: its timeout, its retry limit, and the five seconds that a transaction may live."""

import time

import pytest

from drillcore_fdb.engine import TRANSACTION_AGE_S_MAX, Engine, Options, Priority, Transaction
from drillcore_fdb.errors import (
    ConflictError,
    EngineError,
    InvalidUseError,
    RetryableError,
    TransactionTimedOutError,
    TransactionTooOldError,
)
from tests.conformance.staging import NO_RETRY, Space, Work, contents, fill, value_at


def always_conflicting(engine: Engine, space: Space, runs: list[float]) -> Work:
    """Work that another commit overtakes in every run."""

    def work(tr: Transaction) -> None:
        runs.append(time.monotonic())
        tr.get(space.key(b"a"))
        tr.set(space.key(b"result"), b"1")
        fill(engine, {space.key(b"a"): str(len(runs)).encode()})

    return work


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_retry_limit_bounds_the_runs(engine: Engine, space: Space, limit: int) -> None:
    runs: list[float] = []
    with pytest.raises(ConflictError):
        engine.run(always_conflicting(engine, space, runs), Options(retry_limit=limit))
    assert len(runs) == limit + 1
    assert value_at(engine, space.key(b"result")) is None


def test_work_that_outlasts_its_timeout_is_refused(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> None:
        tr.set(space.key(b"a"), b"1")
        time.sleep(0.3)
        tr.get(space.key(b"b"))

    with pytest.raises(TransactionTimedOutError) as raised:
        engine.run(work, Options(timeout_s=0.1))
    assert raised.value.code == 1031
    assert contents(engine, space) == []


def test_a_commit_after_the_timeout_is_refused(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> None:
        tr.set(space.key(b"a"), b"1")
        time.sleep(0.3)

    with pytest.raises(TransactionTimedOutError):
        engine.run(work, Options(timeout_s=0.1))
    assert contents(engine, space) == []


def test_the_timeout_covers_all_retries_together(engine: Engine, space: Space) -> None:
    runs: list[float] = []
    began = time.monotonic()
    with pytest.raises(TransactionTimedOutError):
        engine.run(always_conflicting(engine, space, runs), Options(timeout_s=0.5))
    assert len(runs) > 1
    assert time.monotonic() - began < 4
    assert value_at(engine, space.key(b"result")) is None


def test_work_within_its_timeout_commits(engine: Engine, space: Space) -> None:
    engine.run(lambda tr: tr.set(space.key(b"a"), b"1"), Options(timeout_s=20.0, retry_limit=5))
    assert value_at(engine, space.key(b"a")) == b"1"


@pytest.mark.parametrize("priority", list(Priority), ids=lambda priority: priority.value)
def test_every_priority_commits(engine: Engine, space: Space, priority: Priority) -> None:
    def work(tr: Transaction) -> bytes | None:
        before = tr.get(space.key(b"a"))
        tr.set(space.key(b"a"), b"1")
        return before

    assert engine.run(work, Options(priority=priority)) is None
    assert value_at(engine, space.key(b"a")) == b"1"


def raising_first(error: EngineError, runs: list[int], space: Space) -> Work:
    """Work that writes a key named after its run, and fails in the first run."""

    def work(tr: Transaction) -> None:
        runs.append(len(runs))
        tr.set(space.key(str(runs[-1]).encode()), b"")
        if len(runs) == 1:
            raise error

    return work


@pytest.mark.parametrize(
    "error",
    [ConflictError(), TransactionTooOldError(), RetryableError(1037, "process_behind")],
    ids=lambda e: str(e.code),
)
def test_work_that_raises_a_retryable_error_is_run_again_from_the_start(
    engine: Engine, space: Space, error: EngineError
) -> None:
    runs: list[int] = []
    engine.run(raising_first(error, runs, space))
    assert runs == [0, 1]
    assert contents(engine, space) == [(space.key(b"1"), b"")]


def test_work_that_raises_any_other_engine_error_is_not_run_again(engine: Engine, space: Space) -> None:
    runs: list[int] = []
    with pytest.raises(InvalidUseError) as raised:
        engine.run(raising_first(InvalidUseError(2000, "Invalid API call"), runs, space))
    assert raised.value.code == 2000
    assert runs == [0]
    assert contents(engine, space) == []


def test_a_transaction_lives_five_seconds(engine: Engine, space: Space) -> None:
    """Two transactions grow too old during the same wait: the inner one commits and the outer one reads."""

    def too_old_to_commit(tr: Transaction) -> None:
        tr.get(space.key(b"a"))
        tr.set(space.key(b"result"), b"1")
        time.sleep(TRANSACTION_AGE_S_MAX + 0.5)

    def too_old_to_read(tr: Transaction) -> None:
        tr.get(space.key(b"a"))
        with pytest.raises(TransactionTooOldError):
            engine.run(too_old_to_commit, Options(timeout_s=60, retry_limit=0))
        read_for(3.0, engine, tr, space)

    with pytest.raises(TransactionTooOldError) as raised:
        engine.run(too_old_to_read, Options(timeout_s=60, retry_limit=0))
    assert raised.value.code == 1007
    assert value_at(engine, space.key(b"result")) is None


def read_for(seconds: float, engine: Engine, tr: Transaction, space: Space) -> None:
    """Reads new keys for a while: a cluster drops old versions only with the commits after the five seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        tr.get(space.key(str(time.monotonic()).encode()))
        fill(engine, {space.key(b"tick"): b""})


def test_a_transaction_too_old_is_run_again_by_default(engine: Engine, space: Space) -> None:
    runs: list[int] = []
    engine.run(raising_first(TransactionTooOldError(), runs, space), Options(retry_limit=1))
    with pytest.raises(TransactionTooOldError):
        engine.run(raising_first(TransactionTooOldError(), [], space), NO_RETRY)
    assert runs == [0, 1]
