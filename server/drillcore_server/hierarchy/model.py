"""The hierarchy of a corpus.

    level 3  master     one: what the whole corpus says
    level 2  section    a topic: what its chunks say
    level 1  chunk      a few paragraphs of one document: summary, quotes, entities, embedding
    level 0  raw        the original characters

Records hold where text stands, not the text: it is in the raws, once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore_server.hierarchy.digests import Entity, FindingKind, MadeBy
from drillcore_server.storage.ids import DocumentId, Membership, NodeId, PrincipalId, SourceId, Span, new_uuid


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
    """One raw span. Its id is in its chunk."""

    document: DocumentId
    span: Span
    content: str


@dataclass(frozen=True, slots=True)
class RawPage:
    """The raws of one chunk, in order. Those of ingested chunks leave no gaps; those that a client made may."""

    raws: tuple[Raw, ...]

    def text_of(self, span: Span) -> str:
        """The original characters of a span that the raws hold."""
        return "".join(
            raw.content[max(span.start - raw.span.start, 0) : span.end - raw.span.start]
            for raw in self.raws
            if raw.span.start < span.end and span.start < raw.span.end
        )

    @property
    def text(self) -> str:
        """What they say, a line's end where they leave something out."""
        return "\n".join(self.text_of(run) for run in self.runs())

    def holds(self, span: Span) -> bool:
        """Whether every character of a span is there."""
        return any(run.start <= span.start and span.end <= run.end for run in self.runs())

    def runs(self) -> list[Span]:
        """The stretches of text that are there, from gap to gap."""
        runs: list[Span] = []
        for raw in self.raws:
            if runs and runs[-1].end == raw.span.start:
                runs[-1] = Span(runs[-1].start, raw.span.end)
            else:
                runs.append(raw.span)
        return runs

    def place_of(self, start: int) -> int:
        """Of the raw that a character of the chunk stands in, or before which it is left out."""
        return max(bisect_right(self.raws, start, key=lambda raw: raw.span.start) - 1, 0)

    @property
    def span(self) -> Span:
        """From the first raw to the last."""
        return Span(self.raws[0].span.start, self.raws[-1].span.end)


def assembled(raws: Iterable[Raw]) -> str | None:
    """The text that raws of one document make up from its beginning on, each at its place; None if some is left out."""
    pieces: list[str] = []
    end = 0
    for raw in sorted(raws, key=lambda one: one.span):
        if raw.span.start > end:
            return None
        pieces.append(raw.content[end - raw.span.start :])
        end = max(end, raw.span.end)
    return "".join(pieces)


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
    created_at: datetime
    created_by: PrincipalId
    version: int = 1
    raw_ids: tuple[NodeId, ...] = ()
    """Of its raws, in order, where they have ids of their own: a client made them. Else see `raw_id`."""
    embedded: bytes = b""
    """A keyed hash of the text that its vector was made of; empty if a client made it."""
    overlap: int = 0
    """Characters before its own that it is read with: the end of the chunk before it."""

    @property
    def membership(self) -> Membership:
        return Membership(self.id, self.document, self.ordinal)


@dataclass(frozen=True, slots=True)
class ChunkWithRaws:
    """A chunk and the raws that it owns."""

    chunk: Chunk
    page: RawPage


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
    sources: tuple[SourceId, ...] = ()
    """Of all its chunks, in order: what it says may come from any of them, and is sealed under the keys of all."""


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
    created_at: datetime
    created_by: PrincipalId
    version: int = 1


@dataclass(frozen=True, slots=True)
class Document:
    """A document as the source registry and the listing know it."""

    id: DocumentId
    source: SourceId
    source_version: int
    """1 for the first content that came from this source, one more with each change of it."""
    title: str
    media_type: str
    content_hash: str
    """SHA-256 of the text's UTF-8 bytes, in hex."""
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
    """Of an ingested chunk's raw at this place, counted from 0."""
    return NodeId(UUID(int=chunk.int | (place + 1)))


def chunk_of_raw(raw: NodeId) -> tuple[NodeId, int]:
    """The chunk and the place that a raw's id was made of."""
    place = raw.int & RAWS_PER_CHUNK_MAX
    return NodeId(UUID(int=raw.int ^ place)), place - 1


def embedded_text(title: str, headings: Sequence[str], text: str) -> str:
    """Returns the text to embed for a chunk: the titles above it say what its words alone may not."""
    return "\n".join([title, *headings, text])
