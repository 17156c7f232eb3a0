"""A call as data: `Client` and `AsyncClient` each carry it out in their own way."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID

from google.protobuf.message import Message

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Id = UUID | str


@dataclass(frozen=True, slots=True)
class Call(Generic[T_co]):
    """One call, ready to be made."""

    path: str
    request: Message
    decode: Callable[[bytes], T_co]
    """Turns the bytes of the answer into the result."""
    request_id: str | None
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a list. `next_page_token` asks for the next page; it is empty on the last page."""

    items: tuple[T, ...]
    next_page_token: str


Pages = Callable[[str], Call[Page[T]]]
"""Makes the call for the page that a page token names. An empty token names the first page."""


def all_pages(build: Callable[..., Call[Page[T]]], *args: Any, **kwargs: Any) -> Pages[T]:
    """The pages of a list, made from the function that builds the call for one page."""
    first_token, request_id = kwargs.pop("page_token", ""), kwargs.pop("request_id", None)
    numbers = itertools.count()

    def page(token: str) -> Call[Page[T]]:
        name = None if request_id is None else f"{request_id}.{next(numbers)}"
        return build(*args, **kwargs, page_token=token or first_token, request_id=name)

    return page


def id_text(key: Id | None) -> str:
    return "" if key is None else str(key)


def no_result(_answer: bytes) -> None:
    """Decodes the answer to a deletion, which has no content."""
