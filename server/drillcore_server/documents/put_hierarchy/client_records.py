"""Makes the records of a hierarchy that a client made, and adds to them what the client cannot know.

The server counts tokens, and embeds chunks if the client gave no vectors. It also chooses the passages for later
summaries: the client's quotes and citations, or where there are none, the choice of the built-in processor.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from drillcore_proto.reasons import Reason
from drillcore_server.documents.ingestion.digest import content_hash
from drillcore_server.documents.ingestion.prepared_documents import Embeddings, builtin_processor
from drillcore_server.documents.ingestion.section_summaries import SECTION_POOL
from drillcore_server.documents.processors.extractive import CHUNK_CANDIDATES_MAX
from drillcore_server.documents.processors.processor import ChunkInput
from drillcore_server.documents.put_hierarchy.client_hierarchy import (
    ChunkParts,
    ClientHierarchy,
    DocumentDraft,
    SectionDraft,
    invalid,
)
from drillcore_server.embeddings.corpus_embeddings import EmbeddedText
from drillcore_server.hierarchy.model import (
    Chunk,
    Citation,
    Document,
    Excerpt,
    Finding,
    Master,
    RawPage,
    Section,
    Statistics,
    assembled,
    embedded_text,
)
from drillcore_server.kernel.errors import BadInput, NotReady
from drillcore_server.storage.ids import NodeId, PrincipalId, SourceId
from drillcore_server.tokenizers.encodings import TokenCounter
from drillcore_server.vectors.embedding.embedders import Embedder, TextRefused
from drillcore_server.vectors.model import Model
from drillcore_server.vectors.stored_vectors import packed, unpacked

_BATCH: Final = 256
"""The number of chunks that are embedded and counted at once."""

PageOf = Callable[[NodeId], RawPage]
"""Returns the raws of a chunk that `ClientRecords.documents` has yielded."""


def model_of(hierarchy: ClientHierarchy, named: str, own: Embedder) -> Model:
    """Returns the model of the chunks' vectors: the client's, or the server's `own` if the client gave no vectors.

    `named` is the model that the client names. Raises `Refused` if the name and the vectors do not fit together.
    """
    dimensions = hierarchy.dimensions
    if not dimensions:
        if named not in {"", own.model}:
            message = (
                f"the chunks have no embeddings of {named}: send them, or leave embedding_model out to use {own.model}"
            )
            raise NotReady(Reason.MODEL_MISMATCH, message)
        return Model(own.model, own.dimensions)
    if not named:
        message = "chunks have embeddings: name the model that made them in embedding_model"
        raise BadInput(Reason.INVALID_VECTOR, message, field="embedding_model")
    if named == own.model and dimensions != own.dimensions:
        raise BadInput(Reason.INVALID_VECTOR, f"vectors of {named} have {own.dimensions} components, not {dimensions}")
    return Model(named, dimensions)


@dataclass(frozen=True, slots=True)
class MadeChunk:
    chunk: Chunk
    page: RawPage
    vector: bytes
    section: NodeId


@dataclass(slots=True)
class _SectionContent:
    """The counts, candidates and sources of the chunks in a section, added up chunk by chunk."""

    chunks: int = 0
    documents: int = 0
    vector_sum: npt.NDArray[np.float64] | None = None
    candidates: list[Citation] = field(default_factory=list)
    sources: set[SourceId] = field(default_factory=set)

    def add(self, chunk: Chunk, vector: bytes) -> None:
        wide = unpacked(vector).astype(np.float64)
        self.vector_sum = wide if self.vector_sum is None else self.vector_sum + wide
        self.chunks += 1
        self.sources.add(chunk.source)
        self.candidates += [
            Citation(chunk.document, chunk.id, candidate.span, candidate.weight) for candidate in chunk.candidates
        ]
        if len(self.candidates) > 10 * SECTION_POOL:
            self.candidates = _heaviest(self.candidates)


class ClientRecords:
    """Makes the records of a checked hierarchy. Call `documents` first, then `sections`, then `master`."""

    def __init__(
        self,
        hierarchy: ClientHierarchy,
        counter: TokenCounter,
        embeddings: Embeddings,
        at: datetime,
        by: PrincipalId,
    ) -> None:
        self._hierarchy = hierarchy
        self._counter = counter
        self._embeddings = embeddings
        self._builtin = builtin_processor()
        self._at = at
        self._by = by
        self._content_of: dict[NodeId, _SectionContent] = {}
        """The content of each section."""
        self.statistics = Statistics()

    def documents(self, report: Callable[[int], None]) -> Iterator[tuple[Document, list[MadeChunk]]]:
        """Yields each document, with source version 1, and its chunks. `report` gets the number of finished chunks.

        Raises `BadInput` if a document contradicts itself.
        """
        for draft in self._hierarchy.documents.values():
            parts = self._hierarchy.release_chunks(draft.id)
            chunks = []
            for start in range(0, len(parts), _BATCH):
                chunks += self._chunks(draft, start, parts[start : start + _BATCH])
                report(self.statistics.chunks + len(chunks))
            document = self._document(draft, parts, chunks)
            self.statistics += Statistics(1, 0, len(chunks), document.raws, document.characters, document.tokens)
            self._add_to_sections(chunks)
            yield document, chunks

    def _chunks(self, document: DocumentDraft, first: int, parts: Sequence[ChunkParts]) -> list[MadeChunk]:
        texts = [chunk.text for chunk in parts]
        vectors = self._vectors(document, parts, texts)
        candidates = self._candidates(document, parts)
        tokens = self._counter.count_many(texts)
        return [
            MadeChunk(
                self._chunk(document, first + place, chunk, count, chosen, vector.key),
                chunk.page,
                packed(vector.vector),
                chunk.draft.parent,
            )
            for place, (chunk, vector, count, chosen) in enumerate(zip(parts, vectors, tokens, candidates, strict=True))
        ]

    def _vectors(
        self, document: DocumentDraft, parts: Sequence[ChunkParts], texts: Sequence[str]
    ) -> list[EmbeddedText]:
        if self._hierarchy.dimensions:
            return [EmbeddedText(unpacked(chunk.draft.vector), b"") for chunk in parts]
        titled = [
            embedded_text(document.title, chunk.draft.headings, text) for chunk, text in zip(parts, texts, strict=True)
        ]
        try:
            return self._embeddings.embed(titled)
        except TextRefused as refused:
            refused_chunk = parts[refused.position].draft.id
            raise invalid(
                f"chunk {refused_chunk}", f"cannot be embedded: its text {refused.problem.value}"
            ) from refused

    def _candidates(self, document: DocumentDraft, parts: Sequence[ChunkParts]) -> list[tuple[Excerpt, ...]]:
        found = [list(self._quotes(chunk)) for chunk in parts]
        without_quotes = [place for place, quotes in enumerate(found) if not quotes]
        runs = [(place, run) for place in without_quotes for run in parts[place].page.runs()]
        digests = self._builtin.process_chunks(
            [
                ChunkInput(
                    parts[place].page.text_of(run),
                    run.start,
                    str(document.id),
                    (document.title, *parts[place].draft.headings),
                )
                for place, run in runs
            ]
        )
        for (place, _), digest in zip(runs, digests, strict=True):
            found[place] += [Excerpt(passage.span, passage.weight) for passage in digest.candidates]
        return [tuple(sorted(excerpts, key=_by_weight)[:CHUNK_CANDIDATES_MAX]) for excerpts in found]

    def _quotes(self, parts: ChunkParts) -> Iterator[Excerpt]:
        label = f"chunk {parts.draft.id}"
        for quote in parts.draft.quotes:
            if quote.chunk != parts.draft.id:
                raise invalid(label, f"has a quote of chunk {quote.chunk}: a chunk quotes only itself")
            cited = self._hierarchy.check_chunk_citation(quote, label, parts.page)
            yield Excerpt(cited.span, cited.weight)

    def _chunk(
        self,
        document: DocumentDraft,
        place: int,
        parts: ChunkParts,
        tokens: int,
        candidates: tuple[Excerpt, ...],
        embedded: bytes,
    ) -> Chunk:
        draft = parts.draft
        return Chunk(
            id=draft.id,
            document=draft.document,
            source=document.source,
            ordinal=place,
            span=parts.page.span,
            headings=draft.headings,
            page=draft.page,
            tokens=tokens,
            summary=(),
            summary_text=draft.summary,
            quotes=tuple(Excerpt(quote.span, quote.weight) for quote in draft.quotes),
            candidates=candidates,
            entities=draft.entities,
            keywords=draft.keywords,
            made_by=draft.made_by,
            created_at=self._at,
            created_by=self._by,
            raw_ids=parts.raw_ids,
            embedded=embedded,
        )

    def _document(self, draft: DocumentDraft, parts: Sequence[ChunkParts], chunks: Sequence[MadeChunk]) -> Document:
        characters, hashed = _text_of(draft, parts)
        return Document(
            id=draft.id,
            source=draft.source,
            source_version=1,
            title=draft.title,
            media_type=draft.media_type,
            content_hash=hashed,
            preprocessing=draft.preprocessing,
            metadata=draft.metadata,
            chunks=tuple(made.chunk.id for made in chunks),
            raws=sum(len(made.page.raws) for made in chunks),
            characters=characters,
            tokens=sum(made.chunk.tokens for made in chunks),
            created_at=self._at,
            created_by=self._by,
        )

    def _add_to_sections(self, chunks: Sequence[MadeChunk]) -> None:
        """Adds all chunks of one document to the content of their sections."""
        for made in chunks:
            self._content_of.setdefault(made.section, _SectionContent()).add(made.chunk, made.vector)
        for section in {made.section for made in chunks}:
            self._content_of[section].documents += 1

    def sections(self, page_of: PageOf) -> Iterator[Section]:
        """Yields the sections. All documents must have been read before. Raises `BadInput` for a false citation."""
        for draft in self._hierarchy.sections():
            self.statistics += Statistics(sections=1)
            yield self._section(draft, self._content_of.pop(draft.id), page_of)

    def _section(self, draft: SectionDraft, content: _SectionContent, page_of: PageOf) -> Section:
        label = f"section {draft.id}"
        citations = tuple(
            self._hierarchy.check_citation(citation, label, page_of, below=draft.id) for citation in draft.citations
        )
        assert content.vector_sum is not None
        return Section(
            id=draft.id,
            title=draft.title,
            category=draft.category,
            summary=draft.summary,
            citations=citations,
            candidates=tuple(_heaviest(citations or content.candidates)),
            keywords=draft.keywords,
            tokens=self._counter.count(draft.summary),
            made_by=draft.made_by,
            entities=draft.entities,
            documents=content.documents,
            chunks=content.chunks,
            vector_sum=content.vector_sum.astype("<f4").tobytes(),
            created_at=self._at,
            created_by=self._by,
            sources=tuple(sorted(content.sources)),
        )

    def master(self, page_of: PageOf) -> Master:
        """Returns the master. All sections must have been read before. Raises `BadInput` for a false citation."""
        draft = self._hierarchy.master
        label, check = f"master {draft.id}", self._hierarchy.check_citation
        return Master(
            id=draft.id,
            summary=draft.summary,
            citations=tuple(check(citation, label, page_of) for citation in draft.citations),
            findings=tuple(
                Finding(finding.kind, finding.text, check(finding.citation, label, page_of))
                for finding in draft.findings
            ),
            keywords=draft.keywords,
            tokens=self._counter.count(draft.summary),
            made_by=draft.made_by,
            statistics=self.statistics,
            created_at=self._at,
            created_by=self._by,
        )


def _text_of(draft: DocumentDraft, parts: Sequence[ChunkParts]) -> tuple[int, str]:
    """Returns the length of the document's text, and its hash, which is empty if nobody knows it.

    Raises `BadInput` if the client's length or hash contradicts the raws.
    """
    label = f"document {draft.id}"
    raws = [raw for chunk in parts for raw in chunk.page.raws]
    end = max(raw.span.end for raw in raws)
    if draft.characters and draft.characters < end:
        raise invalid(label, f"has {draft.characters} characters, but its raws go up to {end}")
    characters = draft.characters or end
    text = assembled(raws) if characters == end else None
    if text is None:
        return characters, draft.content_hash
    hashed = content_hash(text)
    if draft.content_hash not in {"", hashed}:
        raise invalid(label, "has a content_hash that is not the hash of the text in its raws")
    return characters, hashed


def _by_weight(excerpt: Excerpt) -> tuple[float, int]:
    return -excerpt.weight, excerpt.span.start


def _heaviest(citations: Sequence[Citation]) -> list[Citation]:
    return heapq.nsmallest(
        SECTION_POOL, citations, key=lambda citation: (-citation.weight, citation.document, citation.span.start)
    )
