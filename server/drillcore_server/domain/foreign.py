"""What came with the core of another system and is kept as it is: documents of its library, and vectors."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from drillcore_server.domain.ids import SourceId

LIBRARY_ID_CHARACTERS_MAX: Final = 8_000
LIBRARY_TEXT_CHARACTERS_MAX: Final = 100_000
"""Of a title or a comment."""
LIBRARY_TAGS_MAX: Final = 1_000
VECTOR_DIMENSIONS_MAX: Final = 65_536


class VectorKind(enum.IntEnum):
    """Numbers are part of keys."""

    GRAPH = 1
    """Of an entity of a graph: its term."""
    DOCUMENT = 2
    """Of a piece of a document: its id."""


@dataclass(frozen=True, slots=True)
class LibraryDocument:
    """Everything but its content."""

    id: str
    media_type: str
    title: str
    parent: str
    """The id of the document that it is a part of; empty for none."""
    document_type: str
    comments: str
    tags: tuple[str, ...]
    source: SourceId
    size_bytes: int = 0
    sha256: bytes = b""
    """Of its content; empty where it came without."""

    @property
    def has_content(self) -> bool:
        return bool(self.sha256)


@dataclass(frozen=True, slots=True)
class EntityVector:
    """One vector of an entity: there may be several."""

    kind: VectorKind
    entity: bytes
    """As `encoded_term` has it; of a document's piece the UTF-8 bytes of its id."""
    source: SourceId
    dimensions: int
    vector: bytes
    """Little-endian floats: of 32 bits if those are exact, else of 64."""
