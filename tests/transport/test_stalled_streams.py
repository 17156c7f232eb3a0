"""A caller who opens a stream and then does nothing is refused and holds no worker; a slow caller is served."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import documents_pb2 as pb
from drillcore_proto.v1 import documents_pb2_grpc
from drillcore_server.transport.streams import OUTBOX_MAX
from tests.support.callers.knowledge import ADDED, Caller, File, info_of, parts, refused, update_parts
from tests.support.data.texts import notice
from tests.support.fixtures import new_corpus
from tests.support.servers.running import ACME, Running, create_tenants, running

FILES = [File("a.txt", notice(1)), File("b.txt", notice(2))]


@contextmanager
def served(path: Path, **changes: Any) -> Iterator[tuple[Running, Caller, str]]:
    """A server, a caller of it, and an empty corpus."""
    with running(path, **{"stream_idle_s": 1.0, **changes}) as server:
        create_tenants(server.client())
        caller = Caller(server.address, ACME)
        try:
            yield server, caller, new_corpus(server)
        finally:
            caller.close()


@contextmanager
def silence() -> Iterator[Callable[[list[Message]], Iterator[Message]]]:
    """Makes streams that send their messages and then nothing, not even the end of the stream."""
    over = threading.Event()

    def stream(messages: list[Message]) -> Iterator[Message]:
        yield from messages
        over.wait(timeout=30)

    try:
        yield stream
    finally:
        over.set()


def eventually(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    return holds()


def outcomes(server: Running, request_id: str) -> list[str]:
    """The outcomes that the log has for a call."""
    return [line["outcome"] for line in server.logged_calls() if line["request_id"] == request_id]


@contextmanager
def unhurried(address: str) -> Iterator[documents_pb2_grpc.DocumentServiceStub]:
    """A stub with small buffers, so that a caller who does not read soon stops the server from sending."""
    options = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 16_384)]
    with grpc.insecure_channel(address, options) as channel:
        yield documents_pb2_grpc.DocumentServiceStub(channel)


def threads_of_streams() -> list[str]:
    """The names of stream threads of all servers in this process. Only the servers of this test have streams."""
    names = ("drillcore-AddDocuments", "drillcore-UpdateDocument", "drillcore-stalls")
    return [thread.name for thread in threading.enumerate() if thread.name in names]


@pytest.mark.parametrize("sent", range(5), ids=lambda count: f"after {count} requests")
def test_a_stalled_upload_is_ended_and_leaves_nothing(tmp_path: Path, sent: int) -> None:
    with served(tmp_path) as (server, caller, corpus), silence() as then_nothing:
        messages = list(parts(corpus, FILES))[:sent]
        with refused(Reason.STREAM_IDLE):
            list(caller.documents.AddDocuments(then_nothing(messages), **caller.options("stalled")))
        assert caller.head(corpus) == 0
        assert eventually(lambda: outcomes(server, "stalled") == [Reason.STREAM_IDLE.name])
        assert eventually(lambda: threads_of_streams() == [])


def test_a_stalled_update_is_ended(tmp_path: Path) -> None:
    with served(tmp_path) as (_, caller, corpus), silence() as then_nothing:
        caller.add(corpus, *FILES)
        messages = list(update_parts(corpus, notice(3), source_id="a.txt"))[:-1]
        with refused(Reason.STREAM_IDLE):
            list(caller.documents.UpdateDocument(then_nothing(messages), **caller.options()))
        assert caller.head(corpus) == 1


def test_more_stalled_uploads_than_workers_do_not_stop_the_server(tmp_path: Path) -> None:
    with served(tmp_path, workers=2) as (_, caller, corpus), silence() as then_nothing:
        first, *_ = parts(corpus, FILES)
        stalled = [caller.documents.AddDocuments(then_nothing([first]), **caller.options()) for _ in range(5)]
        assert caller.add(corpus, *FILES).kinds == [ADDED, ADDED]
        for upload in stalled:
            with refused(Reason.STREAM_IDLE):
                list(upload)


def test_a_deadline_ends_a_stalled_upload_and_frees_its_worker(tmp_path: Path) -> None:
    with served(tmp_path, workers=1, stream_idle_s=60.0) as (_, caller, corpus), silence() as then_nothing:
        messages = list(parts(corpus, FILES))[:-1]
        with pytest.raises(grpc.RpcError) as caught:
            list(caller.documents.AddDocuments(then_nothing(messages), **caller.options(timeout_s=0.3)))
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert caller.head(corpus) == 0
        assert caller.add(corpus, *FILES).kinds == [ADDED, ADDED]


def test_a_slow_upload_may_take_longer_than_the_limit_of_a_call(tmp_path: Path) -> None:
    """The time limit of an upload applies to the work after its last request."""
    pause = threading.Event()

    def trickle(corpus: str) -> Iterator[Message]:
        for message in parts(corpus, FILES, part_bytes=60):
            yield message
            pause.wait(timeout=0.1)

    with served(tmp_path, stream_idle_s=1.0, timeout_default_s=1.0, timeout_max_s=1.0) as (_, caller, corpus):
        started = time.monotonic()
        assert caller.send(trickle(corpus)).kinds == [ADDED, ADDED]
        assert time.monotonic() - started > 1.5


def test_a_caller_who_never_reads_is_held_back_and_then_ended(tmp_path: Path) -> None:
    def endless(corpus: str) -> Iterator[Message]:
        first, *_ = parts(corpus, [])
        yield first
        for number in itertools.count():
            yield pb.AddDocumentsRequest(header=pb.DocumentHeader(name=f"empty {number}"))

    with served(tmp_path, workers=1) as (server, caller, corpus), unhurried(server.address) as stub:
        unread = stub.AddDocuments(endless(corpus), **caller.options("unread"))
        assert eventually(lambda: outcomes(server, "unread") == [Reason.STREAM_IDLE.name])
        assert caller.head(corpus) == 0
        assert caller.add(corpus, *FILES).kinds == [ADDED, ADDED]
        assert eventually(lambda: threads_of_streams() == [])
        unread.cancel()


def test_requests_of_a_caller_who_never_reads_are_not_read_for_ever(tmp_path: Path) -> None:
    """Answers that wait for the caller would fill the server's memory."""
    sent, pause = 0, threading.Event()

    def endless(corpus: str) -> Iterator[Message]:
        nonlocal sent
        yield next(parts(corpus, []))
        for sent in itertools.count():
            yield pb.AddDocumentsRequest(header=pb.DocumentHeader(name=f"{sent} {'n' * 500}"))

    def stands_still() -> bool:
        before = sent
        pause.wait(timeout=0.5)
        return 0 < before == sent

    with served(tmp_path, stream_idle_s=60.0) as (server, caller, corpus), unhurried(server.address) as stub:
        unread = stub.AddDocuments(endless(corpus), **caller.options())
        assert eventually(stands_still)
        unread.cancel()


