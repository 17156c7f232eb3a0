"""Documents are read in processes of their own, so that a bad document fails alone."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from drillcore import NewDocument, OutcomeKind
from drillcore_proto.v1 import documents_pb2 as pb
from drillcore_server.app.config import WORKER_MEMORY_BYTES_MIN, IngestSettings
from tests.support.callers.knowledge import ADDED, FAILED, Added, Caller, File, parts
from tests.support.data.texts import notice
from tests.support.fixtures import new_corpus
from tests.support.processes.drillcore_process import Serving, cpu_ticks, is_running, processes_of, serving, workers_of
from tests.support.servers.running import ACME, create_tenants, running

LONG = "\n\n".join(notice(number, 40) for number in range(2_000)).encode()
"""Takes a worker many seconds."""
BOMB = b"a\n\n" * (6 << 20)
"""18 MiB that need hundreds of MiB in memory, since each line is a paragraph of its own."""
BUSY_TICKS = 20


def wait_until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = threading.Event()
    timer = threading.Timer(seconds, deadline.set)
    timer.start()
    try:
        while not condition():
            assert not deadline.wait(0.01), "the condition was not met in time"
    finally:
        timer.cancel()


@dataclass(frozen=True)
class Place:
    """A server in a process of its own, with one worker, and a corpus to add to."""

    server: Serving
    caller: Caller
    tenant: str
    corpus: str

    def requests(self, *sent: File) -> list[pb.AddDocumentsRequest]:
        return list(parts(self.corpus, sent, tenant=self.tenant))

    def add(self, *sent: File) -> Added:
        return self.caller.send(self.requests(*sent))

    def busy_worker(self) -> int:
        """The process id of the worker, once it is at work on a long document."""
        wait_until(lambda: workers_of(self.server.process.pid))
        (worker,) = workers_of(self.server.process.pid)
        begun = cpu_ticks(worker)
        wait_until(lambda: cpu_ticks(worker) >= begun + BUSY_TICKS)
        return worker


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    (tmp_path / "drillcore.toml").write_text("[ingest]\nworkers = 1\n[server]\nshutdown_grace_s = 0.5\n")
    with serving(tmp_path) as server, server.client() as client:
        tenant = client.create_tenant("acme").id
        corpus = client.create_corpus("rules", tenant_id=tenant).id
        caller = Caller(server.address, Path(server.document["serving"]["token_file"]).read_text().strip())
        yield Place(server, caller, str(tenant), str(corpus))
        caller.close()


def test_a_document_that_crashes_its_worker_fails_alone(place: Place) -> None:
    sent = [File("before.txt", notice(1)), File("long.txt", LONG), File("after.txt", notice(2))]
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(place.add, *sent)
        os.kill(place.busy_worker(), signal.SIGSEGV)
        added = under_way.result(timeout=30)
    assert {name: outcome.kind for name, outcome in added.by_name.items()} == {
        "before.txt": ADDED,
        "long.txt": FAILED,
        "after.txt": ADDED,
    }
    failed = added.by_name["long.txt"]
    assert (failed.reason, "SIGSEGV" in failed.message) == ("CRASHED", True)


def test_a_worker_that_was_ended_while_idle_is_replaced(place: Place) -> None:
    place.add(File("one.txt", notice(1)))
    (worker,) = workers_of(place.server.process.pid)
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: not is_running(worker))
    assert place.add(File("two.txt", notice(2))).kinds == [ADDED]
    assert workers_of(place.server.process.pid) != [worker]


def test_a_document_that_takes_too_much_memory_fails_alone(tmp_path: Path) -> None:
    ingest = IngestSettings(workers=1, worker_memory_bytes_max=WORKER_MEMORY_BYTES_MIN)
    with running(tmp_path, ingest) as server:
        create_tenants(server.client())
        caller = Caller(server.address, ACME)
        sent = [File("before.txt", notice(1)), File("bomb.txt", BOMB), File("after.txt", notice(2))]
        added = caller.add(new_corpus(server), *sent)
        caller.close()
    failed = added.by_name["bomb.txt"]
    assert (failed.kind, failed.reason) == (FAILED, "OUT_OF_MEMORY")
    assert "ingest.worker_memory_bytes_max" in failed.message
    assert [added.by_name[name].kind for name in ("before.txt", "after.txt")] == [ADDED, ADDED]


def test_a_document_that_takes_too_long_fails_alone(tmp_path: Path) -> None:
    with running(tmp_path, IngestSettings(workers=1, document_timeout_s=1.0)) as server:
        create_tenants(server.client())
        caller = Caller(server.address, ACME)
        sent = [File("before.txt", notice(1)), File("long.txt", LONG), File("after.txt", notice(2))]
        added = caller.add(new_corpus(server), *sent)
        caller.close()
    failed = added.by_name["long.txt"]
    assert (failed.kind, failed.reason) == (FAILED, "TOO_SLOW")
    assert "ingest.document_timeout_s" in failed.message
    assert [added.by_name[name].kind for name in ("before.txt", "after.txt")] == [ADDED, ADDED]


def test_work_under_way_is_dropped_when_its_caller_gives_up(place: Place) -> None:
    go_on = threading.Event()

    def requests() -> Iterator[pb.AddDocumentsRequest]:
        yield from place.requests(File("long.txt", LONG), File("half.txt", notice(1)))[:-1]
        go_on.wait(timeout=30)

    under_way = place.caller.documents.AddDocuments(requests(), **place.caller.options())
    worker = place.busy_worker()
    under_way.cancel()
    go_on.set()
    wait_until(lambda: not is_running(worker), seconds=5.0)
    assert place.add(File("next.txt", notice(2))).kinds == [ADDED]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_the_server(place: Place, number: int) -> None:
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(place.add, File("long.txt", LONG))
        place.busy_worker()
        started = processes_of(place.server.process.pid)
        place.server.process.send_signal(number)
        assert under_way.exception(timeout=40) is not None
        place.server.process.wait(timeout=30)
    wait_until(lambda: not any(map(is_running, started)), seconds=5.0)


def test_outcomes_are_in_the_order_of_the_uploads_however_many_are_read_at_once(tmp_path: Path) -> None:
    sizes = [200, 1, 1, 1, 1, 100, 1, 1, 1, 1]
    with running(tmp_path, IngestSettings(workers=3)) as server:
        create_tenants(server.client())
        caller = Caller(server.address, ACME)
        sent = [File(f"{number}.txt", notice(number, size)) for number, size in enumerate(sizes)]
        added = caller.add(new_corpus(server), *sent)
        caller.close()
    assert [outcome.name for outcome in added.outcomes] == [file.name for file in sent]
    assert list(added.ids.values()) == sorted(added.ids.values()), "ids are in order too"


def test_without_workers_no_process_is_started(tmp_path: Path) -> None:
    (tmp_path / "drillcore.toml").write_text("[ingest]\nworkers = 0\n")
    with serving(tmp_path) as server, server.client() as client:
        tenant = client.create_tenant("acme").id
        corpus = client.create_corpus("rules", tenant_id=tenant).id
        added = client.add_documents(corpus, [NewDocument("one.txt", notice(1).encode())], tenant_id=tenant)
        assert [outcome.kind for outcome in added.outcomes] == [OutcomeKind.ADDED]
        assert processes_of(server.process.pid) == []
