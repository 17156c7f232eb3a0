"""What calls about embedding models return."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    name: str
    dimensions: int


@dataclass(frozen=True, slots=True)
class Migration:
    """Which embedding model a corpus uses, and how far its change to another is."""

    corpus_id: UUID
    current: EmbeddingModel | None
    """What searches use now; None: nothing was embedded yet."""
    next: EmbeddingModel | None
    """None: no migration is under way."""
    done: int
    """Chunks and facts that have their new vector."""
    total: int
    begun_at: datetime | None
    finished_at: datetime | None
    """Of the last one."""


@dataclass(frozen=True, slots=True)
class MigrationProgress:
    """How far a migration is."""

    migration: Migration
    finished: bool
    """True only in the last: searches use the new model."""
    revision: int
