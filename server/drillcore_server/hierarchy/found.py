"""Nodes as they are shown: records with the text they stand for.

What a query asks for besides its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from drillcore_server.hierarchy.digests import Entity
from drillcore_server.hierarchy.model import Chunk, Excerpt, Master, Raw, RawPage, Section
from drillcore_server.signatures.model import Signature
from drillcore_server.storage.ids import CorpusId, DocumentId, Level, NodeId, Revision, SourceId

_OVERHEAD_BYTES: Final = 1_000
"""Of ids, times, keywords and entities: a generous guess."""


@dataclass(frozen=True, slots=True)
class ChunkText:
    """A chunk with its raws, which hold the text of its excerpts."""

    chunk: Chunk
    page: RawPage
    embedding_model: str
    """Of the corpus, at the revision that is shown."""
    embedding: tuple[float, ...] = ()

    def text_of(self, excerpt: Excerpt) -> str:
        return self.page.text_of(excerpt.span)

    def summary(self) -> str:
        return self.chunk.summary_text or "\n".join(self.text_of(one) for one in self.chunk.summary)


@dataclass(frozen=True, slots=True)
class RawText:
    raw: Raw
    chunk: Chunk
    preprocessing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Node:
    id: NodeId
    corpus: CorpusId
    level: Level
    parent: NodeId | None
    content: Master | Section | ChunkText | RawText
    created_at: datetime
    created_by: str
    version: int
    children: tuple[NodeId, ...] = ()
    """The first of them; only where they were asked for."""
    children_count: int = 0
    signatures: tuple[Signature, ...] = ()
    """Of this version, oldest first."""
    foreign_signatures: tuple[Signature, ...] = ()
    """Likewise, that were made on other servers and came with a core."""

    @property
    def source(self) -> SourceId | None:
        """The source that it is from; None for sections and masters, which may be from several."""
        return self.content.chunk.source if isinstance(self.content, ChunkText | RawText) else None

    @property
    def size_bytes(self) -> int:
        """About what it takes in an answer."""
        content = self.content
        if isinstance(content, RawText):
            return _OVERHEAD_BYTES + 4 * len(content.raw.content)
        if isinstance(content, ChunkText):
            excerpts = (*content.chunk.summary, *content.chunk.quotes)
            characters = len(content.chunk.summary_text) + sum(len(one.span) for one in excerpts)
            return _OVERHEAD_BYTES + 4 * characters + 100 * len(excerpts) + _named_bytes(content.chunk)
        entities = 0 if isinstance(content, Master) else _named_bytes(content)
        return _OVERHEAD_BYTES + 4 * len(content.summary) + 100 * len(content.citations) + entities


def _named_bytes(node: Chunk | Section) -> int:
    entities = sum(20 + 4 * (len(one.type) + len(one.value)) for one in node.entities)
    return entities + sum(10 + 4 * len(one) for one in node.keywords)


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes of one revision, and where the next page begins."""

    nodes: Sequence[Node]
    revision: Revision
    next_token: str = ""


@dataclass(frozen=True, slots=True)
class Filters:
    """Every filter that is set must hold; within one, any of its values will do, but a chunk must name all entities."""

    categories: frozenset[str] = frozenset()
    entities: frozenset[Entity] = frozenset()
    """An empty value means any of the type."""
    documents: frozenset[DocumentId] = frozenset()
    sources: frozenset[SourceId] = frozenset()
    created_after: datetime | None = None
    created_before: datetime | None = None

    def allows_time(self, at: datetime) -> bool:
        if self.created_after is not None and at < self.created_after:
            return False
        return self.created_before is None or at < self.created_before
