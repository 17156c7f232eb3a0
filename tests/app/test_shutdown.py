"""A server that stops finishes its calls, takes no new calls, and loses no acknowledged write."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from drillcore import Client, DrillcoreError, Unavailable
from drillcore_formats.settings import SettingsError
from drillcore_proto.reasons import Reason
from drillcore_proto.v1.documents_pb2 import AddDocumentsRequest
from drillcore_server.envelopes.settings import EnvelopeSettings
from drillcore_server.tokenizers.settings import ModelSettings
from tests.support.callers.knowledge import ADDED, Caller, File, parts, refused
from tests.support.data.texts import notice
from tests.support.fixtures import new_corpus
from tests.support.servers.running import ACME, OPERATOR, Running, create_tenants, running
from tests.support.stores.held_store import held


@contextmanager
def stopping(server: Running) -> Iterator[threading.Thread]:
    """Runs the server's `stop` in a thread of its own. The block ends when `stop` has returned."""
    thread = threading.Thread(target=server.server.stop)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(timeout=30)
        assert not thread.is_alive()


def test_a_call_under_way_is_finished_and_kept(tmp_path: Path) -> None:
    with running(tmp_path) as server, ThreadPoolExecutor(1) as pool, held(server.engine) as hold:
        under_way = pool.submit(server.client().create_tenant, "acme")
        assert hold.begun.wait(timeout=10)
        with stopping(server) as stop:
            stop.join(timeout=0.3)
            assert stop.is_alive(), "stop waits for the call"
            hold.release.set()
            made = under_way.result(timeout=10)
    with running(tmp_path) as server:
        assert list(server.client().iter_tenants()) == [made]