def test_a_caller_who_does_not_read_the_outcomes_holds_no_worker(tmp_path: Path) -> None:
    """The documents are added anyway, and a retry would get the outcomes."""
    sent = [File(f"{number} {'n' * 900}", b"") for number in range(OUTBOX_MAX * 3)] + FILES
    with served(tmp_path, workers=1) as (server, caller, corpus), unhurried(server.address) as stub:
        unread = stub.AddDocuments(parts(corpus, sent), **caller.options("unread"))
        assert eventually(lambda: outcomes(server, "unread") == ["OK"])
        assert caller.head(corpus) == 1
        assert caller.add(corpus, *sent, request_id="unread").done.added == 2
        assert eventually(lambda: threads_of_streams() == [])
        unread.cancel()


def test_a_caller_who_disconnects_leaves_no_thread_behind(tmp_path: Path) -> None:
    with served(tmp_path, stream_idle_s=60.0) as (_, caller, corpus), silence() as then_nothing:
        uploads = [
            caller.documents.AddDocuments(then_nothing(list(parts(corpus, FILES))[:-1]), **caller.options())
            for _ in range(3)
        ]
        for upload in uploads:
            next(upload)
            upload.cancel()
        assert eventually(lambda: "drillcore-AddDocuments" not in threads_of_streams())
        assert caller.head(corpus) == 0


def test_a_stop_waits_at_most_the_grace_period_for_a_stalled_upload(tmp_path: Path) -> None:
    with (
        served(tmp_path, stream_idle_s=60.0, shutdown_grace_s=0.5) as (server, caller, corpus),
        silence() as then_nothing,
    ):
        upload = caller.documents.AddDocuments(then_nothing(list(parts(corpus, FILES))[:-1]), **caller.options())
        next(upload)
        started = time.monotonic()
        server.server.stop()
        assert time.monotonic() - started < 50
        with pytest.raises(grpc.RpcError):
            list(upload)
        assert eventually(lambda: "drillcore-AddDocuments" not in threads_of_streams())


def test_the_refusal_names_the_setting(tmp_path: Path) -> None:
    with served(tmp_path) as (_, caller, _), silence() as then_nothing:
        with pytest.raises(grpc.RpcError) as caught:
            list(caller.documents.AddDocuments(then_nothing([]), **caller.options()))
        assert info_of(caught.value).reason == Reason.STREAM_IDLE.name
        assert "server.stream_idle_s" in caught.value.details()
