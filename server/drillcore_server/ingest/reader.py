"""What planning reads: one revision of the corpus, and the documents that are to be added to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from drillcore_server.domain.ids import DocumentId, NodeId
from drillcore_server.domain.nodes import Chunk, ChunkWithRaws, Document, Master, Membership, Section
from drillcore_server.domain.outlines import Outlines
from drillcore_server.ingest.embedding.ports import Vector
from drillcore_server.ingest.prepare import PreparedChunk, PreparedDocument


class CorpusReader(Protocol):
    """One revision of the corpus."""

    def outlines(self) -> Outlines: ...

    def master(self) -> Master | None: ...

    def sections(self, ids: Sequence[NodeId]) -> list[Section]: ...

    def members(self, section: NodeId) -> list[Membership]: ...

    def chunks(self, ids: Sequence[NodeId]) -> list[Chunk]: ...

    def chunks_with_raws(self, ids: Sequence[NodeId]) -> list[ChunkWithRaws]: ...

    def vectors(self, ids: Sequence[NodeId]) -> list[Vector]: ...

    def parents(self, ids: Sequence[NodeId]) -> list[NodeId]: ...

    def documents(self, ids: Sequence[DocumentId]) -> list[Document | None]: ...


class FreshChunks:
    """The chunks of the documents that a plan adds, by id."""

    def __init__(self, added: Sequence[PreparedDocument]) -> None:
        self._added = added
        self._places: dict[NodeId, tuple[int, int]] = {}

    def note(self, number: int, prepared: PreparedDocument) -> None:
        self._places |= {one: (number, place) for place, one in enumerate(prepared.document.chunks)}

    def __contains__(self, chunk: NodeId) -> bool:
        return chunk in self._places

    def __getitem__(self, chunk: NodeId) -> PreparedChunk:
        number, place = self._places[chunk]
        return self._added[number].chunks[place]

    def document(self, chunk: NodeId) -> Document:
        """That a chunk is of."""
        return self._added[self._places[chunk][0]].document
