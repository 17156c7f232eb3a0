"""One revision of a corpus for planning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drillcore_server.derived.sections import SectionCache
from drillcore_server.derived.vectors import unpacked
from drillcore_server.domain.ids import CorpusNumber, DocumentId, NodeId, SourceId
from drillcore_server.domain.nodes import Chunk, ChunkWithRaws, Document, Master, Membership, Section
from drillcore_server.domain.outlines import Outlines
from drillcore_server.domain.sources import Source
from drillcore_server.ingest.embedding.ports import Vector
from drillcore_server.store.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class SnapshotReader:
    snapshot: Snapshot
    number: CorpusNumber
    cache: SectionCache

    def outlines(self) -> Outlines:
        return self.snapshot.read(lambda view: self.cache.at(self.number, view))

    def master(self) -> Master | None:
        return self.snapshot.read(lambda view: view.master())

    def sections(self, ids: Sequence[NodeId]) -> list[Section]:
        return list(self.snapshot.each(ids, lambda view, one: view.section(one)))

    def members(self, section: NodeId) -> list[Membership]:
        return self.snapshot.read(lambda view: list(view.members(section)))

    def chunks(self, ids: Sequence[NodeId]) -> list[Chunk]:
        return list(self.snapshot.each(ids, lambda view, one: view.chunk(one)))

    def chunks_with_raws(self, ids: Sequence[NodeId]) -> list[ChunkWithRaws]:
        return list(self.snapshot.each(ids, lambda view, one: view.chunk_with_raws(one)))

    def vectors(self, ids: Sequence[NodeId]) -> list[Vector]:
        """Of the current model."""
        now = self.snapshot.read(lambda view: view.embeddings()) if ids else None
        number = now.current.number if now is not None else 0
        return [unpacked(one) for one in self.snapshot.each(ids, lambda view, one: view.vector(number, one))]

    def parents(self, ids: Sequence[NodeId]) -> list[NodeId]:
        return list(self.snapshot.each(ids, lambda view, one: view.parent(one)))

    def documents(self, ids: Sequence[DocumentId]) -> list[Document | None]:
        return list(self.snapshot.find(ids, lambda view, one: view.document(one)))

    def sources(self, ids: Sequence[SourceId]) -> list[Source | None]:
        return list(self.snapshot.find(ids, lambda view, one: view.source_left(one)))
