"""Plain data of cores: records of exports, reports of imports, and records from cores of other systems."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Final, Protocol

import numpy as np

from drillcore_formats.cores import InvalidCore
from drillcore_proto.reasons import Reason
from drillcore_server.kernel.errors import BadInput
from drillcore_server.storage.ids import CorpusId, RecordId, Revision, SourceId

CORE_ID_CHARACTERS_MAX: Final = 1_000
HALF: Final = np.dtype("<f2")
"""How full cores have the numbers of the vectors of chunks."""


class CoreKind(enum.Enum):
    FULL = "full"
    PLAIN = "plain"
    DOCUMENT_EMBEDDINGS = "document_embeddings"


@dataclass(frozen=True, slots=True)
class CoreCounts:
    """What a core contains. The names are those of the protocol."""

    records: int = 0
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

    def by_name(self) -> dict[str, int]:
        """Returns the counts that are not zero."""
        return {item.name: count for item in fields(self) if (count := getattr(self, item.name))}


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

    def with_records(self, records: int) -> CoreCounts:
        """Returns the counts for a file with so many records."""
        return CoreCounts(records=records, **asdict(self))


@dataclass(frozen=True, slots=True)
class CoreExport:
    """An exported core. Its record never changes, and its file is not stored."""

    corpus: CorpusId
    revision: Revision
    core_id: str
    sha256: bytes
    size_bytes: int
    counts: CoreCounts
    at: datetime
    record: RecordId
    """The audit record of the export."""
    key_number: int
    """The number of the key that signs for it, which also signed its audit record."""


def check_core_id(core_id: str) -> None:
    if len(core_id) > CORE_ID_CHARACTERS_MAX or not core_id.isprintable():
        message = f"core_id must have at most {CORE_ID_CHARACTERS_MAX:,} characters, all printable"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="core_id")


SKIPPED_MAX: Final = 1_000
"""Skipped records that are reported one by one. Further ones are only counted."""
SKIPPED_CHARACTERS_MAX: Final = 200
"""For an id or a message of a skipped record, because a thousand of them must fit into an answer."""
UNKNOWN_TAG: Final = "UNKNOWN_TAG"
BLOB_WITHOUT_METADATA: Final = "BLOB_WITHOUT_METADATA"
DUPLICATE: Final = "DUPLICATE"
OTHER_DIMENSION: Final = "OTHER_DIMENSION"
INVALID_TERM: Final = "INVALID_TERM"
DERIVED: Final = "DERIVED"
"""Computed again from the records of a full core, so nothing is lost."""


class RecordPlace(Protocol):
    """The place of a record in a core file."""

    @property
    def number(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def tag(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record, or a part of one, that an import left out."""

    record: int
    """The number of the record in the file, from 1."""
    offset_bytes: int
    tag: str
    id: str
    """The id of the skipped record, if it has one. A long id is cut."""
    reason: str
    message: str


@dataclass(slots=True)
class Skips:
    """Collects the records that an import leaves out. With `strict`, none may be left out."""

    strict: bool
    reported: list[Skipped] = field(default_factory=list)
    count: int = 0

    def copy(self) -> Skips:
        """Returns a copy for one plan, which adds to it. The copy is dropped with the plan."""
        return Skips(self.strict, list(self.reported), self.count)

    def skip(self, record: RecordPlace, reason: str, message: str, id_: str = "", times: int = 1) -> None:
        """Notes a record that is left out. Raises `InvalidCore` if the import is strict, except for `DERIVED`."""
        if self.strict and reason != DERIVED:
            raise InvalidCore(record.number, record.offset, f"{reason}: {message}")
        self.count += times
        if len(self.reported) < SKIPPED_MAX:
            short_id, short_message = id_[:SKIPPED_CHARACTERS_MAX], message[:SKIPPED_CHARACTERS_MAX]
            skipped = Skipped(record.number, record.offset, record.tag, short_id, reason, short_message)
            self.reported.append(skipped)


LIBRARY_ID_CHARACTERS_MAX: Final = 8_000
LIBRARY_TEXT_CHARACTERS_MAX: Final = 100_000
"""For a title or a comment."""
LIBRARY_TAGS_MAX: Final = 1_000
VECTOR_DIMENSIONS_MAX: Final = 65_536


class VectorKind(enum.IntEnum):
    """The numbers are part of keys."""

    GRAPH = 1
    """A vector of an entity of a graph, known by its term."""
    DOCUMENT = 2
    """A vector of a piece of a document, known by its id."""


@dataclass(frozen=True, slots=True)
class LibraryDocument:
    """A document that came with a core of another system, without its content."""

    id: str
    media_type: str
    title: str
    parent: str
    """The id of the document that contains it, or empty."""
    document_type: str
    comments: str
    tags: tuple[str, ...]
    source: SourceId
    size_bytes: int = 0
    sha256: bytes = b""
    """The hash of its content; empty if it came without content."""

    @property
    def has_content(self) -> bool:
        return bool(self.sha256)


@dataclass(frozen=True, slots=True)
class EntityVector:
    """One vector of an entity, which may have several."""

    kind: VectorKind
    entity: bytes
    """As `encoded_term` writes it; for a piece of a document, the UTF-8 bytes of its id."""
    source: SourceId
    dimensions: int
    vector: bytes
    """Little-endian floats of 32 bits if that is exact, else of 64."""
