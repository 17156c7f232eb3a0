"""The plain types in keys and records: ids, levels, spans of a document, and times as numbers.

Each id has a type of its own, so that one cannot be passed for another.
"""

from __future__ import annotations

import enum
import os
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, NewType
from uuid import UUID

TenantId = NewType("TenantId", UUID)
CorpusId = NewType("CorpusId", UUID)
PrincipalId = NewType("PrincipalId", str)
AccountId = NewType("AccountId", UUID)
RecordId = NewType("RecordId", UUID)
"""The id of an audit record."""
RequestId = NewType("RequestId", str)
DocumentId = NewType("DocumentId", UUID)
SourceId = NewType("SourceId", str)
NodeId = NewType("NodeId", UUID)
FactId = NewType("FactId", UUID)
BlockId = NewType("BlockId", UUID)
"""The id of a block of facts: of the chunk that they were drawn from, of a block of its own, or of its only fact."""
CommunityId = NewType("CommunityId", UUID)
EnvelopeId = NewType("EnvelopeId", UUID)
TurnId = NewType("TurnId", UUID)
Revision = NewType("Revision", int)
"""Counts the changes of a corpus: 0 before the first one."""
CorpusNumber = NewType("CorpusNumber", int)
"""Names a corpus in keys, where its id would be too long. Never reused."""

_lock = threading.Lock()
_last = 0
"""The last id's time: 48 bits of milliseconds since 1970, then a count of 12 bits within the millisecond."""


def new_uuid() -> UUID:
    """A new UUID of version 7: greater than every id that this process made before, and than nearly all made elsewhere.

    Records that are made together therefore lie together in the store: they fill its pages, and one scan reads them.
    """
    global _last  # noqa: PLW0603 - the order of ids is the process's, as its clock is
    with _lock:
        _last = max(_last + 1, time.time_ns() // 1_000_000 << 12)
        at = _last
    milliseconds, count = at >> 12, at & 0xFFF
    chance = int.from_bytes(os.urandom(8), "big") >> 2
    return UUID(int=milliseconds << 80 | 7 << 76 | count << 64 | 0b10 << 62 | chance)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def from_microseconds(number: int) -> datetime:
    return _EPOCH + number * _MICROSECOND


def to_microseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


class Level(enum.IntEnum):
    RAW = 0
    CHUNK = 1
    SECTION = 2
    MASTER = 3

    @property
    def word(self) -> str:
        """The level's name for callers and in audit records."""
        return self.name.lower()

    @classmethod
    def named(cls, word: str) -> Level:
        return cls[word.upper()]


class Membership(NamedTuple):
    """A chunk's place in its section: by document, then in reading order."""

    id: NodeId
    document: DocumentId
    ordinal: int


def node_id(stored: bytes) -> NodeId:
    return NodeId(UUID(bytes=stored))


SOURCE_CHARACTERS_MAX: Final = 1_000
"""The longest id of a source."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Characters `start` up to, not including, `end` of a document's text."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not a span: {self.start} to {self.end}")

    def of(self, text: str) -> str:
        return text[self.start : self.end]

    def __len__(self) -> int:
        return self.end - self.start
