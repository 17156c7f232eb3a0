"""Facts as a caller gets them, and what a caller asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from drillcore_server.domain.facts import Fact, FactStatus
from drillcore_server.domain.ids import CommunityId, CorpusId, DocumentId, FactId, NodeId, SourceId

_OVERHEAD_BYTES: Final = 800
"""Of ids, times, hashes and numbers in an answer: a generous guess."""


@dataclass(frozen=True, slots=True)
class FoundFact:
    fact: Fact
    corpus: CorpusId
    access_count: int = 0
    last_accessed_at: datetime | None = None
    community: CommunityId | None = None
    community_label: str = ""
    embedding: tuple[float, ...] = ()
    embedding_model: str = ""
    session_only: bool = False

    @property
    def id(self) -> FactId:
        return self.fact.id

    @property
    def size_bytes(self) -> int:
        """About what it takes in an answer."""
        fact = self.fact
        texts = [fact.content, fact.source, fact.source_location, fact.status_reason, self.community_label]
        texts += [*fact.metadata, *fact.metadata.values()]
        return _OVERHEAD_BYTES + 4 * sum(map(len, texts)) + 4 * len(self.embedding)


@dataclass(frozen=True, slots=True)
class FactFilters:
    """Every filter that is set must hold; within one, any of its values will do, but metadata must have all."""

    sources: frozenset[SourceId] = frozenset()
    statuses: frozenset[FactStatus] = frozenset()
    communities: frozenset[CommunityId] = frozenset()
    metadata: Mapping[str, str] = field(default_factory=dict)
    ingested_after: datetime | None = None
    ingested_before: datetime | None = None
    documents: frozenset[DocumentId] = frozenset()
    chunks: frozenset[NodeId] = frozenset()

    def allows(self, fact: Fact, community: CommunityId | None) -> bool:
        return (
            (not self.sources or fact.source in self.sources)
            and (not self.statuses or fact.status in self.statuses)
            and (not self.communities or community in self.communities)
            and (not self.documents or fact.document in self.documents)
            and (not self.chunks or fact.chunk in self.chunks)
            and self.metadata.items() <= fact.metadata.items()
            and (self.ingested_after is None or fact.ingested_at >= self.ingested_after)
            and (self.ingested_before is None or fact.ingested_at < self.ingested_before)
        )

    def in_order(self) -> tuple[object, ...]:
        """The filters in an order that does not depend on the process."""
        sets = (self.sources, self.statuses, self.communities, self.documents, self.chunks)
        times = self.ingested_after, self.ingested_before
        return (*(sorted(one) for one in sets), sorted(self.metadata.items()), *times)
