"""Which quads match a pattern: those that were put, then those of urn:graph:source, then of urn:graph:retrieval.

Each page is read in one transaction and bounded by what is looked at, whether it matches or not.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

from drillcore_fdb.engine import Reader
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.derived_quads import DerivedPage, retrieval_page, source_page
from drillcore_server.commands.viewing import Library, Shelf
from drillcore_server.domain.ids import PrincipalId, SourceId
from drillcore_server.domain.pages import PageLimit
from drillcore_server.domain.quads import Quad, QuadPattern, encoded_quad
from drillcore_server.store.quads import QUAD_BYTES, Candidate, QuadHashes, QuadsView, decode_record

LOOKED_AT_MAX: Final = 10_000
"""Stored keys, for one page: well within five seconds."""
LOOKED_AT_BYTES_MAX: Final = 1 << 26
"""Of records, likewise: one may have megabytes."""
_KEYS_MAX: Final = 256
"""Read at once: each may have 90 kB."""
_DERIVED_MAX: Final = 3
"""Pages of derived quads that may turn out short or empty before ours ends."""


class Part(enum.IntEnum):
    """Where a quad is from, in the order of pages."""

    STORED = 0
    SOURCE = 1
    RETRIEVAL = 2


class Cursor(NamedTuple):
    """Where a page begins."""

    part: Part = Part.STORED
    place: bytes = b""


class MatchedQuad(NamedTuple):
    quad: Quad
    sources: tuple[SourceId, ...] = ()
    """That it was put of, without those that have no id."""
    derived: bool = False


@dataclass(slots=True)
class Matches:
    """A page that is being filled."""

    limit: PageLimit
    found: list[MatchedQuad]
    size_bytes: int = 0
    looked_at_bytes: int = 0
    """Of records, whether they match or not."""

    @property
    def is_full(self) -> bool:
        return len(self.found) >= self.limit.items or self.size_bytes >= self.limit.bytes

    @property
    def room(self) -> PageLimit:
        return PageLimit(self.limit.items - len(self.found), self.limit.bytes - self.size_bytes)

    def fits(self, one: MatchedQuad) -> bool:
        """A page has at least one."""
        return not self.found or not (self.is_full or self.size_bytes + _size_bytes(one) > self.limit.bytes)

    def take(self, one: MatchedQuad) -> None:
        """A quad of very many sources comes in pieces, one after the other."""
        self.size_bytes += _size_bytes(one)
        if self.found and not one.derived and self.found[-1].quad == one.quad:
            one = one._replace(sources=self.found.pop().sources + one.sources)
        self.found.append(one)


@dataclass(frozen=True, slots=True)
class QuadMatching:
    """A pattern, and who asks for what matches it in a corpus at one revision."""

    library: Library
    tr: Reader
    granted: InTenant
    principal: PrincipalId
    shelf: Shelf
    pattern: QuadPattern
    hashes: QuadHashes

    def page(self, begin: Cursor, limit: PageLimit) -> tuple[list[MatchedQuad], Cursor | None]:
        """What matches from a place on, and where to go on; None at the end."""
        matches, following = Matches(limit, []), begin
        while True:
            place = self._fill(following, matches)
            if place is not None:
                return matches.found, Cursor(following.part, place)
            if following.part is Part.RETRIEVAL:
                return matches.found, None
            following = Cursor(Part(following.part + 1))
            if matches.is_full:
                return matches.found, following

    def _fill(self, cursor: Cursor, matches: Matches) -> bytes | None:
        """Takes what there is of one part; where that goes on, None at its end."""
        if cursor.part is Part.STORED:
            return self._fill_stored(cursor.place, matches)
        place: bytes | None = cursor.place
        for _ in range(_DERIVED_MAX):
            if place is None or matches.is_full:
                break
            page = self._derived(cursor.part, place, matches.room)
            for quad in page.quads:
                matches.take(MatchedQuad(quad, derived=True))
            place = page.following
        return place

    def _derived(self, part: Part, place: bytes, room: PageLimit) -> DerivedPage:
        pattern, shelf = self.pattern, self.shelf
        if part is Part.SOURCE:
            return source_page(shelf, pattern, place, room.items, room.bytes)
        return retrieval_page(
            self.library, self.tr, self.granted, self.principal, shelf, pattern, place, room.items, room.bytes
        )

    def _fill_stored(self, place: bytes, matches: Matches) -> bytes | None:
        view = QuadsView(self.shelf.view, self.hashes)
        following: bytes | None = place
        looked_at = 0
        while following is not None and looked_at < LOOKED_AT_MAX:
            candidates, following = view.candidates(self.pattern, following, _KEYS_MAX)
            looked_at += _KEYS_MAX
            whole, cut = _whole(candidates, is_last=following is None)
            for _, group in groupby(whole, _quad_of):
                those = list(group)
                if matches.looked_at_bytes >= LOOKED_AT_BYTES_MAX:
                    return view.start_of(self.pattern, those[0])
                one = self._matched(view, those, matches)
                if one is not None:
                    if not matches.fits(one):
                        return view.start_of(self.pattern, those[0])
                    matches.take(one)
            following = following if cut is None else view.start_of(self.pattern, cut)
        return following

    def _matched(self, view: QuadsView, candidates: Iterable[Candidate], matches: Matches) -> MatchedQuad | None:
        """A quad with all its sources that were not erased; None if there are none, or it does not match."""
        quad, sources = None, list[SourceId]()
        for one in candidates:
            stored = view.record(one)
            if stored is None:
                continue
            matches.looked_at_bytes += len(stored)
            found = decode_record(stored)
            if self.pattern.matches(found.quad):
                quad = found.quad
                sources += [found.source] if found.source else []
        return None if quad is None else MatchedQuad(quad, tuple(sorted(sources)))


def _whole(candidates: list[Candidate], *, is_last: bool) -> tuple[list[Candidate], Candidate | None]:
    """Those whose quads are there with all their sources, and the first of the one that is not, if any.

    One with more sources than are read at once comes in several pieces.
    """
    if is_last or not candidates:
        return candidates, None
    last = _quad_of(candidates[-1])
    first = next(place for place, one in enumerate(candidates) if _quad_of(one) == last)
    return (candidates[:first], candidates[first]) if first else (candidates, None)


def _size_bytes(one: MatchedQuad) -> int:
    return len(encoded_quad(one.quad)) + sum(map(len, one.sources))


def _quad_of(candidate: Candidate) -> bytes:
    return candidate.place[:QUAD_BYTES]
