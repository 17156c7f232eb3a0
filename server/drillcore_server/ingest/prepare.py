"""From a parsed document to everything the store keeps of it: chunks, raws, digests, vectors. No transaction inside."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from drillcore_server.domain.digests import ChunkDigest, Passage
from drillcore_server.domain.documents import ChunkSpan, ParsedDocument, Span
from drillcore_server.domain.ids import ContentHash, DocumentId, PrincipalId, SourceId, new_uuid
from drillcore_server.domain.nodes import Chunk, Document, Excerpt, Raw, RawPage, new_chunk_id
from drillcore_server.ingest.chunking import ChunkSettings, chunk
from drillcore_server.ingest.embedding.ports import Embedder, Vector
from drillcore_server.ingest.processing.ports import ChunkInput, Processor
from drillcore_server.ingest.tokens import TokenCounter


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
    chunks: tuple[PreparedChunk, ...]


def content_hash(text: str) -> ContentHash:
    return ContentHash(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


@dataclass(frozen=True, slots=True)
class Preparer:
    counter: TokenCounter
    processor: Processor
    embedder: Embedder
    chunking: ChunkSettings

    def prepare(self, parsed: ParsedDocument, origin: Origin) -> PreparedDocument:
        """The document with new ids for itself and its chunks."""
        document = DocumentId(new_uuid())
        spans = chunk(parsed, self.counter, self.chunking)
        own = [Span(span.raws[0].start, span.raws[-1].end) for span in spans]
        digests = self.processor.process_chunks(
            [
                ChunkInput(one.of(parsed.text), one.start, str(document), (parsed.title, *span.headings))
                for one, span in zip(own, spans, strict=True)
            ]
        )
        vectors = self.embedder.embed([_titled(parsed, span) for span in spans])
        chunks = tuple(
            PreparedChunk(
                self._chunk(document, place, span, own_span, digest, origin),
                _page(document, parsed.text, span),
                vector,
            )
            for place, (span, own_span, digest, vector) in enumerate(zip(spans, own, digests, vectors, strict=True))
        )
        return PreparedDocument(_document(document, parsed, spans, chunks, origin), chunks)

    def _chunk(
        self, document: DocumentId, place: int, span: ChunkSpan, own: Span, digest: ChunkDigest, origin: Origin
    ) -> Chunk:
        extractive = digest.summary.text == "\n".join(passage.text for passage in digest.summary.passages)
        return Chunk(
            id=new_chunk_id(),
            document=document,
            source=origin.source,
            ordinal=place,
            span=own,
            headings=span.headings,
            page=span.page,
            tokens=span.tokens,
            summary=_excerpts(digest.summary.passages),
            summary_text="" if extractive else digest.summary.text,
            quotes=_excerpts(digest.quotes),
            candidates=_excerpts(digest.candidates),
            entities=digest.entities,
            keywords=digest.keywords,
            made_by=digest.made_by,
            embedding_model=self.embedder.model,
            created_at=origin.at,
            created_by=origin.by,
        )


def _titled(parsed: ParsedDocument, span: ChunkSpan) -> str:
    """What is embedded: the chunk with the titles above it, which say what its words alone may not."""
    return "\n".join([parsed.title, *span.headings, span.span.of(parsed.text)])


def _excerpts(passages: Sequence[Passage]) -> tuple[Excerpt, ...]:
    return tuple(Excerpt(passage.span, passage.weight) for passage in passages)


def _page(document: DocumentId, text: str, span: ChunkSpan) -> RawPage:
    return RawPage(tuple(Raw(document, raw, raw.of(text)) for raw in span.raws))


def _document(
    document: DocumentId,
    parsed: ParsedDocument,
    spans: Sequence[ChunkSpan],
    chunks: Sequence[PreparedChunk],
    origin: Origin,
) -> Document:
    return Document(
        id=document,
        source=origin.source,
        source_version=origin.source_version,
        title=parsed.title,
        media_type=parsed.media_type,
        content_hash=content_hash(parsed.text),
        preprocessing=parsed.preprocessing,
        metadata=parsed.metadata,
        chunks=tuple(one.chunk.id for one in chunks),
        raws=sum(len(span.raws) for span in spans),
        characters=len(parsed.text),
        tokens=sum(span.tokens for span in spans),
        created_at=origin.at,
        created_by=origin.by,
    )
