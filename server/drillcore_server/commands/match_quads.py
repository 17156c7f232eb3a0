"""MatchQuads."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.quad_matching import Cursor, MatchedQuad, Part, QuadMatching
from drillcore_server.commands.selecting import left
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library, Shelf
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.facts import Fact
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.ids import CorpusId, CorpusNumber, DocumentId, FactId, NodeId, Revision, SourceId, TenantId
from drillcore_server.domain.iris import Named, named_by
from drillcore_server.domain.nodes import Chunk, Document, Level
from drillcore_server.domain.pages import PageLimit, make_token, page_size, read_token
from drillcore_server.domain.quads import Iri, QuadPattern, check_pattern
from drillcore_server.store.facts import FactsView
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.quads import QuadHashes

_NODES = frozenset({"raw", "chunk", "section", "master", "fact"})


@dataclass(frozen=True, slots=True)
class MatchedPage:
    quads: list[MatchedQuad]
    next_token: str
    revision: Revision


def match_quads(
    library: Library,
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
    limit = PageLimit(page_size(size), library.unit.page_bytes_max)
    listing = f"quads of {corpus} {hashlib.sha256(repr(pattern).encode()).hexdigest()}"
    begin, as_of = _begin(read_token(listing, token), as_of)

    def work(tr: Reader, granted: InTenant, trail: Trail) -> MatchedPage:
        shelf = library.shelf(tr, granted, trail, corpus, as_of)
        granted.check_level(shelf.corpus.id, *Level)
        hashes = QuadHashes.of(library.keyring, shelf.corpus.number)
        matching = QuadMatching(library, tr, granted, call.principal.id, shelf, pattern, hashes)
        found, following = matching.page(begin, limit)
        leave_trail(trail, shelf, pattern, found)
        return MatchedPage(found, _token(listing, shelf.revision, following), shelf.revision)

    return library.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def leave_trail(trail: Trail, shelf: Shelf, pattern: QuadPattern, found: Sequence[MatchedQuad]) -> None:
    """What the caller gets: sources, and what derived quads tell of."""
    for named in _told_of(found):
        if named.kind in _NODES:
            trail.touch_node_ids([NodeId(UUID(named.id))])
        elif named.kind == "document":
            trail.touch_documents([DocumentId(UUID(named.id))])
    touch_sources(trail.sources, shelf, found)
    trail.levels.update(Level)
    trail.detail["quads"] = len(found)
    trail.private["query"] = repr(pattern)[:1_000]


def touch_sources(sources: set[tuple[CorpusNumber, SourceId]], shelf: Shelf, found: Sequence[MatchedQuad]) -> None:
    """Adds the sources that quads are of, derived ones too: if it is one alone, the pattern is erased with it."""
    number = shelf.corpus.number
    sources.update((number, source) for one in found for source in one.sources)
    for named in _told_of(found):
        if len(sources) > 1:
            return  # which they are makes no difference any more
        source = _source_of(shelf.view, named)
        sources.update([] if source is None else [(number, source)])


def _told_of(found: Iterable[MatchedQuad]) -> list[Named]:
    """What derived quads tell of, each once."""
    subjects = dict.fromkeys(one.quad.subject for one in found if one.derived)
    named = (named_by(one.value) for one in subjects if isinstance(one, Iri))
    return [one for one in named if one is not None]


def _source_of(view: CorpusView, named: Named) -> SourceId | None:
    """Of what is made of one source alone."""
    found: Document | Chunk | Fact | None = None
    if named.kind == "source":
        return SourceId(named.id)
    if named.kind == "document":
        found = left(view.document, DocumentId(UUID(named.id)))
    elif named.kind == "chunk":
        found = left(view.chunk, NodeId(UUID(named.id)))
    elif named.kind == "fact":
        found = FactsView(view).fact_left(FactId(UUID(named.id)))
    return None if found is None else found.source


def _begin(cursor: bytes | None, as_of: AsOf) -> tuple[Cursor, AsOf]:
    if cursor is None:
        return Cursor(), as_of
    return Cursor(Part(cursor[6] % len(Part)), cursor[7:]), AsOf(Revision(int.from_bytes(cursor[:6], "big")))


def _token(listing: str, revision: Revision, following: Cursor | None) -> str:
    if following is None:
        return ""
    return make_token(listing, revision.to_bytes(6, "big") + bytes([following.part]) + following.place)
