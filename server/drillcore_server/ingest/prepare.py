"""From a digested document to everything the store keeps of it: ids, records, vectors. No transaction inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final, NamedTuple, Protocol

import numpy as np

from drillcore_server.domain.documents import ParsedDocument, Span
from drillcore_server.domain.ids import DocumentId, FactId, PrincipalId, SourceId, new_uuid
from drillcore_server.domain.nodes import Chunk, Document, Raw, RawPage, new_chunk_id
from drillcore_server.ingest.digesting import DigestedChunk, DigestedDocument, Digester
from drillcore_server.ingest.embedding.embedders import Embedders
from drillcore_server.ingest.embedding.ports import Embedder, Vector, Vectors
from drillcore_server.ingest.facts import DrawnFact
from drillcore_server.ingest.processing.ports import Processor

_FACTS_AT_ONCE: Final = 1_024
"""Embedded together."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a document comes from, who adds it, and when."""

    source: SourceId
    source_version: int
    at: datetime
    by: PrincipalId


@dataclass(frozen=True, slots=True)
class PreparedFact:
    id: FactId
    """That it gets if its source does not say it already."""
    content: str
    span: Span
    tokens: int
    vector: bytes
    """As it is stored: there are many."""
    headings: tuple[str, ...] = ()
    """Below those of its chunk."""
    page: int | None = None
    leads: tuple[Span, ...] = ()
    """See `DrawnFact`."""
    lead_characters: int = 0


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    chunk: Chunk
    page: RawPage
    vector: Vector
    next_vector: Vector | None = None
    """Of the model that the corpus is being changed to, if there is one and it could be asked."""
    facts: tuple[PreparedFact, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    document: Document
    chunks: Sequence[PreparedChunk]


class EmbeddedText(NamedTuple):
    vector: Vector
    """As precise as it is stored, so that it is the same whether it was made or found."""
    key: bytes
    """What it is found by when the same text comes again; empty if it is not to be found."""
    next_vector: Vector | None = None
    """See `PreparedChunk`."""


class Embeddings(Protocol):
    def embed(self, texts: Sequence[str]) -> list[EmbeddedText]: ...

    def embed_facts(self, source: SourceId, texts: Sequence[str]) -> list[bytes]:
        """The vectors of what facts of a source say, as they are stored."""
        ...


def as_stored(vectors: Vectors) -> Vectors:
    return vectors.astype("<f2").astype(np.float32)


def packed_in_portions(embed: Callable[[Sequence[str]], Vectors], texts: Sequence[str]) -> Iterator[bytes]:
    """Vectors as they are stored, made some at a time: in full they take twice the room, and facts may be very many."""
    for start in range(0, len(texts), _FACTS_AT_ONCE):
        for vector in embed(texts[start : start + _FACTS_AT_ONCE]).astype("<f2"):
            yield vector.tobytes()


@dataclass(frozen=True, slots=True)
class PlainEmbeddings:
    """Embeds every text, whether it was embedded before or not."""

    embedder: Embedder

    def embed(self, texts: Sequence[str]) -> list[EmbeddedText]:
        return [EmbeddedText(vector, b"") for vector in as_stored(self.embedder.embed(texts))]

    def embed_facts(self, _source: SourceId, texts: Sequence[str]) -> list[bytes]:
        return list(packed_in_portions(self.embedder.embed, texts))


@dataclass(frozen=True, slots=True)
class Preparer:
    digester: Digester
    embedder: Embedder
    former: tuple[Embedder, ...] = ()
    """Of models that the server's own has replaced."""

    @property
    def embedders(self) -> Embedders:
        return Embedders(self.embedder, self.former)

    @property
    def processor(self) -> Processor:
        return self.digester.processor

    def prepare(self, parsed: ParsedDocument, origin: Origin) -> PreparedDocument:
        """Digested here and now, then completed."""
        return self.complete(self.digester.digest(parsed), origin, PlainEmbeddings(self.embedder))

    def complete(self, digested: DigestedDocument, origin: Origin, embeddings: Embeddings) -> PreparedDocument:
        """The document with new ids for itself and its chunks, and with their vectors."""
        document = DocumentId(new_uuid())
        title, text = digested.title, digested.text
        embedded = embeddings.embed([embedded_text(title, one.headings, one.span.of(text)) for one in digested.chunks])
        drawn = [fact for one in digested.chunks for fact in one.facts]
        vectors = embeddings.embed_facts(origin.source, [fact.content for fact in drawn])
        facts = map(_fact, drawn, vectors)
        chunks = tuple(
            PreparedChunk(
                self._chunk(document, place, one, origin, key),
                RawPage(tuple(Raw(document, raw, raw.of(digested.text)) for raw in one.raws)),
                vector,
                next_vector,
                tuple(islice(facts, len(one.facts))),
            )
            for place, (one, (vector, key, next_vector)) in enumerate(zip(digested.chunks, embedded, strict=True))
        )
        return PreparedDocument(_document(document, digested, chunks, origin), chunks)

    def _chunk(
        self, document: DocumentId, place: int, digested: DigestedChunk, origin: Origin, embedded: bytes
    ) -> Chunk:
        return Chunk(
            id=new_chunk_id(),
            document=document,
            source=origin.source,
            ordinal=place,
            span=digested.own,
            headings=digested.headings,
            page=digested.page,
            tokens=digested.tokens,
            summary=digested.summary,
            summary_text=digested.summary_text,
            quotes=digested.quotes,
            candidates=digested.candidates,
            entities=digested.entities,
            keywords=digested.keywords,
            made_by=digested.made_by,
            created_at=origin.at,
            created_by=origin.by,
            embedded=embedded,
            overlap=digested.own.start - digested.span.start,
        )


def _fact(drawn: DrawnFact, vector: bytes) -> PreparedFact:
    where = drawn.headings, drawn.page, drawn.leads, drawn.lead_characters
    return PreparedFact(FactId(new_uuid()), drawn.content, drawn.span, drawn.tokens, vector, *where)


def embedded_text(title: str, headings: Sequence[str], text: str) -> str:
    """What is embedded of a chunk: its text with the titles above it, which say what its words alone may not."""
    return "\n".join([title, *headings, text])


def _document(
    document: DocumentId, digested: DigestedDocument, chunks: Sequence[PreparedChunk], origin: Origin
) -> Document:
    return Document(
        id=document,
        source=origin.source,
        source_version=origin.source_version,
        title=digested.title,
        media_type=digested.media_type,
        content_hash=digested.content_hash,
        preprocessing=digested.preprocessing,
        metadata=digested.metadata,
        chunks=tuple(one.chunk.id for one in chunks),
        raws=sum(len(one.raws) for one in digested.chunks),
        characters=len(digested.text),
        tokens=sum(one.tokens for one in digested.chunks),
        created_at=origin.at,
        created_by=origin.by,
    )
