"""GetCommunity and ListCommunities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.communities import store as communities
from drillcore_server.communities.memberships import CommunityCache
from drillcore_server.communities.model import Community, CommunityRun
from drillcore_server.communities.store import CommunityReader
from drillcore_server.facts.fact_reads import FactReads
from drillcore_server.facts.model import Fact, FoundFact
from drillcore_server.facts.store import FactReader
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusAtRevision
from drillcore_server.kernel.errors import Missing
from drillcore_server.kernel.pages import PageLimit, fill_page, make_token, page_size, read_together, read_token
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import CommunityId, CorpusId, FactId, Revision, TenantId
from drillcore_server.storage.keyring import KeyErased


@dataclass(frozen=True, slots=True)
class CommunityWithFacts:
    community: Community
    facts: list[FoundFact]
    next_token: str
    revision: Revision


def get_community(
    reads: FactReads,
    call: Call,
    *,
    tenant: TenantId | None,
    corpus: CorpusId,
    community: CommunityId,
    as_of: AsOf,
    size: int,
    token: str,
) -> CommunityWithFacts:
    """A community and a page of its facts, those most important when it was found first.

    Leaves out facts that are no longer searched. Later pages are of the same revision. Raises `Missing`:
    COMMUNITY_NOT_FOUND, ERASED.
    """
    limit = PageLimit(page_size(size), reads.unit.page_bytes_max)
    listing = f"community {community} of {corpus}"
    cursor = read_token(listing, token)
    start = 0
    if cursor is not None:
        as_of, start = AsOf(Revision(int.from_bytes(cursor[:6], "big"))), int.from_bytes(cursor[6:], "big")

    def work(tr: Reader, granted: InTenant, trail: Trail) -> CommunityWithFacts:
        view = reads.at(tr, granted, trail, corpus, as_of)
        found = _community(view, community)
        count = len(reads.communities.at(view).members(community))
        items, more = fill_page(_sized(view, community, start, limit.items + 1), limit)
        facts = [fact for _, fact in items]
        trail.touch_facts(facts, view.corpus.number)
        trail.detail["community"] = str(community)
        place = view.revision.to_bytes(6, "big") + (items[-1][0] + 1).to_bytes(4, "big") if more else b""
        found_facts = reads.found_facts(view, facts)
        token = make_token(listing, place) if more else ""
        return CommunityWithFacts(replace(found, size=count), found_facts, token, view.revision)

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _community(view: CorpusAtRevision, community: CommunityId) -> Community:
    try:
        found = CommunityReader(view).community(community)
    except KeyErased as error:
        message = "a source that the label of this community was made from was erased"
        raise Missing(Reason.ERASED, message) from error
    if found is None:
        raise Missing(Reason.COMMUNITY_NOT_FOUND, f"there is no community {community}")
    return found


def _sized(
    view: CorpusAtRevision, community: CommunityId, start: int, size: int
) -> Iterator[tuple[tuple[int, Fact], int]]:
    """The facts of a community from a place on, each with its place. Reads `size` of them together."""

    def read(members: Sequence[tuple[int, FactId]]) -> Iterator[tuple[int, Fact | None]]:
        places, ids = zip(*members, strict=True)
        return zip(places, FactReader(view).facts_unless_erased(ids), strict=True)

    for place, fact in read_together(CommunityReader(view).members(community, start), size, read):
        if fact is not None and fact.is_searched:
            yield (place, fact), FoundFact(fact, view.corpus.id).size_bytes


_OVERHEAD_BYTES: Final = 200
"""A generous guess of what ids and times take in an answer."""
_CURSOR_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Communities:
    communities: list[Community]
    next_token: str
    revision: Revision
    last_run: CommunityRun | None
    """The last run up to this revision. None for a revision before it."""


def list_communities(
    reads: FactReads,
    cache: CommunityCache,
    call: Call,
    *,
    tenant: TenantId | None,
    corpus: CorpusId,
    as_of: AsOf,
    size: int,
    token: str,
) -> Communities:
    """A page of communities with their numbers of facts, the largest first. Later pages are of the same revision."""
    limit = PageLimit(page_size(size), reads.unit.page_bytes_max)
    listing = f"communities of {corpus}"
    cursor = read_token(listing, token)
    start = 0
    if cursor is not None:
        as_of, start = AsOf(Revision(int.from_bytes(cursor[:6], "big"))), int.from_bytes(cursor[6:], "big")

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Communities:
        view = reads.at(tr, granted, trail, corpus, as_of)
        items, more = fill_page(_sized_list(cache, view, start, limit.items + 1), limit)
        trail.detail["communities"] = len(items)
        place = (items[-1][0] + 1).to_bytes(_CURSOR_BYTES, "big") if more else b""
        token = make_token(listing, view.revision.to_bytes(6, "big") + place) if more else ""
        run = communities.last_run(tr, view.keys)
        known = run if run is not None and run.revision <= view.revision else None
        return Communities([community for _, community in items], token, view.revision, known)

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _sized_list(
    cache: CommunityCache, view: CorpusAtRevision, start: int, size: int
) -> Iterator[tuple[tuple[int, Community], int]]:
    """The communities from a place in the list on, each with its place. Leaves out those whose words were erased.

    Reads `size` of them together.
    """
    listed = cache.at(view).by_size()[start:]
    found = read_together((id_ for id_, _ in listed), size, CommunityReader(view).communities)
    for place, ((_, facts), community) in enumerate(zip(listed, found, strict=True), start):
        if community is not None:
            yield (place, replace(community, size=facts)), _size_bytes(community)


def _size_bytes(community: Community) -> int:
    """About how much of an answer a community takes."""
    return _OVERHEAD_BYTES + 4 * sum(map(len, (community.label, *community.keywords)))
