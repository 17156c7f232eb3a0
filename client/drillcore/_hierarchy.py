"""A hierarchy as a client makes it, and what storing it returns.

What the server makes itself (counts, tokens, a chunk's span, embeddings where there are none) is not given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from drillcore._node_results import Citation, Entity, Finding, Processing, Span

_UNKNOWN = Processing("", "")


@dataclass(frozen=True, slots=True)
class HierarchyDocument:
    """A document that nodes are made of. An id that the corpus has, or had, is the same document with other content."""

    id: UUID
    source_id: str
    """Where it comes from."""
    title: str = ""
    media_type: str = ""
    preprocessing: Sequence[str] = ()
    """What was done to get from the bytes to the text, in order."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    characters: int = 0
    """Of its whole text; 0 if that ends where its last raw does."""
    content_hash: str = ""
    """SHA-256 of the whole text, in hex. The server makes it itself where raws leave nothing out."""


@dataclass(frozen=True, slots=True)
class NewMaster:
    """The one node above all others."""

    id: UUID
    summary: str = ""
    citations: Sequence[Citation] = ()
    findings: Sequence[Finding] = ()
    keywords: Sequence[str] = ()
    processing: Processing = _UNKNOWN


@dataclass(frozen=True, slots=True)
class NewSection:
    """A node below the master, with at least one chunk below it, and citing only those."""

    id: UUID
    parent_id: UUID
    title: str = ""
    category: str = ""
    summary: str = ""
    citations: Sequence[Citation] = ()
    entities: Sequence[Entity] = ()
    keywords: Sequence[str] = ()
    processing: Processing = _UNKNOWN


@dataclass(frozen=True, slots=True)
class NewChunk:
    """A node below a section, with at least one raw below it."""

    id: UUID
    parent_id: UUID
    document_id: UUID
    headings: Sequence[str] = ()
    page: int | None = None
    summary: str = ""
    quotes: Sequence[Citation] = ()
    """Passages of its own raws. Their `chunk_id` may be None."""
    entities: Sequence[Entity] = ()
    keywords: Sequence[str] = ()
    embedding: Sequence[float] = ()
    """All chunks have one, or none has."""
    processing: Processing = _UNKNOWN


@dataclass(frozen=True, slots=True)
class NewRaw:
    """Original text below a chunk. Raws of one chunk do not overlap; they may leave something out between them."""

    parent_id: UUID
    document_id: UUID
    span: Span
    content: str
    """The original characters of the span."""
    id: UUID | None = None
    """None: the server gives it one."""


NewNode = NewMaster | NewSection | NewChunk | NewRaw


@dataclass(frozen=True, slots=True)
class PutProgress:
    """How far the server is with a hierarchy. Nothing of it can be read yet."""

    documents_received: int
    nodes_received: int
    chunks_prepared: int


OnPutProgress = Callable[[PutProgress], object]


@dataclass(frozen=True, slots=True)
class PutResult:
    """What was stored."""

    revision: int
    documents: int
    sections: int
    chunks: int
    raws: int
