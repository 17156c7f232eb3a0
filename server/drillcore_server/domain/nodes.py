"""The hierarchy of a corpus.

    level 3  master     one: what the whole corpus says
    level 2  section    a topic: what its chunks say
    level 1  chunk      a few paragraphs of one document: summary, quotes, entities, embedding
    level 0  raw        the original characters

Records hold where text stands, not the text: it is in the raws, once.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore_proto.reasons import Reason
from drillcore_server.domain.digests import Entity, FindingKind, MadeBy
from drillcore_server.domain.documents import Span
from drillcore_server.domain.errors import NotReady
from drillcore_server.domain.ids import ContentHash, DocumentId, NodeId, PrincipalId, SourceId, new_uuid


class Level(enum.IntEnum):
    RAW = 0
    CHUNK = 1
    SECTION = 2
    MASTER = 3


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A passage of a chunk's own text, by its place."""

    span: Span
    weight: float


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage of any chunk, by its place."""

    document: DocumentId
    chunk: NodeId
    span: Span
    weight: float


@dataclass(frozen=True, slots=True)
class Finding:
    kind: FindingKind
    text: str
    citation: Citation


@dataclass(frozen=True, slots=True)
class Raw:
    """One raw span. Its id is the chunk's with its place in it, unless a client gave it another."""

    document: DocumentId
    span: Span
    content: str
    id: NodeId | None = None


@dataclass(frozen=True, slots=True)
class RawPage:
    """The raws of one chunk, which follow each other without gaps."""

    raws: tuple[Raw, ...]

    def text_of(self, span: Span) -> str:
        """The original characters of a span within the chunk."""
        content = "".join(raw.content for raw in self.raws)
        start = span.start - self.raws[0].span.start
        return content[start : start + len(span)]


@dataclass(frozen=True, slots=True)
class Chunk:
    id: NodeId
    document: DocumentId
    source: SourceId
    ordinal: int
    """Its place among the chunks of its document."""
    span: Span
    headings: tuple[str, ...]
    page: int | None
    tokens: int
    summary: tuple[Excerpt, ...]
    summary_text: str
    """Empty where the summary is its excerpts, as they stand in the raws."""
    quotes: tuple[Excerpt, ...]
    candidates: tuple[Excerpt, ...]
    """The best passages, heaviest first: what summaries of higher levels are chosen from."""
    entities: tuple[Entity, ...]
    keywords: tuple[str, ...]
    made_by: MadeBy
    embedding_model: str
    created_at: datetime
    created_by: PrincipalId
    version: int = 1


@dataclass(frozen=True, slots=True)
class Section:
    id: NodeId
    title: str
    category: str
    summary: str
    citations: tuple[Citation, ...]
    candidates: tuple[Citation, ...]
    """The heaviest passages of its chunks: the pool its summary is chosen from."""
    keywords: tuple[str, ...]
    tokens: int
    made_by: MadeBy
    entities: tuple[Entity, ...]
    documents: int
    chunks: int
    vector_sum: bytes
    """Of its chunks' embeddings, float32; the centroid is its direction."""
    created_at: datetime
    created_by: PrincipalId
    version: int = 1


@dataclass(frozen=True, slots=True)
class Statistics:
    documents: int = 0
    sections: int = 0
    chunks: int = 0
    raws: int = 0
    characters: int = 0
    tokens: int = 0

    def __add__(self, other: Statistics) -> Statistics:
        return Statistics(*(a + b for a, b in zip(_values(self), _values(other), strict=True)))

    def __sub__(self, other: Statistics) -> Statistics:
        return Statistics(*(a - b for a, b in zip(_values(self), _values(other), strict=True)))


def _values(s: Statistics) -> tuple[int, ...]:
    return s.documents, s.sections, s.chunks, s.raws, s.characters, s.tokens


@dataclass(frozen=True, slots=True)
class Master:
    id: NodeId
    summary: str
    citations: tuple[Citation, ...]
    findings: tuple[Finding, ...]
    keywords: tuple[str, ...]
    tokens: int
    made_by: MadeBy
    statistics: Statistics
    embedding_model: str
    """Of every vector in the corpus: vectors of different models cannot be compared."""
    created_at: datetime
    created_by: PrincipalId
    version: int = 1

    def check_model(self, model: str) -> None:
        """Refuses to mix vectors of different models. An empty corpus takes any."""
        if self.statistics.chunks and self.embedding_model != model:
            message = f"the corpus was embedded with {self.embedding_model}, the server now has {model}"
            raise NotReady(Reason.MODEL_MISMATCH, message)


@dataclass(frozen=True, slots=True)
class Document:
    """A document as the source registry and the listing know it."""

    id: DocumentId
    source: SourceId
    source_version: int
    """1 for the first content that came from this source, one more with each change of it."""
    title: str
    media_type: str
    content_hash: ContentHash
    preprocessing: tuple[str, ...]
    metadata: Mapping[str, str]
    chunks: tuple[NodeId, ...]
    raws: int
    characters: int
    tokens: int
    created_at: datetime
    created_by: PrincipalId


_RAW_BITS: Final = 16
RAWS_PER_CHUNK_MAX: Final = (1 << _RAW_BITS) - 1


def new_chunk_id() -> NodeId:
    """An id whose last two bytes are zero, so that the ids of its raws can be made from it."""
    return NodeId(UUID(int=new_uuid().int >> _RAW_BITS << _RAW_BITS))


def raw_id(chunk: NodeId, place: int) -> NodeId:
    """Of the raw at this place, counted from 0."""
    return NodeId(UUID(int=chunk.int | (place + 1)))


def chunk_of_raw(raw: NodeId) -> tuple[NodeId, int]:
    """The chunk and the place that a raw's id was made of."""
    place = raw.int & RAWS_PER_CHUNK_MAX
    return NodeId(UUID(int=raw.int ^ place)), place - 1
