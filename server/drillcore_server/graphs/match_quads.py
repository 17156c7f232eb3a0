"""MatchQuads: stored quads first, then computed ones of urn:graph:source, then those of urn:graph:retrieval.

Each page is read in one transaction. What it reads is bounded, whether it matches or not, so a page may be short.
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
from drillcore_server.graphs.derived_quads import DerivedPage, retrieval_page, source_page
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
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.canonical_json import fingerprint
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusAtRevision, CorpusReads, unless_erased
from drillcore_server.kernel.pages import PageLimit, make_token, page_size, read_together, read_token
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.storage import versioned
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
"""Stored keys that are read for one page. Stays well within five seconds."""
LOOKED_AT_BYTES_MAX: Final = 1 << 26
"""Bytes of records that are read for one page. One record may have megabytes."""
_KEYS_MAX: Final = 256
"""Keys that are read at once. Each may have 90 kB."""
_DESCRIBED_AT_ONCE: Final = 50
"""Records whose sources are read together."""
_DERIVED_PAGES_MAX: Final = 3
"""Pages of computed quads, which may be short or empty, that are read for one page."""


class Part(enum.IntEnum):
    """The three kinds of quads, in the order in which pages return them."""

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
    """The sources that state the quad. Empty for a computed quad, or one that was put without a source."""
    derived: bool = False


@dataclass(slots=True)
class Matches:
    """A page while it is being filled."""

    limit: PageLimit
    found: list[MatchedQuad]
    size_bytes: int = 0
    looked_at_bytes: int = 0
    """Bytes of all records that were read, whether they match or not."""

    @property
    def is_full(self) -> bool:
        return len(self.found) >= self.limit.items or self.size_bytes >= self.limit.bytes

    @property
    def room(self) -> PageLimit:
        return PageLimit(self.limit.items - len(self.found), self.limit.bytes - self.size_bytes)

    def fits(self, matched: MatchedQuad) -> bool:
        """Whether there is room for a quad. The first quad always fits."""
        return not self.found or not (self.is_full or self.size_bytes + _size_bytes(matched) > self.limit.bytes)

    def take(self, matched: MatchedQuad) -> None:
        """Adds a quad. A quad of very many sources comes in several pieces in a row, which are joined here."""
        self.size_bytes += _size_bytes(matched)
        if self.found and not matched.derived and self.found[-1].quad == matched.quad:
            matched = matched._replace(sources=self.found.pop().sources + matched.sources)
        self.found.append(matched)


@dataclass(frozen=True, slots=True)
class QuadMatching:
    """Finds the quads of a corpus at one revision that match a pattern and that the caller may see."""

    reads: CorpusReads
    tr: Reader
    granted: InTenant
    principal: PrincipalId
    view: CorpusAtRevision
    pattern: QuadPattern
    hashes: QuadHashes

    def page(self, begin: Cursor, limit: PageLimit) -> tuple[list[MatchedQuad], Cursor | None]:
        """Matching quads from a place on, and where to continue; None at the end."""
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
        """Adds matching quads of one part. Returns where to continue in that part; None at its end."""
        if cursor.part is Part.STORED:
            return self._fill_stored(cursor.place, matches)
        place: bytes | None = cursor.place
        for _ in range(_DERIVED_PAGES_MAX):
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
            for _, group in groupby(quads.with_records_ahead(whole), _quad_of):
                same_quad = list(group)
                if matches.looked_at_bytes >= LOOKED_AT_BYTES_MAX:
                    return quads.start_of(self.pattern, same_quad[0])
                matched = self._matched(quads, same_quad, matches)
                if matched is not None:
                    if not matches.fits(matched):
                        return quads.start_of(self.pattern, same_quad[0])
                    matches.take(matched)
            following = following if cut is None else quads.start_of(self.pattern, cut)
        return following

    def _matched(self, quads: QuadReader, candidates: Iterable[Candidate], matches: Matches) -> MatchedQuad | None:
        """The quad of these candidates with its sources. None if it does not match or all its records were erased."""
        quad, sources = None, list[SourceId]()
        for candidate in candidates:
            stored = quads.record(candidate)
            if stored is None:
                continue
            matches.looked_at_bytes += len(stored)
            found = decode_record(stored)
            if self.pattern.matches(found.quad):
                quad = found.quad
                sources += [found.source] if found.source else []
        return None if quad is None else MatchedQuad(quad, tuple(sorted(sources)))


def _whole(candidates: list[Candidate], *, is_last: bool) -> tuple[list[Candidate], Candidate | None]:
    """Splits off the last quad, whose sources may go on after these candidates. Returns its first candidate, if any.

    A quad with more sources than are read at once is not split off. It comes in several pieces.
    """
    if is_last or not candidates:
        return candidates, None
    last = _quad_of(candidates[-1])
    first = next(place for place, candidate in enumerate(candidates) if _quad_of(candidate) == last)
    return (candidates[:first], candidates[first]) if first else (candidates, None)


def _size_bytes(matched: MatchedQuad) -> int:
    return len(encoded_quad(matched.quad)) + sum(map(len, matched.sources))


def _quad_of(candidate: Candidate) -> bytes:
    return candidate.place[:QUAD_BYTES]


_OF_ONE_SOURCE = ("document", "chunk", "fact")
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
    """Quads that match, with the revision that this and all later pages read.

    A page may be short or empty; only an empty `next_token` means the end. Raises `Refused`, with INVALID_QUAD for a
    pattern that no quad can match.
    """
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
    """Notes the sources of the quads, and the records that computed quads are about, in the audit record."""
    for named in _described(found):
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
    """Adds the sources of quads, also of computed ones.

    If there is exactly one, the audit record keeps the pattern sealed so that it is erased with that source.
    """
    number = view.corpus.number
    sources.update((number, source) for matched in found for source in matched.sources)
    for named in read_together(_described(found), _DESCRIBED_AT_ONCE, lambda some: _read_ahead(view, some)):
        if len(sources) > 1:
            return  # beyond one, it makes no difference which sources they are
        source = _source_of(view, named)
        sources.update([] if source is None else [(number, source)])


def _read_ahead(view: CorpusAtRevision, described: list[Named]) -> list[Named]:
    """Reads together what `_source_of` needs for each of these records. Returns the records unchanged."""
    ids = {kind: [UUID(named.id) for named in described if named.kind == kind] for kind in _OF_ONE_SOURCE}
    documents = [view.keys.document(DocumentId(id_)) for id_ in ids["document"]]
    chunks = [view.keys.chunk(NodeId(id_)) for id_ in ids["chunk"]]
    facts = FactReader(view).keys_of(map(FactId, ids["fact"]))
    versioned.read_ends_ahead(view.tr, [*documents, *chunks, *facts], view.revision)
    return described


def _described(found: Iterable[MatchedQuad]) -> list[Named]:
    """The records that computed quads are about, each once."""
    subjects = dict.fromkeys(matched.quad.subject for matched in found if matched.derived)
    named = (named_by(subject.value) for subject in subjects if isinstance(subject, Iri))
    return [record for record in named if record is not None]


def _source_of(view: CorpusAtRevision, named: Named) -> SourceId | None:
    """The source of a record. None for records that are made from several sources, and for erased ones."""
    found: Document | Chunk | Fact | None = None
    if named.kind == "source":
        return SourceId(named.id)
    if named.kind == "document":
        found = unless_erased(HierarchyReader(view).document, DocumentId(UUID(named.id)))
    elif named.kind == "chunk":
        found = unless_erased(HierarchyReader(view).chunk, NodeId(UUID(named.id)))
    elif named.kind == "fact":
        found = FactReader(view).fact_unless_erased(FactId(UUID(named.id)))
    return None if found is None else found.source


def _begin(cursor: bytes | None, as_of: AsOf) -> tuple[Cursor, AsOf]:
    if cursor is None:
        return Cursor(), as_of
    return Cursor(Part(cursor[6] % len(Part)), cursor[7:]), AsOf(Revision(int.from_bytes(cursor[:6], "big")))


def _token(listing: str, revision: Revision, following: Cursor | None) -> str:
    if following is None:
        return ""
    return make_token(listing, revision.to_bytes(6, "big") + bytes([following.part]) + following.place)
