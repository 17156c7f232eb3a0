"""Records of exported cores (not their files), and what came with another system's core: library documents
and vectors."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.kernel.errors import BadInput
from drillcore_server.storage.ids import CorpusId, RecordId, Revision, SourceId

CORE_ID_CHARACTERS_MAX: Final = 1_000


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
        return {field.name: count for field in fields(self) if (count := getattr(self, field.name))}


@dataclass(frozen=True, slots=True)
class CoreExport:
    """Never changes."""

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
        message = f"core_id has up to {CORE_ID_CHARACTERS_MAX:,} printable characters"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="core_id")


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
    """Everything but its content."""

    id: str
    media_type: str
    title: str
    parent: str
    """The id of the document that contains it; empty: none."""
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
