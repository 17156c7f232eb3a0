"""How documents are sent. Each claim holds for both Client and AsyncClient unless it names one of them."""

from __future__ import annotations

import asyncio
import io
import itertools
import subprocess
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import drillcore
from drillcore import AsyncClient, Client, DocumentOutcome, NewDocument, OutcomeKind, Progress, Reason
from tests.support.servers.in_memory_server import Peer, because, running

CORPUS = uuid.UUID("22222222-2222-2222-2222-222222222222")
PIECE = 256 * 1024

Add = Callable[..., drillcore.AddResult]


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running() as peer:
        yield peer


def sync(address: str, documents: Any, **options: Any) -> drillcore.AddResult:
    with Client(address, timeout_s=5) as client:
        return client.add_documents(CORPUS, documents, **options)


def asynchronous(address: str, documents: Any, **options: Any) -> drillcore.AddResult:
    async def run() -> drillcore.AddResult:
        async with AsyncClient(address, timeout_s=5) as client:
            return await client.add_documents(CORPUS, documents, **options)

    return asyncio.run(run())


@pytest.fixture(params=[sync, asynchronous], ids=["Client", "AsyncClient"])
def add(request: pytest.FixtureRequest, peer: Peer) -> Add:
    return lambda documents, **options: request.param(peer.address, documents, **options)


def stored(peer: Peer) -> dict[str, str]:
    """The texts in the corpus, by source."""
    corpus = peer.hierarchy(str(CORPUS))
    return {source: corpus.texts[document.id] for source, document in corpus.documents.items()}


