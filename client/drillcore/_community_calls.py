"""Calls about communities. See `_calls`."""

from __future__ import annotations

from typing import Final

from drillcore import _convert_communities as convert
from drillcore import _convert_nodes
from drillcore._call import Call, Id, Pages, id_text
from drillcore._community_results import Community, CommunityFacts, CommunityPage, Recomputed
from drillcore._convert_nodes import AsOf
from drillcore._fact_results import Fact
from drillcore_proto.v1 import communities_pb2 as pb

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
    """One page of the communities of a corpus, the largest first, and when they were last computed."""

    def decode(answer: bytes) -> CommunityPage:
        return convert.page(pb.ListCommunitiesResponse.FromString(answer))

    request = pb.ListCommunitiesRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        as_of=_convert_nodes.as_of_message(as_of),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_COMMUNITIES}ListCommunities", request, decode, request_id, timeout_s)


def iter_communities(
    corpus_id: Id,
    *,
    as_of: AsOf | None = None,
    page_size: int = 0,
    tenant_id: Id | None = None,
    timeout_s: float | None = None,
) -> Pages[Community]:
    """Every community of a corpus, the largest first, all of one moment. `timeout_s` is for each page."""
    return lambda token: list_communities(
        corpus_id, as_of=as_of, page_size=page_size, page_token=token, tenant_id=tenant_id, timeout_s=timeout_s
    )


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
    """A community with one page of its facts, the most important first. No access is counted. Raises NotFound."""

    def decode(answer: bytes) -> CommunityFacts:
        return convert.facts(pb.GetCommunityResponse.FromString(answer))

    request = pb.GetCommunityRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        id=id_text(community_id),
        as_of=_convert_nodes.as_of_message(as_of),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_COMMUNITIES}GetCommunity", request, decode, request_id, timeout_s)


def iter_community_facts(
    corpus_id: Id,
    community_id: Id,
    *,
    as_of: AsOf | None = None,
    page_size: int = 0,
    tenant_id: Id | None = None,
    timeout_s: float | None = None,
) -> Pages[Fact]:
    """Every fact of a community, the most important first, all of one moment. `timeout_s` is for each page."""
    return lambda token: get_community(
        corpus_id,
        community_id,
        as_of=as_of,
        page_size=page_size,
        page_token=token,
        tenant_id=tenant_id,
        timeout_s=timeout_s,
    )


def recompute_communities(
    corpus_id: Id,
    *,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Recomputed]:
    """Compute the communities of a corpus anew, now. The server does it by itself after many new facts, and weekly.

    It takes a while on a large corpus: give it a `timeout_s`. Equal facts give equal communities.
    """

    def decode(answer: bytes) -> Recomputed:
        return convert.recomputed(pb.RecomputeCommunitiesResponse.FromString(answer))

    request = pb.RecomputeCommunitiesRequest(tenant_id=id_text(tenant_id), corpus_id=id_text(corpus_id))
    return Call(f"{_COMMUNITIES}RecomputeCommunities", request, decode, request_id, timeout_s)
