"""Calls that send a stream of requests and read a stream of answers."""

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

from drillcore.errors import Internal
from drillcore_proto.reasons import Reason


class BinaryFile(Protocol):
    """An open file, or anything that reads like one."""

    def read(self, size: int, /) -> bytes: ...


T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
PIECE_BYTES: Final = 256 * 1024
"""The size of one piece of a file. About this much of a file is in memory at any time."""
Listener = Callable[[Any], object]


class Receipt(Protocol[R_co]):
    """Collects the answers to a call."""

    def take(self, answer: bytes) -> None: ...

    def result(self, request_id: str) -> R_co:
        """The result, after the last answer. Raises Internal if the server did not send one."""


@dataclass(frozen=True, slots=True)
class Upload(Generic[R]):
    """One streaming call, ready to be made."""

    path: str
    request: Message
    """The target of the call, which is sent first."""
    items: Iterable[Any] | AsyncIterable[Any]
    parts: Callable[[Any, Iterable[Any]], Iterator[Message]]
    """Makes the requests from the target and the items. The last one marks the end: without it nothing happens."""
    receipt: Callable[[Listener | None], Receipt[R]]
    on_event: Listener | None
    request_id: str | None
    timeout_s: float | None


class Exchange(Generic[R]):
    """A running upload. A thread of gRPC sends the items; the caller's thread reads the answers."""

    def __init__(self, upload: Upload[R], items: Iterable[Any], on_event: Listener | None) -> None:
        self._upload = upload
        self._items = items
        self._receipt = upload.receipt(on_event)
        self._call: Future[Any] = Future()
        self._failure: Exception | None = None

    def run(self, method: Callable[..., Any], arguments: Mapping[str, Any]) -> Receipt[R]:
        """The collected answers. Raises grpc.RpcError, or whatever the items or the listener raised."""
        call = method(self._requests(), **arguments)
        self._call.set_result(call)
        try:
            for answer in call:
                self._receipt.take(answer)
        except grpc.RpcError:
            if self._failure is None:
                raise
        finally:
            call.cancel()  # has no effect on a call that has ended
        if self._failure is not None:
            raise self._failure
        return self._receipt

    def cancel(self) -> None:
        """Ends the call as soon as there is one. Any thread may call this."""
        self._call.add_done_callback(lambda call: call.result().cancel())

    def _requests(self) -> Iterator[Message]:
        """The requests to send. After a failure they stop, so that the server never gets the last one."""
        try:
            yield from self._upload.parts(self._upload.request, self._items)
        except Exception as error:
            self._failure = error


def unanswered(request_id: str) -> Internal:
    """The error for a call that ended without its last answer."""
    message = "the server ended the call without a result; repeat it under the same request id"
    code = grpc.StatusCode.INTERNAL
    return Internal(message, reason_name=Reason.INTERNAL.name, code=code, request_id=request_id)


class Bridge:
    """Lets the threads of an upload use async items and a listener that belong to an event loop."""

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
        """Stops waiting for further items."""
        if self._awaited is not None:
            self._awaited.cancel()

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        self._awaited = awaited = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return awaited.result()


async def _next(iterator: AsyncIterator[T]) -> T | None:
    return await anext(iterator, None)


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
