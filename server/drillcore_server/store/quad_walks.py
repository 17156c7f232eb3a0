"""Pages of quads that records tell of themselves.

A walk goes over stretches, one after the other: ranges of keys, or a few records that are named. What is read for a
page is bounded, so a page may be short, or empty, before the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from drillcore_fdb.tuples import KeyRange
from drillcore_server.domain.quads import Quad, QuadPattern, encoded_quad
from drillcore_server.store import versioned
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.keyring import KeyErased
from drillcore_server.store.versioned import Entry

T = TypeVar("T")
KEYS_MAX: Final = 1_000
"""Read of one stretch for a page: well within five seconds."""
BYTES_MAX: Final = 1 << 20
"""Of the quads of a page; the first may have more."""


class DerivedPage(NamedTuple):
    quads: list[Quad]
    following: bytes | None
    """Where the next page begins; None: there is none."""


class Told(NamedTuple):
    """What one record says."""

    place: bytes
    """In its stretch: reading from there on, it is the first."""
    quads: Sequence[Quad]


class Stretch(Protocol):
    def read(self, place: bytes) -> tuple[Iterable[Told], bytes | None]:
        """Some records from a place on, and where to go on; None at the end."""
        ...


@dataclass(frozen=True, slots=True)
class Keys:
    """What a revision has of a range of keys. What was erased says nothing."""

    view: CorpusView
    keys: KeyRange
    tell: Callable[[Entry], Sequence[Quad]]
    keys_max: int = KEYS_MAX

    def read(self, place: bytes) -> tuple[Iterable[Told], bytes | None]:
        begin, end = self.keys
        found, following = versioned.page(self.view.tr, begin + place, end, self.view.revision, self.keys_max)
        told = (Told(entry.key[len(begin) :], unless_erased(self.tell, entry)) for entry in found)
        return told, None if following is None else following[len(begin) :]


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """Records that are named, in the order of their names."""

    names: Sequence[T]
    tell: Callable[[T], Sequence[Quad]]

    def read(self, place: bytes) -> tuple[Iterable[Told], bytes | None]:
        first = int.from_bytes(place, "big")
        end = first + KEYS_MAX
        return self._told(first, end), None if end >= len(self.names) else end.to_bytes(4, "big")

    def _told(self, first: int, end: int) -> Iterator[Told]:
        for number, name in enumerate(self.names[first:end], first):
            yield Told(number.to_bytes(4, "big"), unless_erased(self.tell, name))


def unless_erased(tell: Callable[[T], Sequence[Quad]], one: T) -> Sequence[Quad]:
    try:
        return tell(one)
    except KeyErased:
        return ()


class _Cursor(NamedTuple):
    """Where a page begins."""

    stretch: int = 0
    quad: int = 0
    """Of the first record, among those that match."""
    place: bytes = b""

    @classmethod
    def parsed(cls, stored: bytes) -> _Cursor:
        return cls(int.from_bytes(stored[:1], "big"), int.from_bytes(stored[1:5], "big"), stored[5:])

    def written(self) -> bytes:
        return self.stretch.to_bytes(1, "big") + self.quad.to_bytes(4, "big") + self.place


def walked(
    stretches: Sequence[Stretch], pattern: QuadPattern, begin: bytes, quads_max: int, bytes_max: int = BYTES_MAX
) -> DerivedPage:
    """The quads of the stretches that match, from `begin` on, which is empty or what the page before said."""
    page, size_bytes = list[Quad](), 0
    first = _Cursor.parsed(begin)
    for number in range(first.stretch, len(stretches)):
        start = first if number == first.stretch else _Cursor()
        told, following = stretches[number].read(start.place)
        for place, quads in told:
            matching = [one for one in quads if pattern.matches(one)]
            known = start.quad if place == start.place else 0
            for at, quad in enumerate(matching[known:], known):
                if page and (len(page) >= quads_max or size_bytes >= bytes_max):
                    return DerivedPage(page, _Cursor(number, at, place).written())
                page.append(quad)
                size_bytes += len(encoded_quad(quad))
        if following is not None:
            return DerivedPage(page, _Cursor(number, 0, following).written())
    return DerivedPage(page, None)
