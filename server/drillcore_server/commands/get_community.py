"""GetCommunity."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.fact_library import FactLibrary
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Shelf
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.communities import Community
from drillcore_server.domain.errors import Missing
from drillcore_server.domain.facts import Fact
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.found_facts import FoundFact
from drillcore_server.domain.ids import CommunityId, CorpusId, Revision, TenantId
from drillcore_server.domain.pages import PageLimit, fill_page, make_token, page_size, read_token
from drillcore_server.store.communities import CommunitiesView
from drillcore_server.store.facts import FactsView
from drillcore_server.store.keyring import KeyErased


@dataclass(frozen=True, slots=True)
class CommunityWithFacts:
    community: Community
    facts: list[FoundFact]
    next_token: str
    revision: Revision


def get_community(
    library: FactLibrary,
    call: Call,
    *,
    tenant: TenantId | None,
    corpus: CorpusId,
    community: CommunityId,
    as_of: AsOf,
    size: int,
    token: str,
) -> CommunityWithFacts:
    """A community and its facts that can be searched, in the order of importance that they had when it was found.

    Later pages are of the first one's revision. Raises `Missing`.
    """
    limit = PageLimit(page_size(size), library.library.unit.page_bytes_max)
    listing = f"community {community} of {corpus}"
    cursor = read_token(listing, token)
    start = 0
    if cursor is not None:
        as_of, start = AsOf(Revision(int.from_bytes(cursor[:6], "big"))), int.from_bytes(cursor[6:], "big")

    def work(tr: Reader, granted: InTenant, trail: Trail) -> CommunityWithFacts:
        shelf = library.shelf(tr, granted, trail, corpus, as_of)
        found = _community(shelf, community)
        count = len(library.communities.at(shelf.corpus.number, shelf.view).members(community))
        items, more = fill_page(_sized(shelf, community, start), limit)
        facts = [fact for _, fact in items]
        trail.touch_facts(facts, shelf.corpus.number)
        trail.detail["community"] = str(community)
        place = shelf.revision.to_bytes(6, "big") + (items[-1][0] + 1).to_bytes(4, "big") if more else b""
        told = library.told(shelf, facts)
        token = make_token(listing, place) if more else ""
        return CommunityWithFacts(replace(found, size=count), told, token, shelf.revision)

    return library.library.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _community(shelf: Shelf, community: CommunityId) -> Community:
    try:
        found = CommunitiesView(shelf.view).community(community)
    except KeyErased as error:
        message = "a source that the label of this community was made of was erased"
        raise Missing(Reason.ERASED, message) from error
    if found is None:
        raise Missing(Reason.COMMUNITY_NOT_FOUND, f"there is no community {community}")
    return found


def _sized(shelf: Shelf, community: CommunityId, start: int) -> Iterator[tuple[tuple[int, Fact], int]]:
    view = FactsView(shelf.view)
    for place, one in CommunitiesView(shelf.view).members(community, start):
        try:
            fact = view.fact(one)
        except KeyErased:
            continue
        if fact is not None and fact.is_searched:
            yield (place, fact), FoundFact(fact, shelf.corpus.id).size_bytes
