"""Nodes as callers see them, with their text, and the filters of a query."""

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
"""A generous estimate of what ids, times, keywords and entities take in an answer."""


@dataclass(frozen=True, slots=True)
class ChunkText:
    """A chunk with its raws, which contain the text of its excerpts."""

    chunk: Chunk
    page: RawPage
    embedding_model: str
    """The corpus's model at the revision that was read."""
    embedding: tuple[float, ...] = ()

    def text_of(self, excerpt: Excerpt) -> str:
        return self.page.text_of(excerpt.span)

    def summary(self) -> str:
        return self.chunk.summary_text or "\n".join(self.text_of(excerpt) for excerpt in self.chunk.summary)


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
    """The first children. Filled only by GetNode."""
    children_count: int = 0
    signatures: tuple[Signature, ...] = ()
    """The signatures of this version, oldest first."""
    foreign_signatures: tuple[Signature, ...] = ()
    """Signatures of this version that were made on other servers and came with a core, oldest first."""

    @property
    def source(self) -> SourceId | None:
        """The source of the content; None for sections and masters, which may have several."""
        return self.content.chunk.source if isinstance(self.content, ChunkText | RawText) else None

    @property
    def size_bytes(self) -> int:
        """The estimated size of the node in an answer."""
        content = self.content
        if isinstance(content, RawText):
            return _OVERHEAD_BYTES + 4 * len(content.raw.content)
        if isinstance(content, ChunkText):
            excerpts = (*content.chunk.summary, *content.chunk.quotes)
            characters = len(content.chunk.summary_text) + sum(len(excerpt.span) for excerpt in excerpts)
            return _OVERHEAD_BYTES + 4 * characters + 100 * len(excerpts) + _named_bytes(content.chunk)
        entities = 0 if isinstance(content, Master) else _named_bytes(content)
        return _OVERHEAD_BYTES + 4 * len(content.summary) + 100 * len(content.citations) + entities


def _named_bytes(node: Chunk | Section) -> int:
    entities = sum(20 + 4 * (len(entity.type) + len(entity.value)) for entity in node.entities)
    return entities + sum(10 + 4 * len(keyword) for keyword in node.keywords)


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes of one revision, and where the next page begins."""

    nodes: Sequence[Node]
    revision: Revision
    next_token: str = ""


@dataclass(frozen=True, slots=True)
class Filters:
    """A node must pass every filter that is set. One value of a filter is enough, except for `entities`."""

    categories: frozenset[str] = frozenset()
    entities: frozenset[Entity] = frozenset()
    """A chunk must name all of them. An entity with an empty value stands for any entity of its type."""
    documents: frozenset[DocumentId] = frozenset()
    sources: frozenset[SourceId] = frozenset()
    created_after: datetime | None = None
    created_before: datetime | None = None

    def allows_entities(self, named: Sequence[Entity]) -> bool:
        """Whether a chunk that names these entities passes. Capitals make no difference."""
        types = {entity.type.casefold() for entity in named}
        both = {(entity.type.casefold(), entity.value.casefold()) for entity in named}
        return all(
            (wanted.type.casefold(), wanted.value.casefold()) in both
            if wanted.value
            else wanted.type.casefold() in types
            for wanted in self.entities
        )

    def allows_time(self, at: datetime) -> bool:
        if self.created_after is not None and at < self.created_after:
            return False
        return self.created_before is None or at < self.created_before
