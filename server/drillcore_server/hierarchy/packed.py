"""The compact stored form of chunks, raws and sections. It leaves out what follows from the rest and repeats nothing.

The text of a chunk's raws is a record of its own, and the chunk's record has their lengths. Passages are stored once,
relative to the chunk's start; summary and quotes refer to them by number. A section has tables of its cited documents
and chunks.

A whole chunk, for a core or a file, is the chunk's record with the text in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Final, Generic, TypeVar

from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.hierarchy.digests import Entity, MadeBy
from drillcore_server.hierarchy.model import Chunk, ChunkWithRaws, Citation, Excerpt, Raw, RawPage, Section
from drillcore_server.storage.ids import DocumentId, NodeId, PrincipalId, SourceId, Span
from drillcore_server.storage.records import RecordKind

T = TypeVar("T")
P = TypeVar("P")
H = TypeVar("H", bound=Hashable)
_FOUR_DIGITS: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Passage:
    start: int
    """Relative to the chunk's start."""
    length: int
    weight: int | float


@dataclass(frozen=True, slots=True)
class _OddRaws:
    """The raws of a chunk that a client made and that do not cover the chunk without gaps and overlaps."""

    chunk_length: int
    raws: tuple[Raw, ...]
    """Without their content in the store, where it is a record of its own."""


@dataclass(frozen=True, slots=True)
class _PackedChunk:
    text: str
    """The text of all raws. Empty in the store, where it is a record of its own."""
    raw_lengths: tuple[int, ...]
    document: DocumentId
    source: SourceId
    ordinal: int
    start: int
    headings: tuple[str, ...]
    page: int | None
    tokens: int
    passages: tuple[_Passage, ...]
    candidates: int
    """How many passages are candidates: the first ones."""
    summary: tuple[int, ...]
    summary_text: str
    quotes: tuple[int, ...]
    entities: tuple[Entity, ...]
    keywords: tuple[str, ...]
    made_by: MadeBy
    created_at: datetime
    created_by: PrincipalId
    version: int
    raw_ids: tuple[NodeId, ...] = ()
    """Empty if the ids are made from the chunk's id."""
    odd: _OddRaws | None = None
    embedded: bytes = b""
    overlap: int = 0


@dataclass(frozen=True, slots=True)
class _RawTexts:
    """The original characters of a chunk's raws, in order."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _CitedChunk:
    document: int
    chunk: NodeId


@dataclass(frozen=True, slots=True)
class _CitedPassage:
    chunk: int
    start: int
    length: int
    weight: int | float


@dataclass(frozen=True, slots=True)
class _PackedSection:
    id: NodeId
    title: str
    category: str
    summary: str
    keywords: tuple[str, ...]
    entities: tuple[Entity, ...]
    cited_documents: tuple[DocumentId, ...]
    cited_chunks: tuple[_CitedChunk, ...]
    passages: tuple[_CitedPassage, ...]
    candidates: int
    """How many passages are candidates: the first ones."""
    citations: tuple[int, ...]
    tokens: int
    made_by: MadeBy
    documents: int
    chunks: int
    vector_sum: bytes
    created_at: datetime
    created_by: PrincipalId
    version: int
    sources: tuple[SourceId, ...]


class PackedKind(RecordKind[T], Generic[T, P]):
    """A kind of record that is stored in a packed form."""

    def __init__(self, name: str, packed_type: type[P], pack: Callable[[T], P], unpack: Callable[[P], T]) -> None:
        self.name = name
        self._packed = RecordKind(packed_type)
        self._pack = pack
        self._unpack = unpack

    def encode(self, value: T) -> bytes:
        return self._packed.encode(self._pack(value))

    def decode(self, stored: bytes) -> T:
        with _reporting_damage(self.name):
            return self._unpack(self._packed.decode(stored))

    def as_written_now(self, stored: bytes, **changed: object) -> bytes:
        return self._packed.as_written_now(stored, **changed)


_CHUNK = RecordKind(_PackedChunk)
_RAW_TEXTS = RecordKind(_RawTexts)


@dataclass(frozen=True, slots=True)
class PlacedChunk:
    """What a chunk's record says: the chunk, and where its raws are. Their text is in a record of its own."""

    chunk: Chunk
    raws: tuple[Span, ...]

    def with_raws(self, stored: bytes) -> ChunkWithRaws:
        """The chunk with its raws, whose text is given as it is stored."""
        with _reporting_damage("raw"):
            texts = _RAW_TEXTS.decode(stored).texts
            raws = zip(self.raws, texts, strict=True)
            return ChunkWithRaws(
                self.chunk, RawPage(tuple(Raw(self.chunk.document, span, text) for span, text in raws))
            )


