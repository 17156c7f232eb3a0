"""Watching events and migrations over lost connections. Each claim holds for both Client and AsyncClient."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest

import drillcore
from drillcore import AsyncClient, Client, Event, EventKind, FactStatus, Reason
from drillcore_proto.v1 import embeddings_pb2, events_pb2
from tests.support.data.fact_messages import CORPUS, FACT, STOPS, Script, answer, progress
from tests.support.servers.in_memory_server import Failure, Peer, because, running

Take = Callable[..., list[Any]]


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running() as peer:
        yield peer


def sync(
    address: str, method: str, count: int, *args: Any, timeout_s: float = 30, attempts: int = 5, **options: Any
) -> list[Any]:
    with Client(address, timeout_s=timeout_s, attempts=attempts) as client:
        return list(itertools.islice(getattr(client, method)(*args, **options), count))


def asynchronous(
    address: str, method: str, count: int, *args: Any, timeout_s: float = 30, attempts: int = 5, **options: Any
) -> list[Any]:
    async def run() -> list[Any]:
        found: list[Any] = []
        async with AsyncClient(address, timeout_s=timeout_s, attempts=attempts) as client:
            async for item in getattr(client, method)(*args, **options):
                found.append(item)
                if len(found) == count:
                    break
        return found

    return asyncio.run(run())


@pytest.fixture(params=[sync, asynchronous], ids=["Client", "AsyncClient"])
def take(request: pytest.FixtureRequest, peer: Peer) -> Take:
    """Takes a number of items of an iteration at the peer and leaves it; fewer if the iteration ends."""
    return lambda method, count, *args, **options: request.param(peer.address, method, count, *args, **options)


def test_an_event_comes_back_with_every_field(take: Take, peer: Peer) -> None:
    event = events_pb2.Event(
        kind=events_pb2.EVENT_KIND_FACT_QUARANTINED,
        corpus_id=str(CORPUS),
        revision=9,
        fact_id=str(FACT),
        fact_status="QUARANTINED",
        resume_token="t",
    )
    event.at.FromJsonString("2026-01-02T03:04:05Z")
    source = events_pb2.Event(
        kind=events_pb2.EVENT_KIND_SOURCE_CHANGED, corpus_id=str(CORPUS), document_id=str(FACT), resume_token="u"
    )
    unknown = events_pb2.Event(kind=99, corpus_id=str(CORPUS))  # type: ignore[arg-type]  # from a newer server
    script = peer.streams["WatchEvents"] = Script(
        [events_pb2.WatchEventsResponse(events=[event, unknown, source], resume_token="u")]
    )
    kinds = [EventKind.FACT_QUARANTINED, EventKind.SOURCE_CHANGED]
    first, second = take("watch_events", 2, [CORPUS], kinds=kinds, from_beginning=True)
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert first == Event(EventKind.FACT_QUARANTINED, CORPUS, 9, at, FACT, FactStatus.QUARANTINED, None, "t")
    assert (second.fact_id, second.fact_status, second.document_id) == (None, None, FACT)
    assert script.firsts == [
        events_pb2.WatchEventsRequest(
            corpus_ids=[str(CORPUS)],
            kinds=[events_pb2.EVENT_KIND_FACT_QUARANTINED, events_pb2.EVENT_KIND_SOURCE_CHANGED],
            from_beginning=True,
        )
    ]


@pytest.mark.parametrize(
    "loss",
    [STOPS, because(Reason.STREAM_IDLE), because(Reason.CANCELLED), None],
    ids=["stopping", "idle", "cancelled", "ended"],
)
def test_a_watch_continues_after_the_last_answer_it_got(take: Take, peer: Peer, loss: Failure | None) -> None:
    script = peer.streams["WatchEvents"] = Script(
        [answer(1, 2), answer(3, token="3b"), *([loss] if loss else [])],
        [STOPS],
        [answer(4), answer(5)],
    )
    found = take("watch_events", 5, resume_token="0")
    assert [event.revision for event in found] == [1, 2, 3, 4, 5]
    assert [request.resume_token for request in script.firsts] == ["0", "3b", "3b"]


def test_a_watch_from_the_beginning_starts_there_only_once(take: Take, peer: Peer) -> None:
    script = peer.streams["WatchEvents"] = Script([STOPS], [answer(1), STOPS], [answer(2)])
    assert len(take("watch_events", 2, from_beginning=True)) == 2
    assert [(request.from_beginning, request.resume_token) for request in script.firsts] == [
        (True, ""),
        (True, ""),
        (False, "1"),
    ]


def test_a_watch_continues_from_tokens_without_events(take: Take, peer: Peer) -> None:
    begun = events_pb2.WatchEventsResponse(resume_token="now")
    script = peer.streams["WatchEvents"] = Script([begun, STOPS], [answer(1), answer(2)])
    heard: list[str] = []
    take("watch_events", 2, on_token=heard.append)
    assert [request.resume_token for request in script.firsts] == ["", "now"]
    assert heard == ["now", "1"], "a token is reported after the events before it"


def test_errors_that_a_new_connection_cannot_fix_are_raised_at_once(take: Take, peer: Peer) -> None:
    peer.streams["WatchEvents"] = Script([answer(1), because(Reason.PERMISSION_DENIED)])
    with pytest.raises(drillcore.PermissionDenied):
        take("watch_events", 2)
    assert len(peer.seen) == 1


def test_a_running_watch_waits_for_a_free_place_and_a_new_watch_is_refused(take: Take, peer: Peer) -> None:
    full = because(Reason.TOO_MANY_WATCHERS)
    peer.streams["WatchEvents"] = Script([answer(1), STOPS], [full], [answer(2)])
    assert len(take("watch_events", 2)) == 2
    peer.streams["WatchEvents"] = Script([full])
    with pytest.raises(drillcore.ResourceExhausted):
        take("watch_events", 1)


def test_a_watch_gives_up_if_the_server_does_not_come_back(take: Take, peer: Peer) -> None:
    peer.streams["WatchEvents"] = Script([answer(1)], *([STOPS] for _ in range(100)))
    with pytest.raises(drillcore.Unavailable):
        take("watch_events", 2, timeout_s=0.5)
    assert 2 < len(peer.seen) < 10


def test_with_a_single_attempt_a_lost_connection_is_not_made_again(take: Take, peer: Peer) -> None:
    peer.streams["WatchEvents"] = Script([answer(1)])
    with pytest.raises(drillcore.Unavailable, match="ended the stream"):
        take("watch_events", 2, attempts=1)
    assert len(peer.seen) == 1


def test_every_connection_has_a_request_id_of_its_own(take: Take, peer: Peer) -> None:
    peer.streams["WatchEvents"] = Script([STOPS], [answer(1)])
    take("watch_events", 1)
    assert len(set(peer.request_ids())) == 2


def test_a_token_and_the_beginning_exclude_each_other(take: Take, peer: Peer) -> None:
    with pytest.raises(TypeError, match="either"):
        take("watch_events", 1, resume_token="t", from_beginning=True)
    assert peer.seen == []


def test_keepalives_are_sent_while_nothing_happens(take: Take, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drillcore._transport.follow.KEEP_ALIVE_S", 0.01)

    def after_three(requests: Iterator[Any], _context: grpc.ServicerContext) -> Iterator[Any]:
        assert next(requests).resume_token == "t"
        for _ in range(3):
            assert next(requests) == events_pb2.WatchEventsRequest()
        yield answer(1)

    peer.streams["WatchEvents"] = after_three
    assert len(take("watch_events", 1, resume_token="t")) == 1


def test_leaving_a_watch_ends_its_call_and_not_the_client(peer: Peer) -> None:
    ended = threading.Semaphore(0)

    def endless(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        over = threading.Event()
        context.add_callback(lambda: over.set() or ended.release())
        yield answer(1)
        over.wait()

    async def leave() -> bool:
        async with AsyncClient(peer.address) as client:
            async with contextlib.aclosing(client.watch_events()) as events:  # type: ignore[type-var]
                await anext(events)
            return await asyncio.to_thread(ended.acquire, timeout=10)

    peer.streams["WatchEvents"] = endless
    with Client(peer.address) as client:
        for _ in client.watch_events():
            break
        assert ended.acquire(timeout=10)
    assert asyncio.run(leave())


def test_closing_the_client_ends_a_watch(peer: Peer) -> None:
    begun = threading.Event()

    def endless(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        ended = threading.Event()
        context.add_callback(ended.set)
        begun.set()
        ended.wait()
        yield from ()

    peer.streams["WatchEvents"] = endless
    client = Client(peer.address)
    threading.Thread(target=lambda: begun.wait() and client.close()).start()
    with pytest.raises(drillcore.Cancelled):
        next(client.watch_events())


def test_an_awaited_watch_can_be_cancelled(peer: Peer) -> None:
    ended = threading.Event()

    def endless(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        context.add_callback(ended.set)
        yield answer(1)
        ended.wait()

    peer.streams["WatchEvents"] = endless

    async def watch() -> list[int]:
        seen: list[int] = []
        async with AsyncClient(peer.address) as client:

            async def listen() -> None:
                async for event in client.watch_events():
                    seen.append(event.revision)  # noqa: PERF401 - it does not end

            task = asyncio.create_task(listen())
            while not seen:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        return seen

    assert asyncio.run(watch()) == [1]
    assert ended.wait(10)


def test_a_migration_reports_to_its_end_across_a_lost_connection(take: Take, peer: Peer) -> None:
    script = peer.streams["MigrateEmbeddings"] = Script(
        [progress(1), STOPS], [progress(1), progress(2), progress(3, finished=True)]
    )
    found = take("migrate_embeddings", 99, CORPUS)
    assert [(progress.migration.done, progress.finished, progress.revision) for progress in found] == [
        (1, False, 1),
        (1, False, 1),
        (2, False, 2),
        (3, True, 3),
    ]
    assert script.firsts == [embeddings_pb2.MigrateEmbeddingsRequest(corpus_id=str(CORPUS))] * 2


def test_a_refused_migration_says_why(take: Take, peer: Peer) -> None:
    peer.streams["MigrateEmbeddings"] = Script([because(Reason.CORPUS_NOT_FOUND)])
    with pytest.raises(drillcore.NotFound):
        take("migrate_embeddings", 1, CORPUS)
