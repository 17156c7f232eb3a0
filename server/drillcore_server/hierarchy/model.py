"""The hierarchy of a corpus.

    level 3  master     the only one of its corpus: a summary of the whole corpus
    level 2  section    a topic: a summary of its chunks
    level 1  chunk      a few paragraphs of one document: summary, quotes, entities, embedding
    level 0  raw        the original characters

The text is stored once, in the raws. Other records only say where in the document it is.
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
    """A passage of a chunk's own text, given by its span in the document."""

    span: Span
    weight: float


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage of any chunk, given by its span in the document."""

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
    """A span of original text. Its id is in its chunk, or follows from its chunk's id."""

    document: DocumentId
    span: Span
    content: str


@dataclass(frozen=True, slots=True)
class RawPage:
    """The raws of one chunk, in order. Only raws that a client made may have gaps between them."""

    raws: tuple[Raw, ...]

    def text_of(self, span: Span) -> str:
        """The original characters of a span, as far as the raws contain them."""
        return "".join(
            raw.content[max(span.start - raw.span.start, 0) : span.end - raw.span.start]
            for raw in self.raws
            if raw.span.start < span.end and span.start < raw.span.end
        )

    @property
    def text(self) -> str:
        """The text of all raws, with a line break in place of each gap."""
        return "\n".join(self.text_of(run) for run in self.runs())

    def holds(self, span: Span) -> bool:
        """Whether the raws contain every character of the span."""
        return any(run.start <= span.start and span.end <= run.end for run in self.runs())

    def runs(self) -> list[Span]:
        """The spans of text without gaps."""
        runs: list[Span] = []
        for raw in self.raws:
            if runs and runs[-1].end == raw.span.start:
                runs[-1] = Span(runs[-1].start, raw.span.end)
            else:
                runs.append(raw.span)
        return runs

    def place_of(self, start: int) -> int:
        """The place of the last raw that begins at or before the character `start`; 0 if none does."""
        return max(bisect_right(self.raws, start, key=lambda raw: raw.span.start) - 1, 0)

    @property
    def span(self) -> Span:
        """The span from the start of the first raw to the end of the last."""
        return Span(self.raws[0].span.start, self.raws[-1].span.end)


def assembled(raws: Iterable[Raw]) -> str | None:
    """Joins the raws of one document to its text. Returns None if the raws leave a part of it out."""
    pieces: list[str] = []
    end = 0
    for raw in sorted(raws, key=lambda raw: raw.span):
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
    """The chunk's place among the chunks of its document."""
    span: Span
    headings: tuple[str, ...]
    page: int | None
    tokens: int
    summary: tuple[Excerpt, ...]
    summary_text: str
    """Empty if the summary consists of the excerpts in `summary`, word for word."""
    quotes: tuple[Excerpt, ...]
    candidates: tuple[Excerpt, ...]
    """The best passages, heaviest first. Summaries of higher levels choose from them."""
    entities: tuple[Entity, ...]
    keywords: tuple[str, ...]
    made_by: MadeBy
    created_at: datetime
    created_by: PrincipalId
    version: int = 1
    raw_ids: tuple[NodeId, ...] = ()
    """The ids of the raws, in order, if a client made them. Otherwise `raw_id` makes them from the chunk's id."""
    embedded: bytes = b""
    """A keyed hash of the text that the server embedded; empty if a client made the vector."""
    overlap: int = 0
    """How many characters of the chunk before it were embedded together with this chunk."""

    @property
    def membership(self) -> Membership:
        return Membership(self.id, self.document, self.ordinal)


@dataclass(frozen=True, slots=True)
class ChunkWithRaws:
    """A chunk and its raws."""

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
    """The heaviest passages of its chunks. The section's summary chooses from them."""
    keywords: tuple[str, ...]
    tokens: int
    made_by: MadeBy
    entities: tuple[Entity, ...]
    documents: int
    chunks: int
    vector_sum: bytes
    """The sum of the chunks' embeddings, as 32-bit floats. Its direction is the section's centroid."""
    created_at: datetime
    created_by: PrincipalId
    version: int = 1
    sources: tuple[SourceId, ...] = ()
    """The sources of all its chunks, sorted. The record is sealed under the keys of all of them."""


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


def _values(statistics: Statistics) -> tuple[int, ...]:
    return (
        statistics.documents,
        statistics.sections,
        statistics.chunks,
        statistics.raws,
        statistics.characters,
        statistics.tokens,
    )


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
    """The record of a document: where it came from, what it contains, and its chunks."""

    id: DocumentId
    source: SourceId
    source_version: int
    """1 for the first content of this source, one more with each change of the content."""
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


_OWN_BITS: Final = 16
"""The last bits of an id, which number what belongs to a node that the server made."""
IDS_PER_NODE: Final = (1 << _OWN_BITS) - 1
FACTS_FROM: Final = 1 << (_OWN_BITS - 1)
"""From this number on the ids are those of facts, below of raws."""
RAWS_PER_CHUNK_MAX: Final = FACTS_FROM - 1
_VERSION_SHIFT: Final = 76
_OWN_VERSION: Final = 8
"""The version of UUIDs that the standard leaves to each application."""


def new_chunk_id() -> NodeId:
    """A random id that ends with two zero bytes, so that ids can be made from it. Its UUID version, 8, says so."""
    made = new_uuid().int & ~(0xF << _VERSION_SHIFT) | _OWN_VERSION << _VERSION_SHIFT
    return NodeId(UUID(int=made >> _OWN_BITS << _OWN_BITS))


def id_within(node: NodeId, number: int) -> UUID:
    """An id made from that of a node."""
    assert not node.int & IDS_PER_NODE, "ids are made only from ids that end with zeros"
    return UUID(int=node.int | number)


def ids_within(id_: NodeId) -> tuple[NodeId, int]:
    """The node and the number that `id_within` may have made an id from. The number is 0 if it made none like this."""
    number = id_.int & IDS_PER_NODE
    if id_.int >> _VERSION_SHIFT & 0xF != _OWN_VERSION:
        return id_, 0
    return NodeId(UUID(int=id_.int ^ number)), number


def raw_id(chunk: NodeId, place: int) -> NodeId:
    """The id of the raw at this place, counted from 0, of a chunk that the server made."""
    return NodeId(UUID(int=chunk.int | (place + 1)))


def chunk_of_raw(raw: NodeId) -> tuple[NodeId, int]:
    """The chunk and the place from which `raw_id` made an id. The place is -1 if the id is that of a chunk."""
    number = raw.int & IDS_PER_NODE
    return NodeId(UUID(int=raw.int ^ number)), number - 1


def embedded_text(title: str, headings: Sequence[str], text: str) -> str:
    """The text to embed for a chunk. The titles above the chunk add what its own words may not say."""
    return "\n".join([title, *headings, text])
