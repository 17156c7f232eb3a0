"""What a query asks for besides its text."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from drillcore_server.domain.digests import Entity
from drillcore_server.domain.ids import DocumentId, SourceId


@dataclass(frozen=True, slots=True)
class Filters:
    """Every filter that is set must hold; within one, any of its values will do, but a chunk must name all entities."""

    categories: frozenset[str] = frozenset()
    entities: frozenset[Entity] = frozenset()
    """An empty value means any of the type."""
    documents: frozenset[DocumentId] = frozenset()
    sources: frozenset[SourceId] = frozenset()
    created_after: datetime | None = None
    created_before: datetime | None = None

    def allows_time(self, at: datetime) -> bool:
        if self.created_after is not None and at < self.created_after:
            return False
        return self.created_before is None or at < self.created_before

    def in_order(self) -> tuple[object, ...]:
        """The filters in an order that does not depend on the process."""
        sets = (self.categories, self.entities, self.documents, self.sources)
        return (*(sorted(one) for one in sets), self.created_after, self.created_before)
