"""Reads for planning: one revision of the corpus, and the chunks of the documents that the plan adds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from drillcore_server.documents.ingestion.cited_chunks import Cited, CitedChunks
from drillcore_server.documents.ingestion.prepared_documents import PreparedChunk, PreparedDocument
from drillcore_server.hierarchy.model import Chunk, ChunkWithRaws, Document, Master, Section
from drillcore_server.hierarchy.packed import PlacedChunk
from drillcore_server.hierarchy.sections import Outlines, SectionCache
from drillcore_server.hierarchy.source_model import Source
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.revise import Overtaken
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import DocumentId, Membership, NodeId, SourceId
from drillcore_server.vectors.corpus_models import embeddings_of
from drillcore_server.vectors.embedding.embedders import Vector
from drillcore_server.vectors.stored_vectors import unpacked

_READ_AHEAD_MAX: Final = 500
"""Records that are read ahead. Of more, the others are read when their turn comes."""


@dataclass(frozen=True, slots=True)
class PlanReader:
    """Reads the revision that a plan is made on, in as many transactions as it takes."""

    batched: BatchedReads
    cache: SectionCache
    cited: CitedChunks

    def read_ahead(
        self,
        *,
        documents: Sequence[DocumentId] = (),
        sources: Sequence[SourceId] = (),
        chunks: Sequence[NodeId] = (),
    ) -> None:
        """Reads these records, the sections of the chunks, and what every plan needs, in one round trip."""

        def read(view: CorpusAtRevision) -> None:
            keys = view.keys
            found = [
                *map(keys.document, documents),
                *(self._source_key(keys, source) for source in sources),
                *(key for chunk in chunks for key in (keys.chunk(chunk), keys.parent(chunk))),
            ]
            view.read_ahead([keys.embeddings(), keys.master(), *found[:_READ_AHEAD_MAX]])

        self.batched.read(read)

    def read_members_ahead(self, members: Sequence[Membership]) -> None:
        """Reads in one round trip what making a section of these members anew needs."""

        def read(view: CorpusAtRevision) -> None:
            keys, embeddings = view.keys, embeddings_of(view)
            chunks, documents = [member.id for member in members], {member.document for member in members}
            vectors = [] if embeddings is None else [keys.vector(embeddings.current.number, chunk) for chunk in chunks]
            view.read_ahead([*map(keys.chunk, chunks), *vectors, *map(keys.document, documents)][:_READ_AHEAD_MAX])

        self.batched.read(read)

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
        found: list[ChunkWithRaws] = []
        for chunk in self.batched.together(placed, lambda view, some: HierarchyReader(view).with_raws(some)):
            if chunk is None:
                raise Overtaken  # its source was erased meanwhile: the next head is without it
            found.append(chunk)
        return found

    def cited_chunks(self, ids: Sequence[NodeId]) -> dict[NodeId, ChunkWithRaws]:
        """The chunks that a master cites. Keeps them for the next master, and reads only those that are not kept."""
        kept = self.kept()
        known = kept.chunks  # once: another thread may replace it meanwhile
        missing = [id_ for id_ in ids if id_ not in known]
        read = dict(zip(missing, self.chunks_with_raws(missing), strict=True)) if missing else {}
        found = {id_: read[id_] if id_ in read else known[id_] for id_ in ids}
        kept.chunks = found
        return found

    def kept(self) -> Cited:
        return self.batched.read(self.cited.at)

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
