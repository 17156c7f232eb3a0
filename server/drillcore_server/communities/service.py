"""CommunityService: messages to commands and back."""

from __future__ import annotations

from drillcore_proto.v1 import communities_pb2 as pb
from drillcore_server.communities.memberships import CommunityCache
from drillcore_server.communities.model import Community, CommunityRun
from drillcore_server.communities.read import get_community, list_communities
from drillcore_server.communities.recompute import CommunityRuns
from drillcore_server.facts.fact_reads import FactReads
from drillcore_server.facts.service import fact_message
from drillcore_server.hierarchy.service import as_of
from drillcore_server.kernel.messages import any_id, corpus_id, optional_tenant_id, timestamp
from drillcore_server.kernel.revise import Target
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import CommunityId, CorpusId


class CommunityService:
    def __init__(self, reads: FactReads, communities: CommunityCache, runs: CommunityRuns) -> None:
        self._reads = reads
        self._communities = communities
        self._runs = runs

    def ListCommunities(self, request: pb.ListCommunitiesRequest, call: Call) -> pb.ListCommunitiesResponse:
        corpus = corpus_id(request.corpus_id, "corpus_id")
        found = list_communities(
            self._reads,
            self._communities,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            corpus=corpus,
            as_of=as_of(request.as_of),
            size=request.page_size,
            token=request.page_token,
        )
        return pb.ListCommunitiesResponse(
            communities=[_community(community, corpus) for community in found.communities],
            next_page_token=found.next_token,
            revision=found.revision,
            last_run=_run(found.last_run),
        )

    def GetCommunity(self, request: pb.GetCommunityRequest, call: Call) -> pb.GetCommunityResponse:
        corpus = corpus_id(request.corpus_id, "corpus_id")
        found = get_community(
            self._reads,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            corpus=corpus,
            community=CommunityId(any_id(request.id, "id")),
            as_of=as_of(request.as_of),
            size=request.page_size,
            token=request.page_token,
        )
        return pb.GetCommunityResponse(
            community=_community(found.community, corpus),
            facts=map(fact_message, found.facts),
            next_page_token=found.next_token,
            revision=found.revision,
        )

    def RecomputeCommunities(
        self, request: pb.RecomputeCommunitiesRequest, call: Call
    ) -> pb.RecomputeCommunitiesResponse:
        target = Target(optional_tenant_id(request.tenant_id), corpus_id(request.corpus_id, "corpus_id"))
        done = self._runs.recompute(call, target)
        return pb.RecomputeCommunitiesResponse(run=_run(done.run), changed=done.changed, running=done.running)


def _community(community: Community, corpus: CorpusId) -> pb.Community:
    return pb.Community(
        id=str(community.id),
        corpus_id=str(corpus),
        label=community.label,
        keywords=community.keywords,
        size=community.size,
        made_at=timestamp(community.made_at),
    )


def _run(run: CommunityRun | None) -> pb.CommunityRun | None:
    if run is None:
        return None
    return pb.CommunityRun(
        at=timestamp(run.at),
        of_revision=run.of_revision,
        revision=run.revision,
        facts=run.facts,
        communities=run.communities,
        trigger=run.trigger.value,
        took_s=run.took_s,
    )
