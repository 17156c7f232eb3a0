"""Calls that stream: what they send, piece by piece, and what they make of the answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from drillcore import _convert_documents
from drillcore._document_results import AddResult, BinaryFile, DocumentOutcome, NewDocument, OnEvent, UpdateResult
from drillcore.errors import Internal
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import documents_pb2
from drillcore_proto.v1.documents_pb2 import AddDocumentsRequest, UpdateDocumentRequest

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

PIECE_BYTES: Final = 256 * 1024
"""Sent at once, and about what is held of a file at any time."""
Listener = Callable[[Any], object]


class Receipt(Protocol[R_co]):
    """What the answers to a call say, taken one after the other."""

    def take(self, answer: bytes) -> None: ...

    def result(self, request_id: str) -> R_co:
        """The result, after the last answer. Raises Internal if the server ended without one."""


@dataclass(frozen=True, slots=True)
class Upload(Generic[R]):
    """One call that streams, ready to be made."""

    path: str
    request: Message
    """The target: what is sent first."""
    items: Iterable[Any] | AsyncIterable[Any]
    parts: Callable[[Any, Iterable[Any]], Iterator[Message]]
    """What is sent, of the target and the items. The last request says that it is: without it nothing happens."""
    receipt: Callable[[Listener | None], Receipt[R]]
    on_event: Listener | None
    request_id: str | None
    timeout_s: float | None


class Exchange(Generic[R]):
    """An upload under way: items go out in a thread that gRPC makes for them, answers are taken in the caller's."""

    def __init__(self, upload: Upload[R], items: Iterable[Any], on_event: Listener | None) -> None:
        self._upload = upload
        self._items = items
        self._receipt = upload.receipt(on_event)
        self._call: Future[Any] = Future()
        self._failure: Exception | None = None

    def run(self, method: Callable[..., Any], arguments: Mapping[str, Any]) -> Receipt[R]:
        """What the answers say. Raises grpc.RpcError, or what the items or the listener raised."""
        call = method(self._requests(), **arguments)
        self._call.set_result(call)
        try:
            for answer in call:
                self._receipt.take(answer)
        except grpc.RpcError:
            if self._failure is None:
                raise
        finally:
            call.cancel()  # does nothing to a call that has ended by itself
        if self._failure is not None:
            raise self._failure
        return self._receipt

    def cancel(self) -> None:
        """Ends the call, as soon as there is one. From any thread."""
        self._call.add_done_callback(lambda call: call.result().cancel())

    def _requests(self) -> Iterator[Message]:
        """What is sent. After a failure the requests just stop, and so the last one does not come."""
        try:
            yield from self._upload.parts(self._upload.request, self._items)
        except Exception as error:
            self._failure = error


class AddReceipt:
    """What the answers to added documents say."""

    def __init__(self, on_event: OnEvent | None) -> None:
        self._on_event = on_event or (lambda _event: None)
        self._outcomes: list[DocumentOutcome] = []
        self._done: documents_pb2.AddDocumentsDone | None = None

    def take(self, answer: bytes) -> None:
        response = documents_pb2.AddDocumentsResponse.FromString(answer)
        match response.WhichOneof("event"):
            case "outcome":
                outcome = _convert_documents.outcome(response.outcome)
                self._outcomes.append(outcome)
                self._on_event(outcome)
            case "progress":
                self._on_event(_convert_documents.progress(response.progress))
            case "done":
                self._done = response.done

    def result(self, request_id: str) -> AddResult:
        if self._done is None:
            raise unanswered(request_id)
        return _convert_documents.add_result(self._done, self._outcomes)


class UpdateReceipt:
    """What the answers to a document's new content say."""

    def __init__(self, on_event: OnEvent | None) -> None:
        self._on_event = on_event or (lambda _event: None)
        self._done: documents_pb2.UpdateDocumentDone | None = None

    def take(self, answer: bytes) -> None:
        response = documents_pb2.UpdateDocumentResponse.FromString(answer)
        match response.WhichOneof("event"):
            case "progress":
                self._on_event(_convert_documents.progress(response.progress))
            case "done":
                self._done = response.done

    def result(self, request_id: str) -> UpdateResult:
        if self._done is None:
            raise unanswered(request_id)
        return _convert_documents.update_result(self._done)


def unanswered(request_id: str) -> Internal:
    """The server ended a call without its last answer."""
    message = "the server ended the call without saying what it did; repeat it under the same request id"
    code = grpc.StatusCode.INTERNAL
    return Internal(message, reason_name=Reason.INTERNAL.name, code=code, request_id=request_id)


def document_requests(
    target: documents_pb2.AddDocumentsTarget, documents: Iterable[NewDocument]
) -> Iterator[AddDocumentsRequest]:
    yield AddDocumentsRequest(target=target)
    sent = 0
    for document in documents:
        yield from _parts(document)
        sent += 1
    yield AddDocumentsRequest(end=documents_pb2.AddDocumentsEnd(documents=sent))


def update_requests(
    header: documents_pb2.UpdateDocumentHeader,
    target: documents_pb2.UpdateDocumentTarget,
    contents: Iterable[bytes | Path | BinaryFile],
) -> Iterator[UpdateDocumentRequest]:
    """Of one content."""
    yield UpdateDocumentRequest(target=target)
    yield UpdateDocumentRequest(header=header)
    for content in contents:
        for piece in pieces(content):
            yield UpdateDocumentRequest(data=piece)
    yield UpdateDocumentRequest(end=documents_pb2.UpdateDocumentEnd())


class Bridge:
    """Lets the threads of an upload use what belongs to an event loop: async items and the listener."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._awaited: Future[Any] | None = None

    def items(self, items: AsyncIterable[T]) -> Iterator[T]:
        iterator = aiter(items)
        while (item := self._wait(_next(iterator))) is not None:
            yield item

    def listener(self, on_event: Listener) -> Listener:
        async def tell(event: object) -> None:
            on_event(event)

        return lambda event: asyncio.run_coroutine_threadsafe(tell(event), self._loop).result()

    def close(self) -> None:
        """Nobody waits for further items."""
        if self._awaited is not None:
            self._awaited.cancel()

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        self._awaited = awaited = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return awaited.result()


async def _next(iterator: AsyncIterator[T]) -> T | None:
    return await anext(iterator, None)


def _parts(document: NewDocument) -> Iterator[AddDocumentsRequest]:
    header = documents_pb2.DocumentHeader(
        name=document.name,
        media_type=document.media_type,
        source_id=document.source_id,
        metadata=document.metadata,
    )
    yield AddDocumentsRequest(header=header)
    for piece in pieces(document.content):
        yield AddDocumentsRequest(data=piece)


def pieces(content: bytes | Path | BinaryFile) -> Iterator[bytes]:
    if isinstance(content, bytes):
        for start in range(0, len(content), PIECE_BYTES):
            yield content[start : start + PIECE_BYTES]
        return
    with _opened(content) as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def _opened(content: Path | BinaryFile) -> AbstractContextManager[BinaryFile]:
    return content.open("rb") if isinstance(content, Path) else contextlib.nullcontext(content)
