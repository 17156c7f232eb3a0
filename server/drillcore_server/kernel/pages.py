"""Pages of a listing, and the tokens that lead from one to the next."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

from drillcore_proto.reasons import Reason
from drillcore_server.kernel.errors import BadInput


class HasId(Protocol):
    @property
    def id(self) -> UUID: ...


Item = TypeVar("Item")
Key = TypeVar("Key")
T = TypeVar("T", bound=HasId)

PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_MAX = 1_000
LISTED_KEYS_MAX: Final = 20_000
LISTED_BYTES_MAX: Final = 1 << 25
"""Stored keys and bytes that a listing reads for one page: well within the five seconds of a transaction."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: list[T]
    next_token: str


def page_size(asked: int) -> int:
    return min(asked or PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)


@dataclass(frozen=True, slots=True)
class PageLimit:
    items: int
    bytes: int
    """The size of the stored records; an answer is about as large."""


def fill_page(found: Iterable[tuple[Item, int]], limit: PageLimit) -> tuple[list[Item], bool]:
    """Items up to the limits, and whether there are more. Each item comes with its size.

    A page has at least one item.
    """
    items: list[Item] = []
    size_bytes = 0
    for item, item_bytes in found:
        size_bytes += item_bytes
        if items and (len(items) == limit.items or size_bytes > limit.bytes):
            return items, True
        items.append(item)
    return items, False


class Listed(NamedTuple, Generic[T]):
    """A stored record that a listing looks at."""

    id: UUID
    record: T | None
    """None if the listing must not show it: it is deleted, or out of the caller's reach."""
    size_bytes: int


@dataclass(slots=True)
class BoundedListing(Generic[T]):
    """The records to show of a listing in the order of ids, each with its size in bytes.

    It stops after as many stored records as one transaction reads in time, shown or not.
    """

    looked_at: Iterable[Listed[T]]
    cut_at: UUID | None = None
    """The id behind which to go on, if it stopped early. Read it once the records are consumed."""

    def records(self) -> Iterator[tuple[T, int]]:
        size_bytes = 0
        for count, found in enumerate(self.looked_at, 1):
            if found.record is not None:
                yield found.record, found.size_bytes
            size_bytes += found.size_bytes
            if count >= LISTED_KEYS_MAX or size_bytes >= LISTED_BYTES_MAX:
                self.cut_at = found.id
                return


def bounded_page(listing: str, looked_at: Iterable[Listed[T]], limit: PageLimit) -> Page[T]:
    """A page of a `BoundedListing`. It may be short or empty although more follow."""
    bounded = BoundedListing(looked_at)
    items, more = fill_page(bounded.records(), limit)
    return make_page(listing, items, more, bounded.cut_at)


def read_together(found: Iterable[Key], size: int, read: Callable[[list[Key]], Iterable[Item]]) -> Iterator[Item]:
    """What `read` gives for the keys, in order. It gets `size` keys at a time, and no more than are asked for.

    So that a page of records that an index leads to takes one round trip, not one for each record.
    """
    keys = iter(found)
    while batch := list(islice(keys, size)):
        yield from read(batch)


def make_page(listing: str, items: list[T], more: bool, cut_at: UUID | None = None) -> Page[T]:
    """A page, with a token if there are more items, or if the listing was cut off behind an id.

    `listing` names the listing and everything that selects its items.
    """
    last = items[-1].id if more else cut_at
    return Page(items, "" if last is None else make_token(listing, last.bytes))


def make_token(listing: str, cursor: bytes) -> str:
    """A token for what follows `cursor`."""
    return base64.urlsafe_b64encode(cursor + _mark(listing, cursor)).decode("ascii").rstrip("=")


def read_token(listing: str, token: str) -> bytes | None:
    """The cursor of a token; None for the first page. Raises `BadInput` for a token of another listing."""
    if not token:
        return None
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) < 5 or raw[-4:] != _mark(listing, raw[:-4]):
        raise BadInput(
            Reason.INVALID_PAGE_TOKEN,
            "the page token is not one that this listing gave; start from the first page",
            field="page_token",
        )
    return raw[:-4]


def read_id_token(listing: str, token: str) -> UUID | None:
    """The last id before the page, for tokens that `make_page` made."""
    cursor = read_token(listing, token)
    return None if cursor is None else UUID(bytes=cursor)


def _mark(listing: str, last: bytes) -> bytes:
    """Detects damaged tokens and tokens of other listings. It only guards against mistakes.

    Every page checks access.
    """
    return zlib.crc32(listing.encode() + last).to_bytes(4, "big")
