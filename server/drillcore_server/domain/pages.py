"""Pages of a listing, and the tokens that lead from one to the next."""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import BadInput


class HasId(Protocol):
    @property
    def id(self) -> UUID: ...


T = TypeVar("T", bound=HasId)

PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: list[T]
    next_token: str


def page_size(asked: int) -> int:
    return min(asked or PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)


def make_page(listing: str, found: list[T], wanted: int) -> Page[T]:
    """A page of up to `wanted` of the items found, with a token if there are more.

    `listing` names the listing with everything that selects its items.
    """
    items = found[:wanted]
    return Page(items, _token(listing, items[-1].id) if len(found) > wanted else "")


def _token(listing: str, last: UUID) -> str:
    return base64.urlsafe_b64encode(last.bytes + _mark(listing, last.bytes)).decode("ascii").rstrip("=")


def read_token(listing: str, token: str) -> UUID | None:
    """The last id before the page, or None for the first page. A token of another listing is refused."""
    if not token:
        return None
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 20 or raw[16:] != _mark(listing, raw[:16]):
        raise BadInput(
            Reason.INVALID_PAGE_TOKEN,
            "the page token is not one that this listing gave; start from the first page",
            field="page_token",
        )
    return UUID(bytes=raw[:16])


def _mark(listing: str, last: bytes) -> bytes:
    """Finds a token of another listing or a mangled one. It keeps out mistakes; access is checked on every page."""
    return zlib.crc32(listing.encode() + last).to_bytes(4, "big")
