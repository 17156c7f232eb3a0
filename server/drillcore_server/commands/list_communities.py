"""ListCommunities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from drillcore_fdb.engine import Reader
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.fact_library import FactLibrary
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Shelf
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.communities import Community, CommunityRun
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.ids import CorpusId, Revision, TenantId
from drillcore_server.domain.pages import PageLimit, fill_page, make_token, page_size, read_token
from drillcore_server.store import communities
from drillcore_server.store.communities import CommunitiesView
from drillcore_server.store.keyring import KeyErased

_OVERHEAD_BYTES: Final = 200
"""Of ids and times: a generous guess."""
_CURSOR_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Communities:
    communities: list[Community]
    next_token: str
    revision: Revision
    last_run: CommunityRun | None
    """None for a revision before it."""


def list_communities(
    library: FactLibrary, call: Call, *, tenant: TenantId | None, corpus: CorpusId, as_of: AsOf, size: int, token: str
) -> Communities:
    """Communities and how many facts they have, the largest first. Later pages are of the first one's revision."""
    limit = PageLimit(page_size(size), library.library.unit.page_bytes_max)
    listing = f"communities of {corpus}"
    cursor = read_token(listing, token)
    start = 0
    if cursor is not None:
        as_of, start = AsOf(Revision(int.from_bytes(cursor[:6], "big"))), int.from_bytes(cursor[6:], "big")

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Communities:
        shelf = library.shelf(tr, granted, trail, corpus, as_of)
        items, more = fill_page(_sized(library, shelf, start), limit)
        trail.detail["communities"] = len(items)
        place = (items[-1][0] + 1).to_bytes(_CURSOR_BYTES, "big") if more else b""
        token = make_token(listing, shelf.revision.to_bytes(6, "big") + place) if more else ""
        run = communities.last_run(tr, shelf.view.keys)
        known = run if run is not None and run.revision <= shelf.revision else None
        return Communities([one for _, one in items], token, shelf.revision, known)

    return library.library.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _sized(library: FactLibrary, shelf: Shelf, start: int) -> Iterator[tuple[tuple[int, Community], int]]:
    """From a place in the list on, each with its place; those whose words were erased are left out."""
    view = CommunitiesView(shelf.view)
    listed = library.communities.at(shelf.corpus.number, shelf.view).by_size()
    for place, (community, size) in enumerate(listed[start:], start):
        try:
            found = view.community(community)
        except KeyErased:
            continue
        if found is not None:
            yield (place, replace(found, size=size)), size_bytes(found)


def size_bytes(community: Community) -> int:
    """About what it takes in an answer."""
    return _OVERHEAD_BYTES + 4 * sum(map(len, (community.label, *community.keywords)))
