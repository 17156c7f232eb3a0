"""Finds the records in a core file.

    pieces -> Window -> Record   a whole record other than a blob, as it is in the file
                     -> Blob     the content of a library document, in pieces: it may be larger than memory

Only the heads of values are decoded here.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from drillcore_formats.cores.format import (
    ID_BYTES_MAX,
    LIBRARY_BLOB,
    PAIRS_MAX,
    PIECE_BYTES,
    TAG_BYTES_MAX,
    InvalidCore,
    WrongShape,
)
from drillcore_formats.cores.msgpack_stream import ARRAY, BYTES, MAP, TEXT, EndFinder, Head, Short, Window, head_at

_KEY_BYTES_MAX: Final = 255
_NOT_BASE64: Final = "its content is not base64"


@dataclass(frozen=True, slots=True)
class Record:
    """A record other than a blob."""

    number: int
    """The record's number in the file, from 1."""
    offset: int
    """Where the record begins in the file."""
    tag: str
    data: bytes
    """The whole record, as it is in the file."""
    payload_at: int
    """Where the payload begins in `data`, after the tag."""


class Blob:
    """A record with the content of a library document."""

    __slots__ = ("_reader", "id", "number", "offset")

    def __init__(self, number: int, offset: int, window: Window) -> None:
        self.number = number
        """The record's number in the file, from 1."""
        self.offset = offset
        """Where the record begins in the file."""
        self.id: str | None = None
        """If the file has the id after the content, it is None until `pieces` has ended."""
        self._reader = self._pieces(window)
        next(self._reader)

    @property
    def tag(self) -> str:
        return LIBRARY_BLOB

    def pieces(self) -> Iterator[bytes]:
        """The decoded content. Read it once, before you ask for the next record. Raises `InvalidCore`."""
        return self._reader

    def _pieces(self, window: Window) -> Iterator[bytes]:
        """Yields an empty piece first, as soon as the content or the end is reached."""
        try:
            yield from self._read(window)
        except WrongShape as error:
            raise InvalidCore(self.number, self.offset, str(error)) from None

    def _read(self, window: Window) -> Iterator[bytes]:
        found = False
        for key in _keys(window):
            if key == "i" and self.id is None:
                self.id = _text(window, ID_BYTES_MAX, "its id")
            elif key == "d" and not found:
                found = True
                yield b""
                yield from _content(window)
            elif key in {"i", "d"}:
                raise WrongShape(f"it has the key {key} twice")
            else:
                window.move_to(EndFinder(window).read_to_end())
        if self.id is None:
            raise WrongShape("it has no id")
        if not found:
            yield b""


def read_core(pieces: Iterable[bytes]) -> Iterator[Record | Blob]:
    """The records of a core file, in order. Raises `InvalidCore` if the file is not a core, or ends too early."""
    window = Window(pieces)
    finder, number = EndFinder(window), 0
    while not window.ended():
        number, begin = number + 1, window.offset
        with located(number, begin):
            tag, payload_at = _tag(window)
            if tag != LIBRARY_BLOB:
                end = finder.read_to_end()
                record = Record(number, begin, tag, window.take(end - begin), payload_at)
            else:
                at_hand = finder.end() is not None
                window.at += payload_at
        if tag != LIBRARY_BLOB:
            yield record
            continue
        yield from _read_through(Blob(number, begin, window))
        if not at_hand:
            finder = EndFinder(window)


@contextmanager
def located(number: int, offset: int) -> Iterator[None]:
    """Turns a `WrongShape` of the block into an `InvalidCore` that names this record."""
    try:
        yield
    except WrongShape as error:
        raise InvalidCore(number, offset, str(error)) from None


def file_pieces(file: Path | str | IO[bytes]) -> Iterator[bytes]:
    """The whole file at a path, or the rest of an open file."""
    if isinstance(file, Path | str):
        with Path(file).open("rb") as opened:
            yield from file_pieces(opened)
        return
    while piece := file.read(PIECE_BYTES):
        yield piece


def blob_content(blob: Blob, bytes_max: int) -> bytes:
    """The whole content of a blob. Raises `WrongShape` if it has more than `bytes_max` bytes."""
    content = bytearray()
    for piece in blob.pieces():
        content += piece
        if len(content) > bytes_max:
            raise WrongShape(f"its content has more than {bytes_max:,} bytes")
    return bytes(content)


def _read_through(blob: Blob) -> Iterator[Blob]:
    yield blob
    for _ in blob.pieces():
        pass


def _tag(window: Window) -> tuple[str, int]:
    """The tag of the next record, and how far behind the record's beginning the payload is."""
    while True:
        try:
            return _tag_at(window.data, window.at)
        except Short:
            window.need_more()


def _tag_at(data: bytearray, at: int) -> tuple[str, int]:
    array = head_at(data, at)
    if array.kind != ARRAY or array.length != 2:
        raise WrongShape("it is not an array of a tag and its payload")
    text = _tag_head(data, array.end)
    end = text.end + text.length
    if end > len(data):
        raise Short
    try:
        return data[text.end : end].decode(), end - at
    except UnicodeDecodeError:
        raise WrongShape("its tag is not UTF-8") from None


def _tag_head(data: bytearray, at: int) -> Head:
    text = head_at(data, at)
    if text.kind != TEXT or text.length > TAG_BYTES_MAX:
        raise WrongShape(f"its tag is not a text of up to {TAG_BYTES_MAX} bytes")
    return text


def _keys(window: Window) -> Iterator[str]:
    """The keys of the next map. After each key, the window is at its value."""
    head = window.head()
    if head.kind != MAP or head.length > PAIRS_MAX:
        raise WrongShape("its payload is not a map")
    for _ in range(head.length):
        yield _text(window, _KEY_BYTES_MAX, "a key")


def _text(window: Window, bytes_max: int, what: str) -> str:
    head = window.head()
    if head.kind != TEXT or head.length > bytes_max:
        raise WrongShape(f"{what} is not a text of up to {bytes_max:,} bytes")
    try:
        return window.take(head.length).decode()
    except UnicodeDecodeError:
        raise WrongShape(f"{what} is not UTF-8") from None


def _content(window: Window) -> Iterator[bytes]:
    head = window.head()
    if head.kind not in {TEXT, BYTES}:
        raise WrongShape("its content is not a text")
    stream, left = _Base64Stream(), head.length
    while left:
        piece = window.some(min(left, PIECE_BYTES))
        left -= len(piece)
        if decoded := stream.decode(piece):
            yield decoded
    stream.end()


class _Base64Stream:
    """Decodes base64 in pieces: the standard alphabet, padded, without line ends."""

    __slots__ = ("_ended", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._ended = False

    def decode(self, piece: bytes) -> bytes:
        """What can be decoded so far. Raises `WrongShape` if it is not base64."""
        data = self._rest + piece if self._rest else piece
        whole = len(data) & ~3
        self._rest = data[whole:]
        if not whole:
            return b""
        if self._ended:
            raise WrongShape(_NOT_BASE64)
        self._ended = data[whole - 1 : whole] == b"="
        try:
            return binascii.a2b_base64(data[:whole], strict_mode=True)
        except binascii.Error:
            raise WrongShape(_NOT_BASE64) from None

    def end(self) -> None:
        """Raises `WrongShape` if the text ended in the middle of a group."""
        if self._rest:
            raise WrongShape(_NOT_BASE64)
