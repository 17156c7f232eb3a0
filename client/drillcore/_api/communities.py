"""Communities: facts of a corpus that belong together."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore._api.fact_data import Fact, to_fact
from drillcore._api.messages import AsOf, as_of_message, to_datetime
from drillcore._transport.call import Call, Id, Page, id_text
from drillcore_proto.v1 import communities_pb2 as pb


@dataclass(frozen=True, slots=True)
class Community:
    """Facts of a corpus that belong together."""

    id: UUID
    corpus_id: UUID
    label: str
    keywords: tuple[str, ...]
    size: int
    """How many facts it has."""
    made_at: datetime


@dataclass(frozen=True, slots=True)
class CommunityRun:
    """One computation of the communities of a corpus."""

    at: datetime
    of_revision: int
    """The revision whose facts were used."""
    revision: int
    """The revision that it made; the same as before if nothing changed."""
    facts: int
    communities: int
    trigger: str
    """request, facts or schedule."""
    took_s: float


@dataclass(frozen=True, slots=True)
class CommunityPage(Page[Community]):
    """Some of the communities of a corpus, largest first."""

    revision: int
    """The revision of the corpus that was read."""
    last_run: CommunityRun | None
    """None if they were never computed."""


@dataclass(frozen=True, slots=True)
class CommunityFacts(Page[Fact]):
    """A community with some of its facts, most important first."""

    community: Community
    revision: int


@dataclass(frozen=True, slots=True)
class Recomputed:
    """The result of computing communities again."""

    run: CommunityRun | None
    """This run or, while it is still running, the one before."""
    changed: bool
    """Whether it made a new revision."""
    running: bool = False
    """Whether it is still running, because the call ran out of time. `list_communities` shows when it is done."""


def to_page(message: pb.ListCommunitiesResponse) -> CommunityPage:
    return CommunityPage(
        items=tuple(map(_to_community, message.communities)),
        next_page_token=message.next_page_token,
        revision=message.revision,
        last_run=_to_run(message.last_run) if message.HasField("last_run") else None,
    )


def to_facts(message: pb.GetCommunityResponse) -> CommunityFacts:
    return CommunityFacts(
        items=tuple(to_fact(fact, message.revision) for fact in message.facts),
        next_page_token=message.next_page_token,
        community=_to_community(message.community),
        revision=message.revision,
    )


def to_recomputed(message: pb.RecomputeCommunitiesResponse) -> Recomputed:
    return Recomputed(_to_run(message.run) if message.HasField("run") else None, message.changed, message.running)


def _to_community(message: pb.Community) -> Community:
    return Community(
        id=UUID(message.id),
        corpus_id=UUID(message.corpus_id),
        label=message.label,
        keywords=tuple(message.keywords),
        size=message.size,
        made_at=to_datetime(message.made_at),
    )


def _to_run(message: pb.CommunityRun) -> CommunityRun:
    return CommunityRun(
        at=to_datetime(message.at),
        of_revision=message.of_revision,
        revision=message.revision,
        facts=message.facts,
        communities=message.communities,
        trigger=message.trigger,
        took_s=message.took_s,
    )


_COMMUNITIES: Final = "/drillcore_proto.v1.CommunityService/"


def list_communities(
    corpus_id: Id,
    *,
    as_of: AsOf | None = None,
    page_size: int = 0,
    page_token: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[CommunityPage]:
    """One page of the communities of a corpus, largest first, and when they were last computed."""

    def decode(answer: bytes) -> CommunityPage:
        return to_page(pb.ListCommunitiesResponse.FromString(answer))

    request = pb.ListCommunitiesRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        as_of=as_of_message(as_of),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_COMMUNITIES}ListCommunities", request, decode, request_id, timeout_s)


def get_community(
    corpus_id: Id,
    community_id: Id,
    *,
    as_of: AsOf | None = None,
    page_size: int = 0,
    page_token: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[CommunityFacts]:
    """A community with one page of its facts, most important first. It counts as no access. Raises NotFound."""

    def decode(answer: bytes) -> CommunityFacts:
        return to_facts(pb.GetCommunityResponse.FromString(answer))

    request = pb.GetCommunityRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        id=id_text(community_id),
        as_of=as_of_message(as_of),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_COMMUNITIES}GetCommunity", request, decode, request_id, timeout_s)


def recompute_communities(
    corpus_id: Id,
    *,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Recomputed]:
    """Compute the communities of a corpus again, now. The server does this on its own after many new facts, and weekly.

    It takes a while on a large corpus: give it a `timeout_s`. The same facts give the same communities.
    """

    def decode(answer: bytes) -> Recomputed:
        return to_recomputed(pb.RecomputeCommunitiesResponse.FromString(answer))

    request = pb.RecomputeCommunitiesRequest(tenant_id=id_text(tenant_id), corpus_id=id_text(corpus_id))
    return Call(f"{_COMMUNITIES}RecomputeCommunities", request, decode, request_id, timeout_s)
