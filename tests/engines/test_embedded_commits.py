"""Commits: in groups, in order across restarts, finished before the engine closes; and many readers at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drillcore_fdb.embedded import Durability, EmbeddedEngine
from drillcore_fdb.embedded.committer import Committer, Request
from drillcore_fdb.engine import Attempts, Engine, Options, Transaction
from drillcore_fdb.errors import (
    ConflictError,
    RetryableError,
    TransactionCancelledError,
    UnavailableError,
    UnknownResultError,
)
from tests.support.stores.stores import commit_as_group, disk_held, opened, started, wait_until

READERS_MAX = 1024
NO_RETRY = Options(retry_limit=0)


def test_commits_that_wait_share_one_write_to_disk(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        works = [lambda tr, n=number: tr.set(b"%d" % n, b"") for number in range(32)]
        committed = [future.result() for future in commit_as_group(engine, works, engine.commit)]
        assert engine.figures().totals == {"commits": 33, "conflicts": 0, "commit_groups": 2}
        assert len({commit.version for commit in committed}) == 1
        assert [commit.versionstamp[8:] for commit in committed] == [n.to_bytes(2, "big") for n in range(32)]


def test_many_threads_need_far_fewer_writes_to_disk_than_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write takes 10 ms here. Without that, threads would have nothing to wait for on a disk in memory."""
    write = Committer._write

    def write_slowly(committer: Committer, group: list[Request]) -> None:
        time.sleep(0.01)
        write(committer, group)

    monkeypatch.setattr(Committer, "_write", write_slowly)
    with opened(tmp_path, Durability.FULL) as engine, ThreadPoolExecutor(32) as threads:
        list(threads.map(lambda n: engine.run(lambda tr: tr.set(b"%d" % n, b"")), range(640)))
        totals = engine.figures().totals
        assert totals["commits"] == 640
        assert totals["commit_groups"] < 640 / 4


def test_a_commit_conflicts_with_earlier_commits_of_its_group(tmp_path: Path) -> None:
    def work(tr: Transaction) -> None:
        tr.set(b"a", (tr.get(b"a") or b"") + b"x")

    with opened(tmp_path) as engine:
        futures = commit_as_group(engine, [work, work, work], lambda work: engine.run(work, NO_RETRY))
        assert [type(future.exception()) for future in futures] == [type(None), ConflictError, ConflictError]
        assert engine.run(lambda tr: tr.get(b"a")) == b"x"


def test_versions_and_versionstamps_rise_across_restarts(tmp_path: Path) -> None:
    versions, stamps = [], []
    for _ in range(3):
        with opened(tmp_path) as engine:
            for _ in range(3):
                committed = engine.commit(lambda tr: tr.set(b"a", b""))
                versions.append(committed.version)
                stamps.append(committed.versionstamp)
            assert engine.run(lambda tr: tr.read_version()) == versions[-1]
    assert versions == sorted(set(versions))
    assert stamps == sorted(set(stamps))  # type: ignore[type-var]


def test_close_waits_for_running_commits_and_refuses_later_ones(tmp_path: Path) -> None:
    with opened(tmp_path, Durability.FULL) as engine:
        with ThreadPoolExecutor(2) as threads:
            with disk_held(engine):
                commits = [threads.submit(engine.run, lambda tr, n=n: tr.set(b"%d" % n, b"")) for n in range(2)]
                wait_until(lambda: engine.committer._led and len(engine.committer._queue) == 1, "both are under way")
                closing = started(engine.close)
                wait_until(lambda: engine.committer._closed, "the engine begins to close")
                with pytest.raises(UnavailableError, match="closed"):
                    engine.run(lambda tr: tr.set(b"late", b""))
                assert closing.is_alive()
            assert [commit.result() for commit in commits] == [None, None]
        closing.join()
    with opened(tmp_path) as engine:
        assert engine.run(lambda tr: [key for key, _ in tr.range(b"", b"\xff")]) == [b"0", b"1"]


def test_calls_of_a_closed_engine_are_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        begun = engine.begin(Options())
        assert begun.get(b"a") is None
        watch = engine.run(lambda tr: tr.watch(b"a"))
    engine.close()
    with pytest.raises(UnavailableError, match="closed"):
        engine.run(lambda tr: tr.get(b"a"))
    with pytest.raises(UnavailableError, match="closed"):
        engine.run(lambda tr: tr.set(b"a", b""))
    with pytest.raises(UnavailableError, match="closed"):
        engine.directory("a")
    with pytest.raises(TransactionCancelledError):
        begun.get(b"a")
    with pytest.raises(TransactionCancelledError):
        watch.wait(1)


def test_metrics_of_a_closed_engine_raise_an_error_of_ours(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        pass
    with pytest.raises(UnavailableError, match="closed"):
        engine.figures()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with opened(tmp_path) as opened_engine:
        yield opened_engine


@pytest.fixture
def crowd(engine: EmbeddedEngine) -> Iterator[list[Attempts]]:
    """As many reading transactions as the engine can have at once, all open."""
    engine.run(lambda tr: tr.set(b"a", b"1"))
    reading: list[Attempts] = []
    while len(reading) < READERS_MAX:
        reading.append(engine.begin(Options()))
        reading[-1].get(b"a")
    yield reading
    for transaction in reading:
        transaction.close()


def test_one_reader_too_many_gets_a_retryable_error(engine: Engine, crowd: list[Attempts]) -> None:
    with pytest.raises(RetryableError) as refused:
        engine.run(lambda tr: tr.get(b"a"), NO_RETRY)
    assert refused.value.code == 1037
    assert [transaction.get(b"a") for transaction in crowd] == [b"1"] * READERS_MAX


def test_one_reader_too_many_runs_once_another_is_done(engine: Engine, crowd: list[Attempts]) -> None:
    runs: list[None] = []

    def work(tr: Transaction) -> bytes | None:
        runs.append(None)
        if len(runs) == 2:
            crowd.pop().close()
        return tr.get(b"a")

    assert engine.run(work) == b"1"
    assert len(runs) > 1


def test_a_blind_write_needs_no_reader_slot(engine: Engine, crowd: list[Attempts]) -> None:
    engine.run(lambda tr: tr.set(b"a", b"2"))
    crowd.pop().close()
    assert engine.run(lambda tr: tr.get(b"a")) == b"2"


def test_a_commit_succeeds_even_if_a_watch_finds_no_reader_slot(engine: EmbeddedEngine) -> None:
    engine.run(lambda tr: tr.set(b"a", b"1"))
    watch = engine.run(lambda tr: tr.watch(b"a"))
    reading = [engine.begin(Options()) for _ in range(READERS_MAX)]
    for transaction in reading:
        transaction.get(b"a")
    engine.run(lambda tr: tr.set(b"a", b"2"))
    for transaction in reading:
        transaction.close()
    assert watch.wait(1)


def test_a_failure_after_the_write_to_disk_leaves_the_result_unknown(
    engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = engine.run(lambda tr: tr.watch(b"watched"))

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(engine.watches, "committed", fail)
    works = [lambda tr, n=number: tr.set(b"%d" % n, b"") for number in range(3)]
    leader, *members = commit_as_group(engine, works)
    assert engine.run(lambda tr: [key for key, _ in tr.range(b"0", b"3")]) == [b"0", b"1", b"2"]
    assert isinstance(leader.exception(), MemoryError)
    assert [type(member.exception()) for member in members] == [UnknownResultError, UnknownResultError]
    watch.cancel()


def test_metrics_need_no_reader_slot(engine: Engine, crowd: list[Attempts]) -> None:
    assert engine.figures().gauges["keys"] == 1
