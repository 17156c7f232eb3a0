"""Records of a full core as objects. Whatever is not exactly what a server would have written is refused."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from drillcore.cores import WrongShape
from drillcore_fdb.errors import EngineError
from drillcore_server.store.records import RecordKind

T = TypeVar("T")
ID_BYTES = 16


def decoded(kind: RecordKind[T], stored: object) -> T:
    """Raises `WrongShape`."""
    if not isinstance(stored, bytes):
        raise WrongShape(f"a {kind.name} is not given as bytes")
    try:
        found = kind.decode(stored)
        if kind.encode(found) == stored:
            return found
    except (EngineError, ValueError, OverflowError, RecursionError):
        pass
    raise WrongShape(f"a {kind.name} is not written as it should be")


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


def check(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise WrongShape(otherwise)


def check_time(*times: datetime | None) -> None:
    """Times of a core are moments, not what a clock showed somewhere."""
    check(all(one is None or one.tzinfo is not None for one in times), "a time has no zone")
