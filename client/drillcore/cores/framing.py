"""Finds the records in a stream of bytes.

    pieces -> Window -> Record   a record other than a blob, whole, as it is in the file
                     -> Blob     a library document's content, in pieces

Nothing is decoded here but the heads of values: where a record ends is found by msgpack's own `skip`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from drillcore.cores.blobs import Blob
from drillcore.cores.failures import InvalidCore, WrongShape
from drillcore.cores.heads import ARRAY, TEXT, Head, Short, head_at
from drillcore.cores.limits import TAG_BYTES_MAX
from drillcore.cores.scout import Scout
from drillcore.cores.tags import LIBRARY_BLOB
from drillcore.cores.window import Window


@dataclass(frozen=True, slots=True)
class Record:
    """A record other than a blob."""

    number: int
    """In the file, from 1."""
    offset: int
    """Where in the file it begins."""
    tag: str
    data: bytes
    """The whole record, as it is in the file."""
    payload_at: int
    """Where in `data` what follows the tag begins."""


def read_core(pieces: Iterable[bytes]) -> Iterator[Record | Blob]:
    """The records of a core file, in order. Raises `InvalidCore` where it is none, or ends too early."""
    window = Window(pieces)
    scout, number = Scout(window), 0
    while not window.ended():
        number, begin = number + 1, window.offset
        with naming(number, begin):
            tag, payload_at = _tag(window)
            if tag != LIBRARY_BLOB:
                end = scout.end_of_all()
                record = Record(number, begin, tag, window.take(end - begin), payload_at)
            else:
                at_hand = scout.end() is not None
                window.at += payload_at
        if tag != LIBRARY_BLOB:
            yield record
            continue
        yield from _read_through(Blob(number, begin, window))
        if not at_hand:
            scout = Scout(window)


def _read_through(blob: Blob) -> Iterator[Blob]:
    yield blob
    for _ in blob.pieces():
        pass


@contextmanager
def naming(number: int, offset: int) -> Iterator[None]:
    """Says of what is found wrong meanwhile at which record it is."""
    try:
        yield
    except WrongShape as error:
        raise InvalidCore(number, offset, str(error)) from None


def _tag(window: Window) -> tuple[str, int]:
    """Of the record that comes next, and how far from its beginning the rest of it is."""
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
