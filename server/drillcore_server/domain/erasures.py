"""Erasures: sources that were made unreadable for ever, and the removal of the bytes that they left."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from drillcore_server.domain.ids import (
    CorpusId,
    CorpusNumber,
    PrincipalId,
    RecordId,
    RequestId,
    Revision,
    TenantId,
)


@dataclass(frozen=True, slots=True)
class ErasedKey:
    number: int
    scope: bytes
    """The keyed hash of the source that it was of."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """That a source was erased. Who has no master key cannot tell from it which."""

    id: UUID
    number: int
    """Of the erasures of its corpus, 1 for the first."""
    source: bytes
    """Its keyed hash."""
    keys: tuple[ErasedKey, ...]
    """Destroyed with it: the source's own, and that of the corpus's saved indexes."""
    at: datetime
    by: PrincipalId
    revision: Revision
    """From which on it is not there."""
    record: RecordId
    """The audit record of the erasure."""
    documents: int
    chunks: int
    facts: int
    sections: int
    """That were made anew without it."""
    purge_due: datetime
    destroyed_at: datetime | None = None
    """None only between the commit and the destruction of its keys."""
    purged_at: datetime | None = None

    @property
    def key_numbers(self) -> tuple[int, ...]:
        return tuple(key.number for key in self.keys)


@dataclass(frozen=True, slots=True)
class NotedErasure:
    """What every server must know of an erasure before it reads anything more."""

    corpus: CorpusNumber
    erasure: int
    """Its number in the corpus."""
    keys: tuple[int, ...]
    tenant_id: TenantId
    corpus_id: CorpusId


@dataclass(frozen=True, slots=True)
class Purge:
    """The removal of what erased sources left in a corpus.

    First all of it is listed, then the list is put on the record, and only then is it removed.
    """

    number: int
    """Of the purges of its corpus, 1 for the first."""
    erasures: tuple[int, ...]
    """Their numbers."""
    keys: tuple[int, ...]
    """What is sealed under any of these goes."""
    batches: int = 0
    """Of the list."""
    listed: int = 0
    """Records on the list."""
    cursor: bytes = b""
    """Where the walk under way goes on: the first lists, the second removes."""
    is_listed: bool = False
    root: bytes = b""
    """Of the list, as the audit record has it."""
    record: UUID | None = None
    """The audit record that the list is in; nothing is removed before there is one."""
    by: PrincipalId | None = None
    request_id: RequestId | None = None
    """What leads to that record."""
    removed: int = 0
    finished: bool = False
