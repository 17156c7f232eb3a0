"""Reports what an import leaves out and why, and counts what it stores."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Final, Protocol

from drillcore_formats.cores import InvalidCore
from drillcore_server.cores.model import CoreCounts

SKIPPED_MAX: Final = 1_000
"""Skipped records that are reported one by one; the others are only counted."""
TOLD_CHARACTERS_MAX: Final = 200
"""For an id or a message: a thousand of them must fit into an answer."""
UNKNOWN_TAG: Final = "UNKNOWN_TAG"
BLOB_WITHOUT_METADATA: Final = "BLOB_WITHOUT_METADATA"
DUPLICATE: Final = "DUPLICATE"
OTHER_DIMENSION: Final = "OTHER_DIMENSION"
INVALID_TERM: Final = "INVALID_TERM"
DERIVED: Final = "DERIVED"
"""Made again from the records of a full core, so nothing is lost."""


class Placed(Protocol):
    """A record of the file."""

    @property
    def number(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def tag(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Skipped:
    record: int
    """Its number in the file, from 1."""
    offset_bytes: int
    tag: str
    id: str
    """The id of what was skipped, if it has one; a long id is cut."""
    reason: str
    message: str


@dataclass(slots=True)
class Skips:
    strict: bool
    told: list[Skipped] = field(default_factory=list)
    count: int = 0

    def copy(self) -> Skips:
        """A plan adds to the copy, which is dropped with the plan."""
        return Skips(self.strict, list(self.told), self.count)

    def skip(self, record: Placed, reason: str, message: str, of: str = "", times: int = 1) -> None:
        """Raises `InvalidCore` where nothing may be skipped."""
        if self.strict and reason != DERIVED:
            raise InvalidCore(record.number, record.offset, f"{reason}: {message}")
        self.count += times
        if len(self.told) < SKIPPED_MAX:
            said, why = of[:TOLD_CHARACTERS_MAX], message[:TOLD_CHARACTERS_MAX]
            self.told.append(Skipped(record.number, record.offset, record.tag, said, reason, why))


@dataclass(slots=True)
class StoredCounts:
    """Counts writes as they are read. The names are those of `CoreCounts`."""

    quads: int = 0
    entity_vectors: int = 0
    library_documents: int = 0
    documents: int = 0
    sections: int = 0
    chunks: int = 0
    facts: int = 0
    sources: int = 0
    communities: int = 0
    signatures: int = 0
    turns: int = 0
    edges: int = 0

    def of(self, records: int) -> CoreCounts:
        """Returns the counts for a file with so many records."""
        return CoreCounts(records=records, **asdict(self))
