"""Which quads match a pattern: those that were put, then those of urn:graph:source, then of urn:graph:retrieval.

Each page is read in one transaction and bounded by what is looked at, whether it matches or not.

MatchQuads.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_formats.quads import Iri
from drillcore_server.facts.model import Fact
from drillcore_server.facts.store import FactReader
from drillcore_server.graphs.derived_quads import retrieval_page, source_page
from drillcore_server.graphs.provenance import DerivedPage
from drillcore_server.graphs.quad_model import (
    Named,
    Quad,
    QuadPattern,
    check_pattern,
    encoded_quad,
    named_by,
    pattern_text,
)
from drillcore_server.graphs.quad_store import QUAD_BYTES, Candidate, QuadHashes, QuadReader, decode_record
from drillcore_server.hierarchy.model import Chunk, Document
from drillcore_server.hierarchy.query import left
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.accounts import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusAtRevision, CorpusReads
from drillcore_server.kernel.fingerprint import fingerprint
from drillcore_server.kernel.pages import PageLimit, make_token, page_size, read_token
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import (
    CorpusId,
    CorpusNumber,
    DocumentId,
    FactId,
    Level,
    NodeId,
    PrincipalId,
    Revision,
    SourceId,
    TenantId,
)

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

    reads: CorpusReads
    tr: Reader
    granted: InTenant
    principal: PrincipalId
    view: CorpusAtRevision
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
        pattern, view = self.pattern, self.view
        if part is Part.SOURCE:
            return source_page(view, pattern, place, room.items, room.bytes)
        return retrieval_page(
            self.reads, self.tr, self.granted, self.principal, view, pattern, place, room.items, room.bytes
        )

    def _fill_stored(self, place: bytes, matches: Matches) -> bytes | None:
        quads = QuadReader(self.view, self.hashes)
        following: bytes | None = place
        looked_at = 0
        while following is not None and looked_at < LOOKED_AT_MAX:
            candidates, following = quads.candidates(self.pattern, following, _KEYS_MAX)
            looked_at += _KEYS_MAX
            whole, cut = _whole(candidates, is_last=following is None)
            for _, group in groupby(whole, _quad_of):
                those = list(group)
                if matches.looked_at_bytes >= LOOKED_AT_BYTES_MAX:
                    return quads.start_of(self.pattern, those[0])
                one = self._matched(quads, those, matches)
                if one is not None:
                    if not matches.fits(one):
                        return quads.start_of(self.pattern, those[0])
                    matches.take(one)
            following = following if cut is None else quads.start_of(self.pattern, cut)
        return following

    def _matched(self, quads: QuadReader, candidates: Iterable[Candidate], matches: Matches) -> MatchedQuad | None:
        """A quad with all its sources that were not erased; None if there are none, or it does not match."""
        quad, sources = None, list[SourceId]()
        for one in candidates:
            stored = quads.record(one)
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


_NODES = frozenset({"raw", "chunk", "section", "master", "fact"})


@dataclass(frozen=True, slots=True)
class MatchedPage:
    quads: list[MatchedQuad]
    next_token: str
    revision: Revision


def match_quads(
    reads: CorpusReads,
    call: Call,
    *,
    tenant: TenantId | None,
    corpus: CorpusId,
    pattern: QuadPattern,
    as_of: AsOf,
    size: int,
    token: str,
) -> MatchedPage:
    """Quads that match, and their revision, which is that of later pages too. A page may be short, or empty."""
    check_pattern(pattern)
    limit = PageLimit(page_size(size), reads.unit.page_bytes_max)
    asked = fingerprint("quads matched", pattern).hex()
    listing = f"quads of {corpus} {asked}"
    begin, as_of = _begin(read_token(listing, token), as_of)

    def work(tr: Reader, granted: InTenant, trail: Trail) -> MatchedPage:
        view = reads.at(tr, granted, trail, corpus, as_of)
        granted.check_level(view.corpus.id, *Level)
        hashes = QuadHashes.of(reads.keyring, view.corpus.number)
        matching = QuadMatching(reads, tr, granted, call.principal.id, view, pattern, hashes)
        found, following = matching.page(begin, limit)
        leave_trail(trail, view, pattern, found)
        return MatchedPage(found, _token(listing, view.revision, following), view.revision)

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def leave_trail(trail: Trail, view: CorpusAtRevision, pattern: QuadPattern, found: Sequence[MatchedQuad]) -> None:
    """What the caller gets: sources, and what derived quads tell of."""
    for named in _told_of(found):
        if named.kind in _NODES:
            trail.touch_node_ids([NodeId(UUID(named.id))])
        elif named.kind == "document":
            trail.touch_documents([DocumentId(UUID(named.id))])
    touch_sources(trail.sources, view, found)
    trail.levels.update(Level)
    trail.detail["quads"] = len(found)
    trail.private["query"] = pattern_text(pattern)[:1_000]


def touch_sources(
    sources: set[tuple[CorpusNumber, SourceId]], view: CorpusAtRevision, found: Sequence[MatchedQuad]
) -> None:
    """Adds the sources that quads are of, derived ones too: if it is one alone, the pattern is erased with it."""
    number = view.corpus.number
    sources.update((number, source) for one in found for source in one.sources)
    for named in _told_of(found):
        if len(sources) > 1:
            return  # which they are makes no difference any more
        source = _source_of(view, named)
        sources.update([] if source is None else [(number, source)])


def _told_of(found: Iterable[MatchedQuad]) -> list[Named]:
    """What derived quads tell of, each once."""
    subjects = dict.fromkeys(one.quad.subject for one in found if one.derived)
    named = (named_by(one.value) for one in subjects if isinstance(one, Iri))
    return [one for one in named if one is not None]


def _source_of(view: CorpusAtRevision, named: Named) -> SourceId | None:
    """Of what is made of one source alone."""
    found: Document | Chunk | Fact | None = None
    if named.kind == "source":
        return SourceId(named.id)
    if named.kind == "document":
        found = left(HierarchyReader(view).document, DocumentId(UUID(named.id)))
    elif named.kind == "chunk":
        found = left(HierarchyReader(view).chunk, NodeId(UUID(named.id)))
    elif named.kind == "fact":
        found = FactReader(view).fact_left(FactId(UUID(named.id)))
    return None if found is None else found.source


def _begin(cursor: bytes | None, as_of: AsOf) -> tuple[Cursor, AsOf]:
    if cursor is None:
        return Cursor(), as_of
    return Cursor(Part(cursor[6] % len(Part)), cursor[7:]), AsOf(Revision(int.from_bytes(cursor[:6], "big")))


def _token(listing: str, revision: Revision, following: Cursor | None) -> str:
    if following is None:
        return ""
    return make_token(listing, revision.to_bytes(6, "big") + bytes([following.part]) + following.place)
