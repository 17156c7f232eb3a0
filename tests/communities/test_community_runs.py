"""Community runs: they block no other calls, happen one at a time, and are begun by the server when they are due."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest

from drillcore_fdb.engine import Attempts, Engine, Options
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import facts_pb2
from drillcore_server.communities import store as communities
from drillcore_server.communities.model import CommunityRun, RunLease, Trigger
from drillcore_server.communities.settings import CommunitySettings
from drillcore_server.communities.store import LEASE
from drillcore_server.storage.ids import Revision
from tests.support.callers.communities import CommunityCaller, fact_of, ids_of, planted, topic_drafts
from tests.support.callers.knowledge import refused
from tests.support.processes.drillcore_process import processes_of
from tests.support.servers.running import ACME, DUE_COMMUNITIES, OPERATOR, Running, create_tenants, running
from tests.support.stores.aged import keys_of
from tests.support.stores.held_store import Hold
from tests.support.stores.stores import wait_until
from tests.support.stores.trails import records

COUNTS = {"salmon": 9, "turbine": 7}
NOW = datetime.now(UTC)
DAY = timedelta(days=1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, communities=DUE_COMMUNITIES) as found:
        create_tenants(found.client(OPERATOR))
        yield found


@pytest.fixture
def caller(server: Running) -> Iterator[CommunityCaller]:
    with CommunityCaller(server, ACME) as found:
        yield found


@pytest.fixture
def corpus(caller: CommunityCaller) -> str:
    corpus = caller.corpus()
    caller.plant(corpus, *topic_drafts(**COUNTS))
    return corpus


@pytest.fixture
def beside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def workers() -> list[int]:
    """The ids of the processes that find communities for the servers in this process."""
    return [pid for pid in processes_of(os.getpid()) if b"communities.find.worker" in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@contextmanager
def held_runs(engine: Engine) -> Iterator[Hold]:
    """A run that has started its process waits for `release` before it sends the process any vectors."""
    hold, begin = Hold(), engine.begin

    def wait(options: Options, *more: Any) -> Attempts:
        if threading.current_thread().name.startswith("drillcore-communities_") and workers():
            hold.begun.set()
            hold.release.wait(timeout=30)
        return begin(options, *more)

    with mock.patch.object(engine, "begin", wait):
        try:
            yield hold
        finally:
            hold.release.set()


def test_reads_and_writes_go_on_during_a_run_and_are_taken_into_account(
    server: Running, caller: CommunityCaller, corpus: str, beside: ThreadPoolExecutor
) -> None:
    with held_runs(server.engine) as hold:
        run = beside.submit(caller.recompute, corpus)
        assert hold.begun.wait(30)
        caller.plant(corpus, *planted("salmon", 3, start=40))
        caller.set_status(str(fact_of("salmon", 0)), facts_pb2.FACT_STATUS_DELETED)
        caller.update(str(fact_of("turbine", 5)), importance_weight=1.0)
        request = facts_pb2.SearchFactsRequest(corpus_ids=[corpus], vector=[1.0] * 16, embedding_model="planted")
        assert len(caller.facts.SearchFacts(request, **caller.options()).hits) == 10
        assert caller.all_communities(corpus) == []
        assert not run.done()
        hold.release.set()
        done = run.result(30)
    assert (done.run.of_revision, done.run.revision, done.changed) == (1, 5, True)
    expected = ids_of(COUNTS)
    expected["salmon"] -= {str(fact_of("salmon", 0))}
    found = caller.members(corpus)
    assert sorted(map(sorted, found.values())) == sorted(map(sorted, expected.values()))
    assert [community.size for community in caller.all_communities(corpus)] == [8, 7]
    turbines = next(community for community in found if str(fact_of("turbine", 0)) in found[community])
    assert next(caller.facts_of(corpus, turbines)) == str(fact_of("turbine", 5))


def test_a_killed_process_leaves_nothing_and_the_run_is_tried_again(
    server: Running, caller: CommunityCaller, corpus: str, beside: ThreadPoolExecutor
) -> None:
    with held_runs(server.engine) as hold:
        run = beside.submit(caller.recompute, corpus)
        assert hold.begun.wait(30)
        (worker,) = workers()
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: not workers(), "the process is gone")
        assert caller.all_communities(corpus) == []
        hold.release.set()
        done = run.result(30)
    assert (done.changed, done.run.communities) == (True, 2)
    assert done.run.revision == 2
    assert [line["attempt"] for line in server.log_lines() if line["event"] == "communities not found"] == [1]


def test_a_process_that_always_fails_is_a_refusal_and_nothing_is_written(
    server: Running, caller: CommunityCaller, corpus: str
) -> None:
    with mock.patch.dict(os.environ, PYTHONHOME="/nowhere"), refused(Reason.COMMUNITIES_UNAVAILABLE):
        caller.recompute(corpus)
    assert caller.head(corpus) == 1
    assert not caller.page(corpus).HasField("last_run")
    assert caller.recompute(corpus).changed


def test_callers_during_a_run_wait_for_it_and_the_work_is_done_once(
    server: Running, caller: CommunityCaller, corpus: str, beside: ThreadPoolExecutor
) -> None:
    with held_runs(server.engine) as hold:
        runs = [beside.submit(caller.recompute, corpus) for _ in range(3)]
        assert hold.begun.wait(30)
        assert len(workers()) == 1
        hold.release.set()
        done = [run.result(30) for run in runs]
    assert sorted(answer.changed for answer in done) == [False, False, True]
    assert {answer.run.communities for answer in done} == {2}
    assert caller.head(corpus) == 2


def test_a_caller_who_added_facts_during_a_run_gets_a_run_with_them(
    server: Running, caller: CommunityCaller, corpus: str, beside: ThreadPoolExecutor
) -> None:
    with held_runs(server.engine) as hold:
        first = beside.submit(caller.recompute, corpus)
        assert hold.begun.wait(30)
        caller.plant(corpus, *planted("violin", 4))
        second = beside.submit(caller.recompute, corpus)
        hold.release.set()
        assert first.result(30).run.of_revision == 1
        assert second.result(30).run.of_revision >= 2
    assert len(caller.all_communities(corpus)) == 3


def test_a_run_goes_on_when_the_caller_has_no_more_time(
    server: Running, caller: CommunityCaller, corpus: str, beside: ThreadPoolExecutor
) -> None:
    with held_runs(server.engine) as hold:
        done = caller.recompute(corpus, timeout_s=2.0)
        assert (done.running, done.changed, done.HasField("run")) == (True, False, False)
        hold.release.set()
    wait_until(lambda: caller.page(corpus).HasField("last_run"), "the run has ended")
    page = caller.page(corpus)
    assert (page.last_run.trigger, page.last_run.communities) == ("request", 2)
    assert caller.history(corpus_id=corpus)[0].by == "drillcore"


def test_a_server_that_stops_refuses_waiting_callers_and_ends_the_process(
    tmp_path: Path, beside: ThreadPoolExecutor
) -> None:
    waiting: Future[Any]
    with running(tmp_path) as server:
        create_tenants(server.client(OPERATOR))
        caller = CommunityCaller(server, ACME)
        corpus = caller.corpus()
        caller.plant(corpus, *topic_drafts(**COUNTS))
        with held_runs(server.engine) as hold:
            waiting = beside.submit(caller.recompute, corpus)
            assert hold.begun.wait(30)
            stopping = beside.submit(server.server.communities.stop)
            with refused(Reason.SHUTTING_DOWN):
                waiting.result(30)
            hold.release.set()
            stopping.result(30)
        assert workers() == []
        caller.close()


def test_the_lease_of_another_server_is_respected_until_it_expires(
    server: Running, caller: CommunityCaller, corpus: str, beside: ThreadPoolExecutor
) -> None:
    keys = keys_of(server, corpus)
    theirs = RunLease(uuid4(), datetime.now(UTC) + DAY)
    server.engine.run(lambda tr: LEASE.write(tr, keys.community_lease(), theirs))
    assert caller.recompute(corpus, timeout_s=2.0).running
    assert workers() == []
    over = RunLease(theirs.id, datetime.now(UTC) - DAY)
    server.engine.run(lambda tr: LEASE.write(tr, keys.community_lease(), over))
    assert caller.recompute(corpus).run.communities == 2
    assert server.engine.run(lambda tr: tr.get(keys.community_lease())) is None


def test_an_older_run_does_not_replace_a_newer_one(
    server: Running, caller: CommunityCaller, corpus: str, beside: ThreadPoolExecutor
) -> None:
    """This happens when a server was paused past its lease."""
    keys = keys_of(server, corpus)
    with held_runs(server.engine) as hold:
        older = beside.submit(caller.recompute, corpus)
        assert hold.begun.wait(30)
        newer = caller.page(corpus)
        assert not newer.HasField("last_run")
        run = CommunityRun(NOW, Revision(9), Revision(1), 1, 1, Trigger.FACTS, 0.0)
        server.engine.run(lambda tr: communities.put_run(tr, keys, run))
        hold.release.set()
        done = older.result(30)
    assert (done.changed, done.run.of_revision) == (False, 9)
    assert caller.all_communities(corpus) == []


def due(server: Running, now: datetime = NOW) -> int:
    return server.server.communities.run_due(now)


def test_fifty_new_facts_are_enough_and_forty_nine_are_not(server: Running, caller: CommunityCaller) -> None:
    corpus = caller.corpus()
    caller.plant(corpus, *topic_drafts(salmon=25, turbine=24))
    assert due(server) == 0
    caller.plant(corpus, *planted("turbine", 1, start=90))
    assert due(server) == 1
    page = caller.page(corpus)
    assert (page.last_run.trigger, page.last_run.facts, len(page.communities)) == ("facts", 50, 2)
    assert due(server) == 0, "facts that a run has seen are not new any more"


def test_facts_added_during_a_run_are_new_after_it(
    server: Running, caller: CommunityCaller, corpus: str, beside: ThreadPoolExecutor
) -> None:
    with held_runs(server.engine) as hold:
        run = beside.submit(caller.recompute, corpus)
        assert hold.begun.wait(30)
        caller.plant(corpus, *planted("salmon", 50, start=100))
        hold.release.set()
        assert run.result(30).changed
    assert due(server, datetime.now(UTC)) == 1


def test_changes_of_facts_are_not_new_facts(server: Running, caller: CommunityCaller) -> None:
    corpus = caller.corpus()
    caller.plant(corpus, *topic_drafts(salmon=40))
    for number in range(15):
        caller.update(str(fact_of("salmon", number)), importance_weight=0.9)
    assert due(server) == 0


def test_there_is_a_pause_between_two_runs(tmp_path: Path) -> None:
    settings = CommunitySettings(check_every_s=86_400.0, pause_s=3_600.0, new_facts_min=3)
    with running(tmp_path, communities=settings) as server:
        create_tenants(server.client(OPERATOR))
        with CommunityCaller(server, ACME) as caller:
            corpus = caller.corpus()
            caller.plant(corpus, *planted("salmon", 3))
            assert due(server) == 1
            caller.plant(corpus, *planted("turbine", 3))
            assert due(server, datetime.now(UTC)) == 0
            assert due(server, datetime.now(UTC) + timedelta(hours=2)) == 1


def test_fewer_changes_are_enough_after_a_week_but_there_must_be_a_change(
    server: Running, caller: CommunityCaller, corpus: str
) -> None:
    assert due(server, datetime.now(UTC) + 6 * DAY) == 0
    assert due(server, datetime.now(UTC) + 8 * DAY) == 1
    assert caller.page(corpus).last_run.trigger == "schedule"
    assert due(server, datetime.now(UTC) + 16 * DAY) == 0
    caller.set_status(str(fact_of("salmon", 2)), facts_pb2.FACT_STATUS_DELETED)
    assert due(server, datetime.now(UTC) + 16 * DAY) == 1


def test_a_due_run_is_made_right_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path, communities=DUE_COMMUNITIES) as server:
        create_tenants(server.client(OPERATOR))
        with CommunityCaller(server, ACME) as caller:
            corpus = caller.corpus()
            caller.plant(corpus, *topic_drafts(salmon=30, turbine=30))
    with running(tmp_path, communities=DUE_COMMUNITIES) as server, CommunityCaller(server, ACME) as caller:
        wait_until(lambda: caller.page(corpus).HasField("last_run"), "the server finds communities by itself")
        assert len(caller.all_communities(corpus)) == 2


def test_the_background_thread_finds_due_corpora_by_itself(tmp_path: Path) -> None:
    with running(tmp_path, communities=CommunitySettings(check_every_s=0.05)) as server:
        create_tenants(server.client(OPERATOR))
        with CommunityCaller(server, ACME) as caller:
            corpus = caller.corpus()
            caller.plant(corpus, *topic_drafts(salmon=30, turbine=30))
            wait_until(lambda: caller.page(corpus).HasField("last_run"), "the server finds communities by itself")
            assert len(caller.all_communities(corpus)) == 2


def test_a_deleted_corpus_is_left_alone(server: Running, caller: CommunityCaller) -> None:
    corpus = caller.corpus()
    caller.plant(corpus, *topic_drafts(salmon=30, turbine=30))
    server.client(ACME).delete_corpus(corpus)
    assert due(server) == 0


def test_every_run_is_on_the_record(server: Running, caller: CommunityCaller) -> None:
    corpus = caller.corpus()
    caller.plant(corpus, *topic_drafts(salmon=30, turbine=30))
    due(server)
    caller.recompute(corpus)
    by_server, by_caller = records(server, call="RecomputeCommunities")
    assert by_server["detail"]["trigger"] == "facts"
    assert by_server["after"]["revision"] == 2
    assert by_caller["detail"] | {"unchanged": True} == by_caller["detail"]
    assert by_caller["detail"]["communities"] == 2
    assert DUE_COMMUNITIES.new_facts_min == 50
