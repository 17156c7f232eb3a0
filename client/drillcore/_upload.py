"""The calls that send documents: what they send, piece by piece, and what they make of the answers."""

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
from drillcore._document_results import (
    AddEvent,
    AddResult,
    BinaryFile,
    DocumentOutcome,
    NewDocument,
    OnEvent,
    UpdateResult,
)
from drillcore.errors import Internal
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import documents_pb2
from drillcore_proto.v1.documents_pb2 import AddDocumentsRequest, UpdateDocumentRequest

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

PIECE_BYTES: Final = 256 * 1024
"""Sent at once, and about what is held of a file at any time."""


@dataclass(frozen=True, slots=True)
class Upload(Generic[T]):
    """One call that sends documents, ready to be made."""

    path: str
    request: Message
    """Names what the call is about; the default tenant is filled in before it is sent."""
    documents: Iterable[NewDocument] | AsyncIterable[NewDocument]
    messages: Callable[[Iterable[NewDocument]], Iterator[Message]]
    """What is sent. The last message says that it is: without it the server changes nothing, so after a failure they
    just stop."""
    receipt: Callable[[OnEvent], Receipt[T]]
    on_event: OnEvent | None
    request_id: str | None
    timeout_s: float | None


class Exchange(Generic[T]):
    """An upload under way: documents go out in a thread that gRPC makes for them, answers are taken in the caller's."""

    def __init__(self, upload: Upload[T], documents: Iterable[NewDocument], on_event: OnEvent | None) -> None:
        self._messages = upload.messages
        self._documents = documents
        self._receipt = upload.receipt(on_event or (lambda _event: None))
        self._call: Future[Any] = Future()
        self._failure: Exception | None = None

    def run(self, method: Callable[..., Any], arguments: Mapping[str, Any]) -> Receipt[T]:
        """What the answers say. Raises grpc.RpcError, or what the documents or the listener raised."""
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
        try:
            yield from self._messages(self._documents)
        except Exception as error:
            self._failure = error


class Receipt(Protocol[T_co]):
    """What the answers to an upload say."""

    def take(self, answer: bytes) -> None:
        """The next answer."""

    def result(self, request_id: str) -> T_co:
        """The result, after the last answer. Raises Internal if the server ended without one."""


class AddReceipt:
    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
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
            raise _unanswered(request_id)
        return _convert_documents.add_result(self._done, self._outcomes)


class UpdateReceipt:
    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
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
            raise _unanswered(request_id)
        return _convert_documents.update_result(self._done)


def _unanswered(request_id: str) -> Internal:
    message = "the server ended the call without saying what it did; repeat it under the same request id"
    return Internal(message, reason_name=Reason.INTERNAL.name, code=grpc.StatusCode.INTERNAL, request_id=request_id)


def added(target: documents_pb2.AddDocumentsTarget, documents: Iterable[NewDocument]) -> Iterator[Message]:
    """The messages that add documents."""
    sent = 0
    yield AddDocumentsRequest(target=target)
    for document in documents:
        header = documents_pb2.DocumentHeader(
            name=document.name,
            media_type=document.media_type,
            source_id=document.source_id,
            metadata=document.metadata,
        )
        yield AddDocumentsRequest(header=header)
        for piece in _pieces(document.content):
            yield AddDocumentsRequest(data=piece)
        sent += 1
    yield AddDocumentsRequest(end=documents_pb2.AddDocumentsEnd(documents=sent))


def updated(
    target: documents_pb2.UpdateDocumentTarget,
    header: documents_pb2.UpdateDocumentHeader,
    documents: Iterable[NewDocument],
) -> Iterator[Message]:
    """The messages that give a document new content."""
    yield UpdateDocumentRequest(target=target)
    yield UpdateDocumentRequest(header=header)
    for document in documents:
        for piece in _pieces(document.content):
            yield UpdateDocumentRequest(data=piece)
    yield UpdateDocumentRequest(end=documents_pb2.UpdateDocumentEnd())


class Bridge:
    """Lets the threads of an upload use what belongs to an event loop: async documents and the listener."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._awaited: Future[Any] | None = None

    def documents(self, documents: AsyncIterable[NewDocument]) -> Iterator[NewDocument]:
        iterator = aiter(documents)
        while (document := self._wait(_next_document(iterator))) is not None:
            yield document

    def listener(self, on_event: OnEvent) -> OnEvent:
        async def tell(event: AddEvent) -> None:
            on_event(event)

        return lambda event: asyncio.run_coroutine_threadsafe(tell(event), self._loop).result()

    def close(self) -> None:
        """Nobody waits for further documents."""
        if self._awaited is not None:
            self._awaited.cancel()

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        self._awaited = awaited = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return awaited.result()


async def _next_document(iterator: AsyncIterator[NewDocument]) -> NewDocument | None:
    return await anext(iterator, None)


def _pieces(content: bytes | Path | BinaryFile) -> Iterator[bytes]:
    if isinstance(content, bytes):
        for start in range(0, len(content), PIECE_BYTES):
            yield content[start : start + PIECE_BYTES]
        return
    with _opened(content) as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def _opened(content: Path | BinaryFile) -> AbstractContextManager[BinaryFile]:
    return content.open("rb") if isinstance(content, Path) else contextlib.nullcontext(content)
