"""Calls whose answers are the pieces of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from google.protobuf.message import Message

from drillcore._upload import Listener


class WritableFile(Protocol):
    """What takes bytes, such as a file that was opened for writing."""

    def write(self, data: bytes, /) -> object: ...


class Download:
    """Writes each piece as it comes. The result is how many bytes it was."""

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


def one_request(request: Message, _items: Iterable[Any]) -> Iterator[Message]:
    """All that such a call sends."""
    yield request
