"""Protocol messages about communities to results."""

from __future__ import annotations

from uuid import UUID

from drillcore._community_results import Community, CommunityFacts, CommunityPage, CommunityRun, Recomputed
from drillcore._convert import to_datetime
from drillcore._convert_facts import fact
from drillcore_proto.v1 import communities_pb2 as pb


def page(message: pb.ListCommunitiesResponse) -> CommunityPage:
    return CommunityPage(
        items=tuple(map(_community, message.communities)),
        next_page_token=message.next_page_token,
        revision=message.revision,
        last_run=_run(message.last_run) if message.HasField("last_run") else None,
    )


def facts(message: pb.GetCommunityResponse) -> CommunityFacts:
    return CommunityFacts(
        items=tuple(fact(one, message.revision) for one in message.facts),
        next_page_token=message.next_page_token,
        community=_community(message.community),
        revision=message.revision,
    )


def recomputed(message: pb.RecomputeCommunitiesResponse) -> Recomputed:
    return Recomputed(_run(message.run) if message.HasField("run") else None, message.changed, message.running)


def _community(message: pb.Community) -> Community:
    return Community(
        id=UUID(message.id),
        corpus_id=UUID(message.corpus_id),
        label=message.label,
        keywords=tuple(message.keywords),
        size=message.size,
        made_at=to_datetime(message.made_at),
    )


def _run(message: pb.CommunityRun) -> CommunityRun:
    return CommunityRun(
        at=to_datetime(message.at),
        of_revision=message.of_revision,
        revision=message.revision,
        facts=message.facts,
        communities=message.communities,
        trigger=message.trigger,
        took_s=message.took_s,
    )