def encode_chunk(chunk: Chunk, page: RawPage) -> bytes:
    """Encodes a chunk without the text of its raws. Leaves out the chunk's id too, which is in the key."""
    packed = _packed_chunk(chunk, page)
    odd = packed.odd
    if odd is not None:
        odd = replace(odd, raws=tuple(replace(raw, content="") for raw in odd.raws))
    return _CHUNK.encode(replace(packed, text="", odd=odd))


def decode_chunk(node: NodeId, stored: bytes) -> PlacedChunk:
    with _reporting_damage("chunk"):
        packed = _CHUNK.decode(stored)
        return PlacedChunk(_chunk(node, packed), tuple(raw.span for raw in _page(packed).raws))


def encode_raws(page: RawPage) -> bytes:
    """Encodes the text of a chunk's raws."""
    return _RAW_TEXTS.encode(_RawTexts(tuple(raw.content for raw in page.raws)))


def encode_whole_chunk(found: ChunkWithRaws) -> bytes:
    """Encodes a chunk with the text of its raws, for a file. Leaves out the chunk's id."""
    return _CHUNK.encode(_packed_chunk(found.chunk, found.page))


def decode_whole_chunk(node: NodeId, encoded: bytes) -> ChunkWithRaws:
    with _reporting_damage("chunk"):
        packed = _CHUNK.decode(encoded)
        return ChunkWithRaws(_chunk(node, packed), _page(packed))


@dataclass(frozen=True, slots=True)
class PortableChunk:
    """A chunk for a knowledge core, without the parts that only its own corpus can use."""

    found: ChunkWithRaws

    @property
    def id(self) -> NodeId:
        return self.found.chunk.id

    @property
    def text(self) -> str:
        """The text of its raws."""
        return self.found.page.text

    @property
    def span(self) -> Span | None:
        """None if the raws do not cover the chunk's span without gaps and overlaps."""
        return self.found.chunk.span if _is_even(self.found.chunk, self.found.page) else None

    def encode(self, *, with_text: bool) -> bytes:
        """Same encoding as `encode_whole_chunk`. Without the text, the reader takes it from the document, by the span.

        Raws that do not cover the chunk's span keep their text.
        """
        packed = replace(_packed_chunk(self.found.chunk, self.found.page), embedded=b"")
        return _CHUNK.encode(packed if with_text else replace(packed, text=""))


def chunk_with_text(node: NodeId, stored: bytes, text: str) -> ChunkWithRaws | None:
    """Decodes what `PortableChunk.encode` made and adds the text. None if the record or the text does not fit."""
    try:
        packed = _CHUNK.decode(stored)
        if packed.embedded or packed.text not in {"", text} or _CHUNK.encode(packed) != stored:
            return None
        filled = packed if packed.odd is not None else replace(packed, text=text)
        found = ChunkWithRaws(_chunk(node, filled), _page(filled))
        return found if found.page.text == text else None
    except (StoreCorruptError, IndexError, ValueError, OverflowError):
        return None


@contextlib.contextmanager
def _reporting_damage(name: str) -> Iterator[None]:
    """Raises `StoreCorruptError`, with the name of the record, for references that lead nowhere."""
    try:
        yield
    except (IndexError, ValueError) as error:
        raise StoreCorruptError(f"a stored {name} cannot be read: {error!r}") from error


def _packed_chunk(chunk: Chunk, page: RawPage) -> _PackedChunk:
    pool = _with_others(chunk.candidates, (*chunk.summary, *chunk.quotes))
    odd = None if _is_even(chunk, page) else _OddRaws(len(chunk.span), page.raws)
    raws = page.raws if odd is None else ()
    return _PackedChunk(
        text="".join(raw.content for raw in raws),
        raw_lengths=tuple(len(raw.span) for raw in raws),
        document=chunk.document,
        source=chunk.source,
        ordinal=chunk.ordinal,
        start=chunk.span.start,
        headings=chunk.headings,
        page=chunk.page,
        tokens=chunk.tokens,
        passages=tuple(
            _Passage(excerpt.span.start - chunk.span.start, len(excerpt.span), _short(excerpt.weight))
            for excerpt in pool
        ),
        candidates=len(chunk.candidates),
        summary=_numbers(chunk.summary, pool),
        summary_text=chunk.summary_text,
        quotes=_numbers(chunk.quotes, pool),
        entities=chunk.entities,
        keywords=chunk.keywords,
        made_by=chunk.made_by,
        created_at=chunk.created_at,
        created_by=chunk.created_by,
        version=chunk.version,
        raw_ids=chunk.raw_ids,
        odd=odd,
        embedded=chunk.embedded,
        overlap=chunk.overlap,
    )


def _is_even(chunk: Chunk, page: RawPage) -> bool:
    spans = [raw.span for raw in page.raws]
    return (
        bool(spans)
        and (spans[0].start, spans[-1].end) == (chunk.span.start, chunk.span.end)
        and all(span.end == following.start for span, following in pairwise(spans))
        and all(len(raw.content) == len(raw.span) and raw.document == chunk.document for raw in page.raws)
    )


