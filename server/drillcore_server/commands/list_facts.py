"""ListFacts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.fact_library import FactLibrary
from drillcore_server.commands.fact_selecting import Listing
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Shelf
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.facts import Fact
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.found_facts import FactFilters, FoundFact
from drillcore_server.domain.ids import CorpusId, FactId, Revision, TenantId
from drillcore_server.domain.pages import Page, PageLimit, fill_page, make_token, page_size, read_token


def list_facts(
    library: FactLibrary,
    call: Call,
    *,
    tenant: TenantId | None,
    corpus: CorpusId,
    filters: FactFilters,
    as_of: AsOf,
    size: int,
    token: str,
) -> tuple[Page[FoundFact], Revision]:
    """Facts that the filters allow, by id, and their revision, which is that of later pages too.

    A page may have fewer facts than were asked for, or none, and others follow: see `LOOKED_AT_MAX`.
    """
    limit = PageLimit(page_size(size), library.library.unit.page_bytes_max)
    asked = hashlib.sha256(repr(filters.in_order()).encode()).hexdigest()
    listing = f"facts of {corpus} {asked}"
    cursor = read_token(listing, token)
    after: FactId | None = None
    if cursor is not None:
        as_of, after = AsOf(Revision(int.from_bytes(cursor[:6], "big"))), FactId(UUID(bytes=cursor[6:]))

    def work(tr: Reader, granted: InTenant, trail: Trail) -> tuple[Page[FoundFact], Revision]:
        shelf = library.shelf(tr, granted, trail, corpus, as_of)
        looked = Listing(library, shelf, filters, after)
        items, more = fill_page(_sized(shelf, looked.facts()), limit)
        trail.touch_facts(items, shelf.corpus.number)
        last = items[-1].id if more else looked.after if looked.is_cut else None
        token = "" if last is None else make_token(listing, shelf.revision.to_bytes(6, "big") + last.bytes)
        return Page(library.told(shelf, items), token), shelf.revision

    return library.library.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _sized(shelf: Shelf, facts: Iterator[Fact]) -> Iterator[tuple[Fact, int]]:
    return ((one, FoundFact(one, shelf.corpus.id).size_bytes) for one in facts)
