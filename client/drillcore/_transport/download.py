"""Calls whose answers are the pieces of a file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from drillcore._transport.upload import Listener, Upload
from drillcore.errors import Internal
from drillcore_proto.reasons import Reason

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class WritableFile(Protocol):
    """Anything that takes bytes, such as a binary file that is open for writing."""

    def write(self, data: bytes, /) -> object: ...


class Download:
    """Writes each piece as it arrives. The result is the number of bytes."""

    def __init__(self, file: WritableFile, piece: Callable[[bytes], bytes], on_bytes: Listener | None) -> None:
        self._file = file
        self._piece = piece
        self._on_bytes = on_bytes
        self._size_bytes = 0

    def take(self, answer: bytes) -> None:
        data = self._piece(answer)
        self._file.write(data)
        self._size_bytes += len(data)
        if self._on_bytes is not None:
            self._on_bytes(self._size_bytes)

    def result(self, _request_id: str) -> int:
        return self._size_bytes


@dataclass(frozen=True, slots=True)
class Whole(Generic[T_co]):
    """What the last answer says about the whole file."""

    size_bytes: int
    sha256: bytes
    result: T_co


class CheckedDownload(Generic[T]):
    """Writes each piece as it arrives, and checks at the end that the file is complete."""

    def __init__(
        self, file: WritableFile, part: Callable[[bytes], bytes | Whole[T]], on_bytes: Listener | None
    ) -> None:
        self._file = file
        self._part = part
        self._on_bytes = on_bytes
        self._hash = hashlib.sha256()
        self._size_bytes = 0
        self._whole: Whole[T] | None = None

    def take(self, answer: bytes) -> None:
        part = self._part(answer)
        if isinstance(part, Whole):
            self._whole = part
            return
        self._file.write(part)
        self._hash.update(part)
        self._size_bytes += len(part)
        if self._on_bytes is not None:
            self._on_bytes(self._size_bytes)

    def result(self, request_id: str) -> T:
        whole = self._whole
        if whole is None or (whole.size_bytes, whole.sha256) != (self._size_bytes, self._hash.digest()):
            raise not_whole(request_id)
        return whole.result


def download(
    path: str,
    request: Message,
    file: WritableFile,
    part: Callable[[bytes], bytes | Whole[T]],
    on_bytes: Callable[[int], object] | None,
    request_id: str | None,
    timeout_s: float | None,
) -> Upload[T]:
    """The call that downloads a file which the server made and recorded. `part` decodes an answer."""

    def receipt(listener: Listener | None) -> CheckedDownload[T]:
        return CheckedDownload(file, part, listener)

    return Upload(path, request, (), one_request, receipt, on_bytes, request_id, timeout_s)


def not_whole(request_id: str) -> Internal:
    message = "the file is incomplete; make the export again, with a new request id"
    code = grpc.StatusCode.INTERNAL
    return Internal(message, reason_name=Reason.INTERNAL.name, code=code, request_id=request_id)


def one_request(request: Message, _items: Iterable[Any]) -> Iterator[Message]:
    """The only request that a download sends."""
    yield request