def test_calls_are_unavailable_once_the_server_has_stopped(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        old = server.client()
        old.server_info()
        server.server.stop()
        for client in (old, server.client()):
            with pytest.raises(Unavailable):
                client.server_info()


def test_calls_are_only_ever_unavailable_while_the_server_stops(tmp_path: Path) -> None:
    """They are never CANCELLED, which would say that the caller gave up, and which clients do not retry."""

    def call_until_refused(client: Client) -> DrillcoreError:
        while True:
            try:
                client.server_info()
            except DrillcoreError as refusal:
                return refusal

    refusals = []
    for _ in range(8):
        with running(tmp_path) as server, ThreadPoolExecutor(4) as pool:
            callers = [pool.submit(call_until_refused, server.client(attempts=2)) for _ in range(4)]
            with stopping(server):
                refusals += [caller.result(timeout=20) for caller in callers]
    assert {type(refusal) for refusal in refusals} == {Unavailable}


def test_a_stop_with_nothing_under_way_does_not_use_up_the_grace(tmp_path: Path) -> None:
    """This holds even if a client calls at that moment or watches the server's health."""
    with running(tmp_path, shutdown_grace_s=60.0) as server, grpc.insecure_channel(server.address) as channel:
        watched = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
        assert next(watched).status == health_pb2.HealthCheckResponse.SERVING
        with stopping(server) as stop:
            stop.join(timeout=25)
            in_time = not stop.is_alive()
            watched.cancel()
    assert in_time


def test_a_call_that_outlasts_the_grace_is_cut_off(tmp_path: Path) -> None:
    with (
        running(tmp_path, shutdown_grace_s=0.2) as server,
        ThreadPoolExecutor(1) as pool,
        held(server.engine) as hold,
    ):
        under_way = pool.submit(server.client().list_tenants)
        assert hold.begun.wait(timeout=10)
        with stopping(server), pytest.raises(DrillcoreError):
            under_way.result(timeout=10)


@contextmanager
def uploading(server: Running) -> Iterator[tuple[Caller, str, threading.Event, Future[object]]]:
    """Yields a caller, its corpus, an event, and the future of an upload that goes on when the event is set."""
    create_tenants(server.client())
    caller, corpus, go_on = Caller(server.address, ACME), new_corpus(server), threading.Event()

    def requests() -> Iterator[AddDocumentsRequest]:
        *documents, end = parts(corpus, [File("a.txt", notice(1)), File("b.txt", notice(2))])
        yield from documents
        if go_on.wait(timeout=20):
            yield end

    with ThreadPoolExecutor(1) as pool:
        under_way = caller.documents.AddDocuments(requests(), **caller.options())
        next(under_way)
        try:
            yield caller, corpus, go_on, pool.submit(list, under_way)
        finally:
            go_on.set()
    caller.close()


def test_an_upload_under_way_is_finished_and_kept_and_no_other_begins(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        with uploading(server) as (caller, corpus, go_on, under_way), stopping(server) as stop:
            stop.join(timeout=0.3)
            assert stop.is_alive(), "stop waits for the upload"
            with refused(Reason.SHUTTING_DOWN):
                caller.add(corpus, File("c.txt", notice(3)))
            go_on.set()
            answers = under_way.result(timeout=10)
        assert [answer.outcome.kind for answer in answers if answer.WhichOneof("event") == "outcome"] == [ADDED, ADDED]
    with running(tmp_path) as server:
        caller = Caller(server.address, ACME)
        assert {document.source_id for document in caller.list_documents(corpus)} == {"a.txt", "b.txt"}
        caller.close()


def test_an_upload_that_outlasts_the_grace_is_cut_off_and_leaves_nothing(tmp_path: Path) -> None:
    with running(tmp_path, shutdown_grace_s=0.2) as server, uploading(server) as (_, corpus, _, under_way):
        with stopping(server) as stop:
            stop.join(timeout=25)
            assert not stop.is_alive()
        with pytest.raises(grpc.RpcError):
            under_way.result(timeout=10)
    with running(tmp_path) as server:
        caller = Caller(server.address, ACME)
        assert (caller.head(corpus), caller.list_documents(corpus)) == (0, [])
        caller.close()


def test_every_acknowledged_write_is_there_after_a_stop(tmp_path: Path) -> None:
    acknowledged: list[str] = []

    def write_until_stopped(client: Client, writer: int) -> None:
        for number in range(100_000):
            try:
                acknowledged.append(client.create_tenant(f"tenant {writer} {number}").name)
            except DrillcoreError:
                return

    with running(tmp_path) as server, ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write_until_stopped, server.client(), writer) for writer in range(4)]
        while len(acknowledged) < 40:
            assert not any(writer.done() for writer in writers), "a writer was refused before the stop"
            time.sleep(0.001)
        with stopping(server):
            for writer in writers:
                writer.result(timeout=20)
    with running(tmp_path) as server:
        kept = {tenant.name for tenant in server.client().iter_tenants(page_size=1000)}
    assert set(acknowledged) <= kept
    assert len(kept) - len(acknowledged) <= 4, "at most the last call of each writer had no answer"


def test_health_says_serving_and_then_not_serving(tmp_path: Path) -> None:
    statuses: list[int] = []
    with running(tmp_path, shutdown_grace_s=1.0) as server, grpc.insecure_channel(server.address) as channel:
        watched = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=20)
        statuses.append(next(watched).status)
        with stopping(server):
            statuses.append(next(watched).status)
            watched.cancel()
    assert statuses == [health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING]


def test_a_server_that_was_stopped_says_so_in_its_log(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        pass
    assert [line["event"] for line in server.log_lines()] == ["audit key made", "serving", "stopping", "stopped"]


def test_a_server_that_cannot_start_leaves_the_store_free(tmp_path: Path) -> None:
    """Even while its error, which refers to the server, is kept: nothing waits for the garbage collector."""
    missing = ModelSettings(name="ours", tokenizer=tmp_path / "missing.json")
    with pytest.raises(SettingsError) as kept, running(tmp_path, envelopes=EnvelopeSettings(models=(missing,))):
        pass
    with running(tmp_path) as server:
        server.client().create_tenant("acme")
    assert "missing.json" in str(kept.value)


def test_a_store_can_be_served_again_at_once(tmp_path: Path) -> None:
    for start in range(3):
        with running(tmp_path) as server:
            server.client().create_tenant(f"tenant {start}")
            assert len(list(server.client(OPERATOR).iter_tenants())) == start + 1
