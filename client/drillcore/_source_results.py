"""What calls about sources and their erasure return."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID


class SourceStatus(enum.Enum):
    ACTIVE = "active"
    UPDATED = "updated"
    """Its content has changed since the first version."""
    REMOVED = "removed"
    """Its document was removed."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where documents and facts of a corpus come from."""

    id: str
    corpus_id: UUID
    title: str
    uri: str
    """Where the document is, if its id or metadata say so."""
    source_type: str
    """regulatory, official, research, internal, web or user."""
    status: SourceStatus
    version: int
    """1 for the first content, one more with each change."""
    document_id: UUID | None
    """That holds its content now."""
    document_hash: str
    """SHA-256 of the text's UTF-8 bytes, in hex."""
    fact_count: int
    """Facts of it that are not deleted."""
    ingested_at: datetime
    """When it first came."""
    changed_at: datetime
    revision: int = field(compare=False)
    """Of the corpus, that was read."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """The erasure of a source, which is itself never erased. It does not say which source it was."""

    id: UUID
    corpus_id: UUID
    erased_at: datetime
    erased_by: str
    revision: int
    """From which on the source is not there; at earlier ones it cannot be read."""
    erased_keys: tuple[int, ...]
    """Numbers of the keys that were destroyed."""
    documents: int
    chunks: int
    facts: int
    sections_regenerated: int
    purge_due: datetime
    """Until when the unreadable bytes are removed."""
    purged_at: datetime | None
    """None: not yet."""
    audit_record_id: UUID | None
    """Of the record that proves it."""


@dataclass(frozen=True, slots=True)
class Purged:
    """What a purge of erased sources did."""

    erasures: int
    """That were purged by this call."""
    records_removed: int
    finished: bool
    """False: there is more to remove. Call again, or leave it to the server."""
