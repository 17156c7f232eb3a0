"""The records of a hierarchy that a client made: what it gave, and what the server adds to it.

The server counts, embeds where the client did not, and chooses the passages that later summaries are made from: the
client's quotes and citations, and what the built-in processor finds where there are none.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from drillcore_proto.reasons import Reason
from drillcore_server.documents.ingestion import builtin
from drillcore_server.documents.ingestion.digest import content_hash
from drillcore_server.documents.ingestion.prepared_documents import Embeddings
from drillcore_server.documents.ingestion.section_summaries import SECTION_POOL
from drillcore_server.documents.processing.extractive import CHUNK_CANDIDATES_MAX
from drillcore_server.documents.processing.processor import ChunkInput
from drillcore_server.documents.put_hierarchy.gathered import ChunkParts, ClientHierarchy
from drillcore_server.documents.put_hierarchy.hierarchy_drafts import DocumentDraft, SectionDraft, invalid
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

_STORED: Final = np.dtype("<f2")
_BATCH: Final = 256
"""Chunks that are embedded and counted at once."""

PageOf = Callable[[NodeId], RawPage]
"""The raws of any chunk that `ClientRecords.documents` has given."""


def stored_vector(vector: npt.NDArray[Any]) -> bytes:
    """As it is kept: no component of a vector of length 1 is too large for 16 bits."""
    return vector.astype(_STORED).tobytes()


def model_of(hierarchy: ClientHierarchy, named: str, own: Embedder) -> Model:
    """The client's model, or the server's `own` where the client gave no vectors."""
    dimensions = hierarchy.vector_bytes // _STORED.itemsize
    if not dimensions:
        if named not in {"", own.model}:
            message = f"there are no embeddings of {named}, and the server itself has {own.model}"
            raise NotReady(Reason.MODEL_MISMATCH, message)
        return Model(own.model, own.dimensions)
    if not named:
        message = "embeddings come with the name of the model that made them"
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
class _Gathered:
    """What a section is to know of its chunks."""

    chunks: int = 0
    documents: int = 0
    vector_sum: npt.NDArray[np.float64] | None = None
    candidates: list[Citation] = field(default_factory=list)
    sources: set[SourceId] = field(default_factory=set)

    def take(self, chunk: Chunk, vector: bytes) -> None:
        wide = np.frombuffer(vector, _STORED).astype(np.float64)
        self.vector_sum = wide if self.vector_sum is None else self.vector_sum + wide
        self.chunks += 1
        self.sources.add(chunk.source)
        self.candidates += [Citation(chunk.document, chunk.id, one.span, one.weight) for one in chunk.candidates]
        if len(self.candidates) > 10 * SECTION_POOL:
            self.candidates = _heaviest(self.candidates)


class ClientRecords:
    """Makes the records of a hierarchy that `check` found whole: documents with their chunks first, then the others."""

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
        self._builtin = builtin.processor()
        self._at = at
        self._by = by
        self._gathered: dict[NodeId, _Gathered] = {}
        self.statistics = Statistics()

    def documents(self, report: Callable[[int], None]) -> Iterator[tuple[Document, list[MadeChunk]]]:
        """Each document, of source version 1, with its chunks. `report` hears how many chunks are done."""
        for draft in self._hierarchy.documents.values():
            parts = self._hierarchy.give_chunks(draft.id)
            chunks = []
            for start in range(0, len(parts), _BATCH):
                chunks += self._chunks(draft, start, parts[start : start + _BATCH])
                report(self.statistics.chunks + len(chunks))
            document = self._document(draft, parts, chunks)
            self.statistics += Statistics(1, 0, len(chunks), document.raws, document.characters, document.tokens)
            self._gather(chunks)
            yield document, chunks

    def _chunks(self, document: DocumentDraft, first: int, parts: Sequence[ChunkParts]) -> list[MadeChunk]:
        texts = [one.text for one in parts]
        vectors = self._vectors(document, parts, texts)
        candidates = self._candidates(document, parts)
        tokens = self._counter.count_many(texts)
        return [
            MadeChunk(
                self._chunk(document, first + place, one, count, chosen, vector.key),
                one.page,
                stored_vector(vector.vector),
                one.draft.parent,
            )
            for place, (one, vector, count, chosen) in enumerate(zip(parts, vectors, tokens, candidates, strict=True))
        ]

    def _vectors(
        self, document: DocumentDraft, parts: Sequence[ChunkParts], texts: Sequence[str]
    ) -> list[EmbeddedText]:
        if self._hierarchy.vector_bytes:
            return [EmbeddedText(np.frombuffer(one.draft.vector, _STORED).astype(np.float32), b"") for one in parts]
        titled = [
            embedded_text(document.title, one.draft.headings, text) for one, text in zip(parts, texts, strict=True)
        ]
        try:
            return self._embeddings.embed(titled)
        except TextRefused as refused:
            chunk = parts[refused.position].draft.id
            raise invalid(f"chunk {chunk}", f"cannot be embedded: its text {refused.problem.value}") from refused

    def _candidates(self, document: DocumentDraft, parts: Sequence[ChunkParts]) -> list[tuple[Excerpt, ...]]:
        found = [list(self._quotes(one)) for one in parts]
        silent = [place for place, one in enumerate(found) if not one]
        runs = [(place, run) for place in silent for run in parts[place].page.runs()]
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
        return [tuple(sorted(one, key=_by_weight)[:CHUNK_CANDIDATES_MAX]) for one in found]

    def _quotes(self, parts: ChunkParts) -> Iterator[Excerpt]:
        what = f"chunk {parts.draft.id}"
        for quote in parts.draft.quotes:
            if quote.chunk != parts.draft.id:
                raise invalid(what, f"quotes chunk {quote.chunk}: quotes are of the chunk itself")
            cited = self._hierarchy.check_citation(quote, what, parts.page)
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
            chunks=tuple(one.chunk.id for one in chunks),
            raws=sum(len(one.page.raws) for one in chunks),
            characters=characters,
            tokens=sum(one.chunk.tokens for one in chunks),
            created_at=self._at,
            created_by=self._by,
        )

    def _gather(self, chunks: Sequence[MadeChunk]) -> None:
        """All of one document."""
        for made in chunks:
            self._gathered.setdefault(made.section, _Gathered()).take(made.chunk, made.vector)
        for section in {made.section for made in chunks}:
            self._gathered[section].documents += 1

    def sections(self, page_of: PageOf) -> Iterator[Section]:
        """After the documents."""
        for draft in self._hierarchy.sections():
            self.statistics += Statistics(sections=1)
            yield self._section(draft, self._gathered.pop(draft.id), page_of)

    def _section(self, draft: SectionDraft, gathered: _Gathered, page_of: PageOf) -> Section:
        what = f"section {draft.id}"
        citations = tuple(self._hierarchy.cited(one, what, page_of, below=draft.id) for one in draft.citations)
        assert gathered.vector_sum is not None
        return Section(
            id=draft.id,
            title=draft.title,
            category=draft.category,
            summary=draft.summary,
            citations=citations,
            candidates=tuple(_heaviest(citations or gathered.candidates)),
            keywords=draft.keywords,
            tokens=self._counter.count(draft.summary),
            made_by=draft.made_by,
            entities=draft.entities,
            documents=gathered.documents,
            chunks=gathered.chunks,
            vector_sum=gathered.vector_sum.astype("<f4").tobytes(),
            created_at=self._at,
            created_by=self._by,
            sources=tuple(sorted(gathered.sources)),
        )

    def master(self, page_of: PageOf) -> Master:
        """After the sections."""
        draft = self._hierarchy.master
        what, cited = f"master {draft.id}", self._hierarchy.cited
        return Master(
            id=draft.id,
            summary=draft.summary,
            citations=tuple(cited(one, what, page_of) for one in draft.citations),
            findings=tuple(Finding(one.kind, one.text, cited(one.citation, what, page_of)) for one in draft.findings),
            keywords=draft.keywords,
            tokens=self._counter.count(draft.summary),
            made_by=draft.made_by,
            statistics=self.statistics,
            created_at=self._at,
            created_by=self._by,
        )


def _text_of(draft: DocumentDraft, parts: Sequence[ChunkParts]) -> tuple[int, str]:
    """How long the document's text is, and its hash, if that is known."""
    what = f"document {draft.id}"
    raws = [raw for one in parts for raw in one.page.raws]
    end = max(raw.span.end for raw in raws)
    if draft.characters and draft.characters < end:
        raise invalid(what, f"has {draft.characters} characters, but raws up to {end}")
    characters = draft.characters or end
    text = assembled(raws) if characters == end else None
    if text is None:
        return characters, draft.content_hash
    hashed = content_hash(text)
    if draft.content_hash not in {"", hashed}:
        raise invalid(what, "has another content_hash than the text that its raws make up")
    return characters, hashed


def _by_weight(excerpt: Excerpt) -> tuple[float, int]:
    return -excerpt.weight, excerpt.span.start


def _heaviest(citations: Sequence[Citation]) -> list[Citation]:
    return heapq.nsmallest(SECTION_POOL, citations, key=lambda one: (-one.weight, one.document, one.span.start))
