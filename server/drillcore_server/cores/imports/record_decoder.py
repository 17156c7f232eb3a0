"""Decodes the records of a full core, from any place in the file. Refuses bytes that no server would have written."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

import msgspec
from msgpack import Timestamp

from drillcore_fdb.errors import EngineError
from drillcore_formats.cores.format import InvalidCore, WrongShape
from drillcore_formats.cores.framing import Blob, Record, read_core
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed_file import SealedFile

T = TypeVar("T")
ID_BYTES: Final = 16
NUMBER_MAX: Final = (1 << 53) - 1
"""Canonical JSON cannot hold larger numbers."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def decoded(kind: RecordKind[T], stored: object) -> T:
    """Decodes a stored record. Raises `WrongShape` unless encoding it again gives the same bytes."""
    if not isinstance(stored, bytes):
        raise WrongShape(f"a {kind.name} is not bytes")
    try:
        found = kind.decode(stored)
        if kind.encode(found) == stored:
            check_values(msgspec.msgpack.decode(stored))
            return found
    except WrongShape:
        raise
    except (EngineError, ValueError, OverflowError, RecursionError):
        pass
    raise WrongShape(f"a {kind.name} is not encoded as a server does")


def check_values(value: object) -> None:
    """Raises `WrongShape` for numbers and times that no server writes and that this server could not handle."""
    match value:
        case list():
            for item in value:
                check_values(item)
        case float():
            check(math.isfinite(value), "a number is not finite")
        case int():
            check(abs(value) <= NUMBER_MAX, "a number is too large")
        case datetime():
            check(value >= _EPOCH, "a time is before 1970")


def fields(kind: str, given: list[Any], count: int) -> list[Any]:
    if len(given) != count:
        raise WrongShape(f"a {kind} has {len(given)} fields instead of {count}")
    return given


def uuid(stored: object, what: str) -> UUID:
    if not isinstance(stored, bytes) or len(stored) != ID_BYTES:
        raise WrongShape(f"the id of {what} is not of {ID_BYTES} bytes")
    return UUID(bytes=stored)


def text(stored: object, what: str) -> str:
    if not isinstance(stored, str):
        raise WrongShape(f"{what} is not a text")
    return stored


def whole(stored: object, what: str) -> int:
    if not isinstance(stored, int) or isinstance(stored, bool) or stored < 0:
        raise WrongShape(f"{what} is not a whole number")
    return stored


def moment(stored: object, what: str) -> datetime:
    """Reads a msgpack timestamp of whole microseconds. Raises `WrongShape`."""
    try:
        if isinstance(stored, Timestamp) and stored.nanoseconds % 1_000 == 0:
            found: datetime = stored.to_datetime()
            check_values(found)
            return found
    except WrongShape:
        raise
    except (OverflowError, ValueError):
        pass
    raise WrongShape(f"{what} is not a time")


def check(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise WrongShape(otherwise)


class Place(NamedTuple):
    """The place of a record in a core file."""

    number: int
    """From 1."""
    offset: int
    tag: str = ""


def records_from(file: SealedFile, place: Place) -> Iterator[Record | Blob]:
    """Yields the records from a place on. Raises `InvalidCore`."""
    before = place.number - 1
    try:
        for part in read_core(file.pieces_from(place.offset)):
            number, offset = part.number + before, part.offset + place.offset
            if isinstance(part, Record):
                yield replace(part, number=number, offset=offset)
            else:
                part.number, part.offset = number, offset
                yield part
    except InvalidCore as error:
        if isinstance(error, _InvalidCoreInFile):
            raise
        raise _InvalidCoreInFile(error.record + before, error.offset_bytes + place.offset, error.why) from None


class _InvalidCoreInFile(InvalidCore):
    """An error whose place already counts from the beginning of the file."""
