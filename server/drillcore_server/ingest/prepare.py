"""From a digested document to everything the store keeps of it: ids, records, vectors. No transaction inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

import numpy as np

from drillcore_server.domain.documents import ParsedDocument
from drillcore_server.domain.ids import DocumentId, PrincipalId, SourceId, new_uuid
from drillcore_server.domain.nodes import Chunk, Document, Raw, RawPage, new_chunk_id
from drillcore_server.ingest.digesting import DigestedChunk, DigestedDocument, Digester
from drillcore_server.ingest.embedding.ports import Embedder, Vector, Vectors
from drillcore_server.ingest.processing.ports import Processor


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a document comes from, who adds it, and when."""

    source: SourceId
    source_version: int
    at: datetime
    by: PrincipalId


@dataclass(frozen=True, slots=True)
class PreparedChunk:
    chunk: Chunk
    page: RawPage
    vector: Vector


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    document: Document
    chunks: Sequence[PreparedChunk]


class EmbeddedText(NamedTuple):
    vector: Vector
    """As precise as it is stored, so that it is the same whether it was made or found."""
    key: bytes
    """What it is found by when the same text comes again; empty if it is not to be found."""


class Embeddings(Protocol):
    def embed(self, texts: Sequence[str]) -> list[EmbeddedText]: ...


def as_stored(vectors: Vectors) -> Vectors:
    return vectors.astype("<f2").astype(np.float32)


@dataclass(frozen=True, slots=True)
class PlainEmbeddings:
    """Embeds every text, whether it was embedded before or not."""

    embedder: Embedder

    def embed(self, texts: Sequence[str]) -> list[EmbeddedText]:
        return [EmbeddedText(vector, b"") for vector in as_stored(self.embedder.embed(texts))]


@dataclass(frozen=True, slots=True)
class Preparer:
    digester: Digester
    embedder: Embedder

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
        chunks = tuple(
            PreparedChunk(
                self._chunk(document, place, one, origin, key),
                RawPage(tuple(Raw(document, raw, raw.of(digested.text)) for raw in one.raws)),
                vector,
            )
            for place, (one, (vector, key)) in enumerate(zip(digested.chunks, embedded, strict=True))
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
            embedding_model=self.embedder.model,
            created_at=origin.at,
            created_by=origin.by,
            embedded=embedded,
        )


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
