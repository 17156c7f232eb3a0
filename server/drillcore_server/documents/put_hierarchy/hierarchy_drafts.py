"""Nodes and documents as a client gives them: what the server makes itself is not there yet.

Limits are of one node. What a hierarchy as a whole may have is not limited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.hierarchy.digests import Entity, FindingKind, MadeBy
from drillcore_server.kernel.errors import BadInput
from drillcore_server.storage.ids import SOURCE_CHARACTERS_MAX, DocumentId, NodeId, SourceId, Span

CHUNK_CHARACTERS_MAX: Final = 1_000_000
"""Of its raws, and of its quotes."""
CHUNK_RAWS_MAX: Final = 10_000
NODE_BYTES_MAX: Final = 5_000_000
"""As a message, so that it fits into an answer."""
DOCUMENT_CHARACTERS_MAX: Final = 1 << 40
CHARACTERS_MAX: Final[Mapping[str, int]] = {
    "summary": 100_000,
    "content": CHUNK_CHARACTERS_MAX,
    "text": 10_000,
    "title": 1_000,
    "source_id": SOURCE_CHARACTERS_MAX,
    "headings": 1_000,
    "preprocessing": 1_000,
    "value": 1_000,
    "fallback_reason": 1_000,
    "category": 200,
    "keywords": 200,
    "media_type": 200,
    "type": 200,
    "kind": 200,
    "processor": 200,
    "version": 200,
}
"""Of a text, by the name of its field."""
ENTRIES_MAX: Final[Mapping[str, int]] = {
    "citations": 1_000,
    "entities": 1_000,
    "findings": 1_000,
    "quotes": 1_000,
    "keywords": 1_000,
    "headings": 100,
    "preprocessing": 100,
}
"""Of a list, by the name of its field."""
EMBEDDING_MODEL_CHARACTERS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class DocumentDraft:
    id: DocumentId
    source: SourceId
    title: str
    media_type: str
    preprocessing: tuple[str, ...]
    metadata: Mapping[str, str]
    characters: int
    """Of its whole text; 0 if it ends where its last raw does."""
    content_hash: str
    """Of its whole text, or empty."""


@dataclass(frozen=True, slots=True)
class CitationDraft:
    chunk: NodeId
    document: DocumentId | None
    span: Span
    text: str
    """What must stand there; not checked if it is empty."""
    weight: float


@dataclass(frozen=True, slots=True)
class FindingDraft:
    kind: FindingKind
    text: str
    citation: CitationDraft


@dataclass(frozen=True, slots=True)
class MasterDraft:
    id: NodeId
    summary: str
    citations: tuple[CitationDraft, ...]
    findings: tuple[FindingDraft, ...]
    keywords: tuple[str, ...]
    made_by: MadeBy


@dataclass(frozen=True, slots=True)
class SectionDraft:
    id: NodeId
    parent: NodeId
    title: str
    category: str
    summary: str
    citations: tuple[CitationDraft, ...]
    entities: tuple[Entity, ...]
    keywords: tuple[str, ...]
    made_by: MadeBy


@dataclass(frozen=True, slots=True)
class ChunkDraft:
    id: NodeId
    parent: NodeId
    document: DocumentId
    headings: tuple[str, ...]
    page: int | None
    summary: str
    quotes: tuple[CitationDraft, ...]
    entities: tuple[Entity, ...]
    keywords: tuple[str, ...]
    made_by: MadeBy
    vector: bytes
    """Of length 1, as it will be stored; empty if the server is to make it."""


@dataclass(frozen=True, slots=True)
class RawDraft:
    id: NodeId
    parent: NodeId
    document: DocumentId
    span: Span
    content: str


NodeDraft = MasterDraft | SectionDraft | ChunkDraft | RawDraft


def invalid(what: str, problem: str) -> BadInput:
    """A refusal that names the node or document, as in "chunk 5f0c..."."""
    return BadInput(Reason.INVALID_HIERARCHY, f"{what} {problem}", node=what.rpartition(" ")[2])
