"""Raw calls of CommunityService, and facts that are known to belong together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np

from drillcore_proto.v1 import communities_pb2 as pb
from drillcore_proto.v1 import communities_pb2_grpc, facts_pb2, sources_pb2_grpc
from tests.support.callers.facts import FactCaller
from tests.support.servers.running import Running

MODEL = "planted"
DIMENSIONS = 16
TOPICS = {
    "salmon": "the wild salmon of the northern river is counted by wardens at the old weir each spring",
    "turbine": "the steam turbine of the power station is overhauled by engineers after so many hours",
    "orchard": "the apple orchard behind the monastery is pruned by gardeners before the first frost",
    "violin": "the baroque violin in the museum is tuned by luthiers ahead of every public concert",
}
"""The words that the facts of a topic share. Topics have no meaningful word in common."""


class CommunityCaller(FactCaller):
    def __init__(self, server: Running, token: str) -> None:
        super().__init__(server, token)
        self.communities = communities_pb2_grpc.CommunityServiceStub(self._channel)
        self.sources = sources_pb2_grpc.SourceServiceStub(self._channel)

    def recompute(
        self, corpus: str, request_id: str | None = None, timeout_s: float = 60.0
    ) -> pb.RecomputeCommunitiesResponse:
        request = pb.RecomputeCommunitiesRequest(corpus_id=corpus)
        return self.communities.RecomputeCommunities(request, **self.options(request_id, timeout_s))

    def page(self, corpus: str, **fields: Any) -> pb.ListCommunitiesResponse:
        request = pb.ListCommunitiesRequest(corpus_id=corpus, **fields)
        return self.communities.ListCommunities(request, **self.options())

    def all_communities(self, corpus: str, **fields: Any) -> list[pb.Community]:
        found: list[pb.Community] = []
        token = ""
        while True:
            page = self.page(corpus, page_token=token, **fields)
            found += page.communities
            token = page.next_page_token
            if not token:
                return found

    def community(self, corpus: str, community_id: str, **fields: Any) -> pb.GetCommunityResponse:
        request = pb.GetCommunityRequest(corpus_id=corpus, id=community_id, **fields)
        return self.communities.GetCommunity(request, **self.options())

    def members(self, corpus: str, **fields: Any) -> dict[str, set[str]]:
        """The facts of each community, by its id."""
        return {
            community.id: set(self.facts_of(corpus, community.id, **fields))
            for community in self.all_communities(corpus, **fields)
        }

    def facts_of(self, corpus: str, community_id: str, **fields: Any) -> Iterator[str]:
        token = ""
        while True:
            page = self.community(corpus, community_id, page_token=token, **fields)
            yield from (fact.fact_id for fact in page.facts)
            token = page.next_page_token
            if not token:
                return

    def plant(self, corpus: str, *drafts: facts_pb2.FactDraft) -> list[str]:
        return list(self.put(corpus, *drafts, embedding_model=MODEL).fact_ids)


def planted(topic: str, count: int, start: int = 0, **fields: Any) -> list[facts_pb2.FactDraft]:
    """Facts of a topic, whose vectors are near each other and far from those of other topics."""
    return [draft(topic, number, **fields) for number in range(start, start + count)]


def draft(topic: str, number: int, **fields: Any) -> facts_pb2.FactDraft:
    said = {
        "fact_id": str(fact_of(topic, number)),
        "content": f"In year {1900 + number} {TOPICS[topic]}.",
        "source_id": f"about {topic}",
        "embedding": vector(topic, number),
    }
    return facts_pb2.FactDraft(**{**said, **fields})


def fact_of(topic: str, number: int) -> UUID:
    return UUID(int=(list(TOPICS).index(topic) + 1) << 64 | number)


def vector(topic: str, number: int) -> Sequence[float]:
    random = np.random.default_rng([list(TOPICS).index(topic), number])
    towards = np.zeros(DIMENSIONS)
    towards[list(TOPICS).index(topic)] = 1.0
    found: list[float] = (towards + 0.1 * random.standard_normal(DIMENSIONS)).tolist()
    return found


def topic_drafts(**counts: int) -> list[facts_pb2.FactDraft]:
    return [draft for topic, count in counts.items() for draft in planted(topic, count)]


def ids_of(counts: Mapping[str, int]) -> dict[str, set[str]]:
    return {topic: {str(fact_of(topic, number)) for number in range(count)} for topic, count in counts.items()}
