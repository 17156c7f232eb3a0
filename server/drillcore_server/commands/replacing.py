"""The writes that replace what a corpus has by a whole hierarchy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from drillcore_server.commands.earlier import Earlier, batches
from drillcore_server.commands.replaced_facts import ReplacedFacts
from drillcore_server.commands.unit import Call
from drillcore_server.domain.embeddings import Embeddings, Model
from drillcore_server.domain.ids import DocumentId, NodeId, PrincipalId, SourceId
from drillcore_server.domain.nodes import Chunk, ChunkWithRaws, Document, Master, Section
from drillcore_server.domain.sources import Source, succeeding
from drillcore_server.store.hierarchy import DOCUMENT, HierarchyWrites
from drillcore_server.store.packed import SECTION, decode_chunk
from drillcore_server.store.writes import Write

Node = TypeVar("Node", Chunk, Section, Master)


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk's records, encoded."""

    chunk: bytes
    """With its raws."""
    vector: bytes
    section: NodeId


@dataclass(frozen=True, slots=True)
class Records:
    """Everything there is of a hierarchy before it is known what the corpus had: all of version 1."""

    documents: Mapping[DocumentId, Document]
    chunks: Mapping[NodeId, StoredChunk]
    sections: Mapping[NodeId, bytes]
    master: Master
    model: Model
    """Of the chunks' vectors."""

    def chunk(self, node: NodeId) -> ChunkWithRaws | None:
        stored = self.chunks.get(node)
        return None if stored is None else decode_chunk(node, stored.chunk)


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a node comes from, and its last version."""

    created_at: datetime
    created_by: PrincipalId
    version: int

    @classmethod
    def of(cls, node: Chunk | Section | Master) -> _Origin:
        return cls(node.created_at, node.created_by, node.version)


@dataclass(frozen=True, slots=True)
class Replacement:
    """Writes are made one by one, as they are asked for."""

    call: Call
    earlier: Earlier
    known: Set[NodeId]
    """Nodes of the hierarchy that the corpus has or had: the new ones are their next versions."""
    nodes: Set[NodeId]
    """All of the hierarchy."""
    records: Records
    make: HierarchyWrites
    models_before: Embeddings | None
    models: Embeddings
    facts: ReplacedFacts

    def writes(self, before: Mapping[DocumentId, SourceId]) -> Iterator[Write]:
        """`before` are the documents that the corpus has, and their sources."""
        yield from self.facts.writes()
        if self.models != self.models_before:
            yield self.make.set_embeddings(self.models)
        yield from self.earlier.removals(self.nodes, self.records.documents.keys(), self._stale_models())
        yield from self._documents(before)
        below: dict[NodeId, set[DocumentId]] = {}
        yield from self._chunks(below)
        yield from self._sections(below)
        yield from self._master()

    def _stale_models(self) -> Iterator[tuple[int, bool]]:
        """The models that have vectors, each with whether those of the nodes that stay get new ones."""
        for number in () if self.models_before is None else self.models_before.numbers:
            yield number, number in self.models.numbers

    def _documents(self, before: Mapping[DocumentId, SourceId]) -> Iterator[Write]:
        for some in batches(self.records.documents.values()):
            yield from self._some_documents(some)
        yield from self._left_sources(before)

    def _some_documents(self, documents: Sequence[Document]) -> Iterator[Write]:
        keys = self.earlier.keys
        last = self.earlier.last(DOCUMENT.decode, [keys.document(one.id) for one in documents], lambda one: one)
        sources = self.earlier.sources([one.source for one in documents])
        for document, had, known in zip(documents, last, sources, strict=True):
            source = self._source(document, known)
            created = had or document
            yield from self.make.put_source(source)
            yield from self.make.put_document(
                replace(
                    document,
                    source_version=source.version,
                    created_at=created.created_at,
                    created_by=created.created_by,
                )
            )

    def _source(self, document: Document, known: Source | None) -> Source:
        """As AddDocuments has it: a new version with other content, also after the source was removed."""
        following = succeeding(known, document, self.call.at)
        if known is not None and known.document is not None and known.content_hash == document.content_hash != "":
            return replace(following, version=known.version, changed_at=known.changed_at)
        return following

    def _left_sources(self, before: Mapping[DocumentId, SourceId]) -> Iterator[Write]:
        """Sources whose documents are gone. Their facts are written already."""
        gone = {source: document for document, source in before.items() if source in self.facts.gone}
        for source in self.earlier.sources(list(gone)):
            if source is not None and source.document == gone[source.id]:
                left = source.fact_count - self.facts.deleted[source.id]
                yield from self.make.put_source(replace(source.left(self.call.at), fact_count=left))

    def _chunks(self, below: dict[NodeId, set[DocumentId]]) -> Iterator[Write]:
        """Fills in which documents are `below` each section."""
        for some in batches(self.records.chunks.items()):  # between them the lease is renewed
            had = self._had(_decode_any_chunk, [node for node, _ in some], self.earlier.keys.chunk)
            for node, stored in some:
                found = decode_chunk(node, stored.chunk)
                chunk = _next_version(found.chunk, had.get(node))
                below.setdefault(stored.section, set()).add(chunk.document)
                yield from self.make.put_chunk(chunk, found.page, stored.vector)
                yield from self.make.join(stored.section, chunk)

    def _sections(self, below: Mapping[NodeId, set[DocumentId]]) -> Iterator[Write]:
        for some in batches(self.records.sections.items()):
            had = self._had(SECTION.decode, [node for node, _ in some], self.earlier.keys.section)
            for node, stored in some:
                section = _next_version(SECTION.decode(stored), had.get(node))
                yield from self.make.put_section(section, None)
                # A client's summary may tell of anything below it, whether it says so or not.
                yield from self.make.cite_documents(section.id, below[node])

    def _master(self) -> Iterator[Write]:
        master = self.records.master
        had = self.earlier.last_master(master.id) if master.id in self.known else None
        origin = None if had is None else _Origin.of(had)
        sources = {one.source for one in self.records.documents.values()}
        yield from self.make.put_master(_next_version(master, origin), None, sources)
        yield from self.make.cite_documents(master.id, self.records.documents)

    def _had(
        self, decode: Callable[[bytes], Node], nodes: Collection[NodeId], key_of: Callable[[NodeId], bytes]
    ) -> dict[NodeId, _Origin]:
        known = [node for node in nodes if node in self.known]
        last = self.earlier.last(decode, [key_of(node) for node in known], _Origin.of)
        return {node: origin for node, origin in zip(known, last, strict=True) if origin is not None}


def _decode_any_chunk(stored: bytes) -> Chunk:
    """For what does not depend on its id, which is in its key."""
    return decode_chunk(NodeId(UUID(int=0)), stored).chunk


def _next_version(node: Node, had: _Origin | None) -> Node:
    if had is None:
        return node
    return replace(node, created_at=had.created_at, created_by=had.created_by, version=had.version + 1)
