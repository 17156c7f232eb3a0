"""A call before it is made: what `Client` and `AsyncClient` each carry out in their way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from google.protobuf.message import Message

from drillcore._results import Page

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Id = UUID | str


@dataclass(frozen=True, slots=True)
class Call(Generic[T_co]):
    """One call, ready to be made. `decode` reads the bytes of the answer."""

    path: str
    request: Message
    decode: Callable[[bytes], T_co]
    request_id: str | None
    timeout_s: float | None


Pages = Callable[[str], Call[Page[T]]]
"""The call for the page that a page token names; "" names the first."""


def id_text(key: Id | None) -> str:
    return "" if key is None else str(key)
