"""Reads for planning: one revision of the corpus, and the chunks of the documents that the plan adds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from drillcore_server.documents.ingestion.prepared_documents import PreparedChunk, PreparedDocument
from drillcore_server.hierarchy.model import Chunk, ChunkWithRaws, Document, Master, Section
from drillcore_server.hierarchy.packed import PlacedChunk
from drillcore_server.hierarchy.sections import Outlines, SectionCache
from drillcore_server.hierarchy.source_model import Source
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import DocumentId, Membership, NodeId, SourceId
from drillcore_server.vectors.corpus_models import embeddings_of
from drillcore_server.vectors.embedding.embedders import Vector
from drillcore_server.vectors.stored_vectors import unpacked


@dataclass(frozen=True, slots=True)
class PlanReader:
    """Reads the revision that a plan is made on, in as many transactions as it takes."""

    batched: BatchedReads
    cache: SectionCache

    def outlines(self) -> Outlines:
        return self.batched.read(self.cache.at)

    def master(self) -> Master | None:
        return self.batched.read(lambda view: HierarchyReader(view).master())

    def sections(self, ids: Sequence[NodeId]) -> list[Section]:
        read = self.batched.each(ids, lambda view, section: HierarchyReader(view).section(section), CorpusKeys.section)
        return list(read)

    def members(self, section: NodeId) -> list[Membership]:
        return self.batched.read(lambda view: list(HierarchyReader(view).members(section)))

    def chunks(self, ids: Sequence[NodeId]) -> list[Chunk]:
        return [placed.chunk for placed in self._placed(ids)]

    def chunks_with_raws(self, ids: Sequence[NodeId]) -> list[ChunkWithRaws]:
        placed = list(self._placed(ids))
        return list(self.batched.together(placed, lambda view, some: HierarchyReader(view).with_raws(some)))

    def _placed(self, ids: Sequence[NodeId]) -> Iterator[PlacedChunk]:
        return self.batched.each(ids, lambda view, chunk: HierarchyReader(view).placed_chunk(chunk), CorpusKeys.chunk)

    def vectors(self, ids: Sequence[NodeId]) -> list[Vector]:
        """Returns the chunks' vectors from the current model."""
        embeddings = self.batched.read(embeddings_of) if ids else None
        model = embeddings.current.number if embeddings is not None else 0
        stored = self.batched.each(
            ids,
            lambda view, chunk: HierarchyReader(view).vector(model, chunk),
            lambda keys, chunk: keys.vector(model, chunk),
        )
        return [unpacked(vector) for vector in stored]

    def parents(self, ids: Sequence[NodeId]) -> list[NodeId]:
        return list(self.batched.each(ids, lambda view, node: HierarchyReader(view).parent(node), CorpusKeys.parent))

    def documents(self, ids: Sequence[DocumentId]) -> list[Document | None]:
        read = self.batched.find(ids, lambda view, id_: HierarchyReader(view).document(id_), CorpusKeys.document)
        return list(read)

    def sources(self, ids: Sequence[SourceId]) -> list[Source | None]:
        read = self.batched.find(
            ids, lambda view, source: HierarchyReader(view).source_unless_erased(source), self._source_key
        )
        return list(read)

    def _source_key(self, keys: CorpusKeys, source: SourceId) -> bytes:
        return keys.source(self.batched.sealed.hashed(source))


class FreshChunks:
    """Finds the chunks of the documents that a plan adds, by id. `note` must come first for each document."""

    def __init__(self, added: Sequence[PreparedDocument]) -> None:
        self._added = added
        self._places: dict[NodeId, tuple[int, int]] = {}

    def note(self, number: int, prepared: PreparedDocument) -> None:
        self._places |= {chunk: (number, place) for place, chunk in enumerate(prepared.document.chunks)}

    def __contains__(self, chunk: NodeId) -> bool:
        return chunk in self._places

    def __getitem__(self, chunk: NodeId) -> PreparedChunk:
        number, place = self._places[chunk]
        return self._added[number].chunks[place]

    def document(self, chunk: NodeId) -> Document:
        """Returns the document of a chunk."""
        return self._added[self._places[chunk][0]].document
