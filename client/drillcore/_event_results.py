"""What changes, as those who watch hear of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from drillcore._fact_results import FactStatus


class EventKind(enum.Enum):
    FACT_ADDED = "fact_added"
    FACT_CHANGED = "fact_changed"
    """Content, metadata, weight, ttl or status; archived or restored."""
    FACT_QUARANTINED = "fact_quarantined"
    FACT_ERASED = "fact_erased"
    SOURCE_CHANGED = "source_changed"
    """A document came, was updated, removed or erased."""
    COMMUNITIES_RECOMPUTED = "communities_recomputed"
    STATE_CHANGED = "state_changed"
    """The last of each revision."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened in a corpus. It holds ids, never content."""

    kind: EventKind
    corpus_id: UUID
    revision: int
    at: datetime
    fact_id: UUID | None
    """Of events about a fact."""
    fact_status: FactStatus | None
    """After the change."""
    document_id: UUID | None
    """Of events about a source: its document."""
    resume_token: str
    """Goes on after this event."""
