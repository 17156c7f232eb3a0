"""Records of a full core as objects. Whatever is not exactly what a server would have written is refused."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec
from msgpack import Timestamp

from drillcore.cores.failures import WrongShape
from drillcore_fdb.errors import EngineError
from drillcore_server.store.records import RecordKind

T = TypeVar("T")
ID_BYTES: Final = 16
NUMBER_MAX: Final = (1 << 53) - 1
"""Larger ones have no place in canonical JSON."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def decoded(kind: RecordKind[T], stored: object) -> T:
    """Raises `WrongShape`."""
    if not isinstance(stored, bytes):
        raise WrongShape(f"a {kind.name} is not given as bytes")
    try:
        found = kind.decode(stored)
        if kind.encode(found) == stored:
            check_values(msgspec.msgpack.decode(stored))
            return found
    except WrongShape:
        raise
    except (EngineError, ValueError, OverflowError, RecursionError):
        pass
    raise WrongShape(f"a {kind.name} is not written as it should be")


def check_values(value: object) -> None:
    """Raises `WrongShape` for numbers and times in an encoded record that no server writes, and that some code of ours
    would stumble over."""
    match value:
        case list():
            for one in value:
                check_values(one)
        case float():
            check(math.isfinite(value), "a number is not finite")
        case int():
            check(abs(value) <= NUMBER_MAX, "a number is too large")
        case datetime():
            check(value >= _EPOCH, "a time is before there were any")


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
    """Of a msgpack timestamp, which has nanoseconds; ours have none."""
    try:
        if isinstance(stored, Timestamp) and stored.nanoseconds % 1_000 == 0:
            found: datetime = stored.to_datetime()
            check_values(found)
            return found
    except WrongShape:
        raise
    except (OverflowError, ValueError):
        pass
    raise WrongShape(f"{what} is no moment")


def check(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise WrongShape(otherwise)