def test_bytes_paths_and_open_files_arrive_whole_and_in_pieces(add: Add, peer: Peer, tmp_path: Path) -> None:
    text = "0123456789abcdef" * (2 * PIECE // 16) + "end"
    (tmp_path / "path.txt").write_text(text)
    pieces: list[int] = []
    peer.on_part = lambda part, _: pieces.append(len(part.data)) if part.WhichOneof("part") == "data" else None
    with (tmp_path / "path.txt").open("rb") as file:
        result = add(
            [
                NewDocument("bytes.txt", text.encode()),
                NewDocument("path.txt", tmp_path / "path.txt"),
                NewDocument("file.txt", file),
            ]
        )
        assert not file.closed
    assert stored(peer) == {"bytes.txt": text, "path.txt": text, "file.txt": text}
    assert pieces == [PIECE, PIECE, 3] * 3
    assert (result.revision, result.added, result.sections_changed) == (1, 3, 1)


def test_a_large_file_is_not_held_in_memory(peer: Peer, tmp_path: Path) -> None:
    """Measured by the peak of a process that does nothing else."""
    with (tmp_path / "large.txt").open("wb") as file:
        file.truncate(64_000_000)
    program = f"""
import resource, pathlib
from drillcore import Client, NewDocument
with Client({peer.address!r}) as client:
    client.server_info()
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    client.add_documents("{CORPUS}", [NewDocument("large.txt", pathlib.Path("large.txt"))])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert len(stored(peer)["large.txt"]) == 64_000_000
    assert int(done.stdout) < 16_000


def test_every_field_of_a_document_is_sent(add: Add, peer: Peer) -> None:
    headers = []
    peer.on_part = lambda part, _: headers.append(part.header) if part.WhichOneof("part") == "header" else None
    add([NewDocument("a", b"x", media_type="text/html", source_id="s", metadata={"k": "v"})])
    (header,) = headers
    assert (header.name, header.media_type, header.source_id, header.metadata) == ("a", "text/html", "s", {"k": "v"})


def test_each_document_has_an_outcome(add: Add) -> None:
    add([NewDocument("same", b"1"), NewDocument("changed", b"1")])
    result = add(
        [NewDocument("new", b"1"), NewDocument("changed", b"2"), NewDocument("same", b"1"), NewDocument("empty", b"")]
    )
    assert [(outcome.name, outcome.kind) for outcome in result.outcomes] == [
        ("new", OutcomeKind.ADDED),
        ("changed", OutcomeKind.UPDATED),
        ("same", OutcomeKind.UNCHANGED),
        ("empty", OutcomeKind.FAILED),
    ]
    assert (result.added, result.updated, result.unchanged, result.failed) == (1, 1, 1, 1)
    failed = result.outcomes[-1]
    assert (failed.document_id, failed.reason, failed.message) == (None, "EMPTY", "there is nothing in it")
    assert isinstance(result.outcomes[0].document_id, uuid.UUID)


def test_events_are_heard_while_documents_are_still_being_sent(add: Add) -> None:
    heard = threading.Event()
    events: list[object] = []

    def note(event: object) -> None:
        events.append(event)
        heard.set()

    def documents() -> Iterator[NewDocument]:
        yield NewDocument("first", b"1")
        assert heard.wait(30)
        yield NewDocument("second", b"2")

    add(documents(), on_event=note)
    assert events[:2] == [Progress(1, 0), Progress(2, 0)]
    assert [event.name for event in events if isinstance(event, DocumentOutcome)] == ["first", "second"]


def test_an_async_client_takes_async_documents(peer: Peer) -> None:
    async def documents() -> AsyncIterator[NewDocument]:
        for name in "ab":
            await asyncio.sleep(0)
            yield NewDocument(name, name.encode())

    assert asynchronous(peer.address, documents()).added == 2
    assert stored(peer) == {"a": "a", "b": "b"}


def test_a_client_refuses_async_documents_before_any_call(peer: Peer) -> None:
    async def documents() -> AsyncIterator[NewDocument]:
        yield NewDocument("a", b"a")

    with pytest.raises(TypeError, match="use an AsyncClient"):
        sync(peer.address, documents())
    assert peer.seen == []


def test_if_the_documents_fail_their_error_is_raised_and_nothing_is_added(add: Add, peer: Peer) -> None:
    def documents() -> Iterator[NewDocument]:
        yield NewDocument("good", b"1")
        raise OSError("disk on fire")

    with pytest.raises(OSError, match="disk on fire"):
        add(documents())
    assert stored(peer) == {}


def test_if_async_documents_fail_their_error_is_raised_and_nothing_is_added(peer: Peer) -> None:
    async def documents() -> AsyncIterator[NewDocument]:
        yield NewDocument("good", b"1")
        raise OSError("disk on fire")

    with pytest.raises(OSError, match="disk on fire"):
        asynchronous(peer.address, documents())
    assert stored(peer) == {}


def test_a_missing_file_is_reported_and_nothing_is_added(add: Add, peer: Peer, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        add([NewDocument("good", b"1"), NewDocument("bad", tmp_path / "missing")])
    assert stored(peer) == {}


def test_if_the_listener_fails_its_error_is_raised(add: Add) -> None:
    def fail(event: object) -> None:
        raise KeyError("listener")

    with pytest.raises(KeyError, match="listener"):
        add((NewDocument(str(number), b"1") for number in itertools.count()), on_event=fail)


def test_a_server_failure_during_an_upload_is_raised_and_ends_the_sending(add: Add, peer: Peer) -> None:
    received = itertools.count()
    full = because(Reason.STORE_FULL, "no room")
    peer.on_part = lambda _, context: full(context) if next(received) == 10 else None
    with pytest.raises(drillcore.ResourceExhausted) as caught:
        add((NewDocument(str(number), b"1") for number in itertools.count()), request_id="r1")
    assert (caught.value.reason, caught.value.message) == (Reason.STORE_FULL, "no room")
    assert caught.value.request_id == "r1"
    assert stored(peer) == {}


def test_an_upload_is_not_retried_automatically(add: Add, peer: Peer) -> None:
    peer.failures = [because(Reason.SHUTTING_DOWN)]
    with pytest.raises(drillcore.Unavailable):
        add([NewDocument("a", b"1")])
    assert len(peer.seen) == 1


def test_an_upload_repeated_under_its_request_id_is_done_once(add: Add, peer: Peer) -> None:
    first, second = (add([NewDocument("a", b"1")], request_id="r1") for _ in range(2))
    assert first == second
    assert first.added == 1
    assert peer.hierarchy(str(CORPUS)).revision == 1


def test_an_upload_has_no_deadline_unless_given(add: Add, peer: Peer) -> None:
    left: list[float | None] = []
    peer.on_part = lambda _, context: left.append(context.time_remaining())
    add([])
    add([], timeout_s=1000)
    unlimited, limited = left[0], left[-1]
    assert unlimited is None or unlimited > 10**6
    assert limited is not None
    assert 900 < limited < 1100


def test_a_late_upload_raises_deadline_exceeded(add: Add, peer: Peer) -> None:
    released = threading.Event()
    peer.on_part = lambda _part, _context: released.wait(30)
    with pytest.raises(drillcore.DeadlineExceeded):
        add([NewDocument("a", b"1")], timeout_s=0.1)
    released.set()


def test_a_stream_that_ends_without_a_result_is_an_internal_error(add: Add, peer: Peer) -> None:
    peer.results["r1"] = []
    with pytest.raises(drillcore.Internal, match="without a result"):
        add([NewDocument("a", b"1")], request_id="r1")


def test_a_cancelled_task_ends_the_call_even_while_it_waits_for_documents(peer: Peer) -> None:
    ended = threading.Event()
    peer.on_part = lambda _, context: context.add_callback(ended.set)

    async def run() -> None:
        heard = asyncio.Event()

        async def documents() -> AsyncIterator[NewDocument]:
            yield NewDocument("a", b"1")
            await asyncio.Event().wait()

        async with AsyncClient(peer.address) as client:
            upload = asyncio.create_task(client.add_documents(CORPUS, documents(), on_event=lambda _: heard.set()))
            await heard.wait()
            upload.cancel()
            await upload

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    assert ended.wait(30)


def test_text_as_content_is_refused(add: Add) -> None:
    with pytest.raises(TypeError, match="bytes, a Path or a binary file, not str"):
        NewDocument("a", "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        add([NewDocument("a", io.StringIO("text"))])  # type: ignore[arg-type]


def test_the_default_tenant_is_sent(peer: Peer) -> None:
    with Client(peer.address, tenant_id=CORPUS) as client:
        client.add_documents(CORPUS, [])
        client.add_documents(CORPUS, [], tenant_id=uuid.UUID(int=1))
    assert [target.tenant_id for target in peer.requests] == [str(CORPUS), str(uuid.UUID(int=1))]
