"""Completes digested documents with everything that the store keeps: ids, records and vectors. Uses no transaction.

At the end are the built-in models, which need no network.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import islice
from typing import Protocol

from drillcore_server.documents.ingestion.chunk_spans import ChunkSettings
from drillcore_server.documents.ingestion.digest import DigestedChunk, DigestedDocument, Digester
from drillcore_server.documents.ingestion.drawn_facts import DrawnFact
from drillcore_server.documents.model import ParsedDocument
from drillcore_server.documents.processors import ExtractiveProcessor, Processor
from drillcore_server.embeddings.corpus_embeddings import EmbeddedText
from drillcore_server.facts.blocks import fact_in_block
from drillcore_server.hierarchy.model import Chunk, Document, Raw, RawPage, embedded_text, new_chunk_id
from drillcore_server.storage.ids import BlockId, DocumentId, FactId, PrincipalId, SourceId, Span, new_uuid
from drillcore_server.tokenizers.encodings import TokenCounter, token_counter
from drillcore_server.vectors.embedding.embedders import Embedder, Embedders, Vector
from drillcore_server.vectors.embedding.static import load_static
from drillcore_server.vectors.embedding.unit_vectors import packed_in_portions
from drillcore_server.vectors.stored_vectors import as_stored


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
    """The id of the fact if it is new. A fact that its source has already keeps its own id."""
    content: str
    span: Span
    tokens: int
    vector: bytes
    """Packed as it is stored: a document may have very many facts."""
    headings: tuple[str, ...] = ()
    """The headings above the fact and below the headings of its chunk."""
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
    """The vector from the model that the corpus migrates to. None without a migration, or if the model failed."""
    facts: tuple[PreparedFact, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    document: Document
    chunks: Sequence[PreparedChunk]


class Embeddings(Protocol):
    def embed(self, texts: Sequence[str]) -> list[EmbeddedText]: ...

    def embed_facts(self, source: SourceId, texts: Sequence[str]) -> list[bytes]:
        """Returns the vectors for facts of this source, packed as they are stored."""
        ...


@dataclass(frozen=True, slots=True)
class PlainEmbeddings:
    """Embeds every text, even if it was embedded before."""

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
    """Embedders of former models: corpora that have not migrated yet still need them."""

    @property
    def embedders(self) -> Embedders:
        return Embedders(self.embedder, self.former)

    @property
    def processor(self) -> Processor:
        return self.digester.processor

    def prepare(self, parsed: ParsedDocument, origin: Origin) -> PreparedDocument:
        """Digests a document in this process, then completes it."""
        return self.complete(self.digester.digest(parsed), origin, PlainEmbeddings(self.embedder))

    def complete(self, digested: DigestedDocument, origin: Origin, embeddings: Embeddings) -> PreparedDocument:
        """Returns the document with new ids for itself and its chunks, and with their vectors."""
        document = DocumentId(new_uuid())
        title, text = digested.title, digested.text
        embedded = embeddings.embed(
            [embedded_text(title, chunk.headings, chunk.span.of(text)) for chunk in digested.chunks]
        )
        drawn = [fact for chunk in digested.chunks for fact in chunk.facts]
        vectors = embeddings.embed_facts(origin.source, [fact.content for fact in drawn])
        facts = zip(drawn, vectors, strict=True)
        chunks: list[PreparedChunk] = []
        for place, (chunk, (vector, key, next_vector)) in enumerate(zip(digested.chunks, embedded, strict=True)):
            record = self._chunk(document, place, chunk, origin, key)
            page = RawPage(tuple(Raw(document, raw, raw.of(digested.text)) for raw in chunk.raws))
            own = _facts(BlockId(record.id), islice(facts, len(chunk.facts)))
            chunks.append(PreparedChunk(record, page, vector, next_vector, own))
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


def _facts(block: BlockId, drawn: Iterable[tuple[DrawnFact, bytes]]) -> tuple[PreparedFact, ...]:
    return tuple(_fact(fact_in_block(block, place), fact, vector) for place, (fact, vector) in enumerate(drawn))


def _fact(id_: FactId, drawn: DrawnFact, vector: bytes) -> PreparedFact:
    where = drawn.headings, drawn.page, drawn.leads, drawn.lead_characters
    return PreparedFact(id_, drawn.content, drawn.span, drawn.tokens, vector, *where)


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
        chunks=tuple(chunk.chunk.id for chunk in chunks),
        raws=sum(len(chunk.raws) for chunk in digested.chunks),
        characters=len(digested.text),
        tokens=sum(chunk.tokens for chunk in digested.chunks),
        created_at=origin.at,
        created_by=origin.by,
    )


@cache
def builtin_embedder() -> Embedder:
    """Returns the built-in embedder. It is loaded once in a process."""
    return load_static()


@cache
def builtin_counter() -> TokenCounter:
    """Returns the built-in token counter. It is loaded once in a process."""
    return token_counter()


def builtin_processor() -> Processor:
    return ExtractiveProcessor(builtin_counter())


def builtin_preparer(processor: Processor | None = None, embedder: Embedder | None = None) -> Preparer:
    """Returns a preparer with the given models, and with the built-in ones in place of those that are not given."""
    digester = Digester(builtin_counter(), processor or builtin_processor(), ChunkSettings())
    return Preparer(digester, embedder or builtin_embedder())
