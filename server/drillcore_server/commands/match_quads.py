"""MatchQuads."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.quad_matching import Cursor, MatchedQuad, Part, QuadMatching
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library, Shelf
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.ids import CorpusId, DocumentId, NodeId, Revision, SourceId, TenantId
from drillcore_server.domain.iris import named_by
from drillcore_server.domain.nodes import Level
from drillcore_server.domain.pages import PageLimit, make_token, page_size, read_token
from drillcore_server.domain.quads import Iri, Quad, QuadPattern, check_pattern
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


def leave_trail(trail: Trail, shelf: Shelf, pattern: QuadPattern, found: Iterable[MatchedQuad]) -> None:
    """What the caller gets: sources, and what derived quads tell of."""
    count = 0
    for one in found:
        count += 1
        trail.sources.update((shelf.corpus.number, source) for source in one.sources)
        if one.derived:
            touch_named(trail, shelf, one.quad)
    trail.levels.update(Level)
    trail.detail["quads"] = count
    trail.private["query"] = repr(pattern)[:1_000]


def touch_named(trail: Trail, shelf: Shelf, quad: Quad) -> None:
    named = named_by(quad.subject.value) if isinstance(quad.subject, Iri) else None
    if named is None:
        return
    if named.kind in _NODES:
        trail.touch_node_ids([NodeId(UUID(named.id))])
    elif named.kind == "document":
        trail.touch_documents([DocumentId(UUID(named.id))])
    elif named.kind == "source":
        trail.sources.add((shelf.corpus.number, SourceId(named.id)))


def _begin(cursor: bytes | None, as_of: AsOf) -> tuple[Cursor, AsOf]:
    if cursor is None:
        return Cursor(), as_of
    return Cursor(Part(cursor[6] % len(Part)), cursor[7:]), AsOf(Revision(int.from_bytes(cursor[:6], "big")))


def _token(listing: str, revision: Revision, following: Cursor | None) -> str:
    if following is None:
        return ""
    return make_token(listing, revision.to_bytes(6, "big") + bytes([following.part]) + following.place)