def _chunk(node: NodeId, packed: _PackedChunk) -> Chunk:
    pool = [
        Excerpt(_span(packed.start + passage.start, passage.length), _long(passage.weight))
        for passage in packed.passages
    ]
    return Chunk(
        id=node,
        document=packed.document,
        source=packed.source,
        ordinal=packed.ordinal,
        span=_span(packed.start, packed.odd.chunk_length if packed.odd else sum(packed.raw_lengths)),
        headings=packed.headings,
        page=packed.page,
        tokens=packed.tokens,
        summary=tuple(pool[number] for number in packed.summary),
        summary_text=packed.summary_text,
        quotes=tuple(pool[number] for number in packed.quotes),
        candidates=tuple(pool[: packed.candidates]),
        entities=packed.entities,
        keywords=packed.keywords,
        made_by=packed.made_by,
        created_at=packed.created_at,
        created_by=packed.created_by,
        version=packed.version,
        raw_ids=packed.raw_ids,
        embedded=packed.embedded,
        overlap=packed.overlap,
    )


def _page(packed: _PackedChunk) -> RawPage:
    if packed.odd is not None:
        return RawPage(packed.odd.raws)
    raws = []
    start = 0
    for length in packed.raw_lengths:
        content = packed.text[start : start + length]
        raws.append(Raw(packed.document, _span(packed.start + start, length), content))
        start += length
    return RawPage(tuple(raws))


def _packed_section(section: Section) -> _PackedSection:
    pool = _with_others(section.candidates, section.citations)
    documents = list(dict.fromkeys(citation.document for citation in pool))
    chunks = list(dict.fromkeys((citation.document, citation.chunk) for citation in pool))
    chunk_numbers, document_numbers = _numbering(chunks), _numbering(documents)
    return _PackedSection(
        id=section.id,
        title=section.title,
        category=section.category,
        summary=section.summary,
        keywords=section.keywords,
        entities=section.entities,
        cited_documents=tuple(documents),
        cited_chunks=tuple(_CitedChunk(document_numbers[document], chunk) for document, chunk in chunks),
        passages=tuple(
            _CitedPassage(
                chunk_numbers[citation.document, citation.chunk],
                citation.span.start,
                len(citation.span),
                _short(citation.weight),
            )
            for citation in pool
        ),
        candidates=len(section.candidates),
        citations=_numbers(section.citations, pool),
        tokens=section.tokens,
        made_by=section.made_by,
        documents=section.documents,
        chunks=section.chunks,
        vector_sum=section.vector_sum,
        created_at=section.created_at,
        created_by=section.created_by,
        version=section.version,
        sources=section.sources,
    )


def _section(packed: _PackedSection) -> Section:
    cited = [(packed.cited_documents[chunk.document], chunk.chunk) for chunk in packed.cited_chunks]
    pool = [
        Citation(*cited[passage.chunk], _span(passage.start, passage.length), _long(passage.weight))
        for passage in packed.passages
    ]
    return Section(
        id=packed.id,
        title=packed.title,
        category=packed.category,
        summary=packed.summary,
        citations=tuple(pool[number] for number in packed.citations),
        candidates=tuple(pool[: packed.candidates]),
        keywords=packed.keywords,
        tokens=packed.tokens,
        made_by=packed.made_by,
        entities=packed.entities,
        documents=packed.documents,
        chunks=packed.chunks,
        vector_sum=packed.vector_sum,
        created_at=packed.created_at,
        created_by=packed.created_by,
        version=packed.version,
        sources=packed.sources,
    )


SECTION: PackedKind[Section, _PackedSection] = PackedKind("section", _PackedSection, _packed_section, _section)


def _with_others(first: Sequence[H], others: Iterable[H]) -> list[H]:
    """All of `first`, then each of the others that is not in `first`, once."""
    known = set(first)
    return [*first, *dict.fromkeys(passage for passage in others if passage not in known)]


def _numbers(passages: Iterable[H], pool: Sequence[H]) -> tuple[int, ...]:
    numbering = _numbering(pool)
    return tuple(numbering[passage] for passage in passages)


def _numbering(pool: Sequence[H]) -> dict[H, int]:
    return {item: number for number, item in enumerate(pool)}


def _span(start: int, length: int) -> Span:
    return Span(start, start + length)


def _short(weight: float) -> int | float:
    """Most weights have four digits. As a whole number, a weight takes three bytes instead of nine."""
    whole = round(weight * _FOUR_DIGITS)
    return whole if whole / _FOUR_DIGITS == weight else weight


def _long(stored: int | float) -> float:
    return stored / _FOUR_DIGITS if isinstance(stored, int) else stored
