"""One revision of a corpus, item by item, in the one order that every copy uses.

    corpus, documents by id, facts by id, revisions, then nodes in reading order: master; each section, its chunks and
    their raws

Records of sources that were erased since are left out, and the item of the corpus lists the erasures.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Final, NamedTuple

from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.exports.content import (
    SIGNATURES,
    ContentSignatures,
    corpus_content,
    document_content,
    embedding_content,
    revision_content,
)
from drillcore_server.facts.model import Fact
from drillcore_server.facts.signable import fact_content
from drillcore_server.facts.store import FactReader, stored_facts
from drillcore_server.hierarchy.model import ChunkWithRaws, Master, Section, raw_id
from drillcore_server.hierarchy.nodes import ChunkText, Node, RawText
from drillcore_server.hierarchy.packed import SECTION, PlacedChunk, decode_chunk
from drillcore_server.hierarchy.signable import Content, node_content
from drillcore_server.hierarchy.store import DOCUMENT, HierarchyReader, raw_key
from drillcore_server.kernel import erasures, revisions
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.revisions import RevisionRecord
from drillcore_server.storage.ids import Level, NodeId, Revision, node_id
from drillcore_server.storage.versioned import Entry
from drillcore_server.vectors.corpus_models import embeddings_of
from drillcore_server.vectors.model import EmbeddingModel
from drillcore_server.vectors.stored_vectors import unpacked

_REVISIONS_AT_ONCE: Final = 500
"""Records of revisions that are read in one transaction."""
_FACTS_AT_ONCE: Final = 500
"""Facts whose vectors and signatures are looked up together."""
_SECTIONS_AT_ONCE: Final = 50
"""Sections whose first members are read together."""
_MEMBERS_AT_ONCE: Final = 500
"""Stored keys of the members of each of them."""
_PLACES_AT_ONCE: Final = 100
"""Sections and chunks that are read in one transaction. Chunks are held in memory with their raws."""


class Part(enum.Enum):
    CORPUS = "corpus"
    DOCUMENT = "document"
    FACT = "fact"
    REVISION = "revision"
    NODE = "node"


class Item(NamedTuple):
    part: Part
    content: Content
    parent: NodeId | None = None
    """Only for nodes."""


@dataclass(frozen=True, slots=True)
class _FullChunk:
    found: ChunkWithRaws
    vector: bytes | None
    preprocessing: tuple[str, ...]
    """What was done to its document before it was cut."""


class _Place(NamedTuple):
    """A section, or one of its chunks."""

    section: NodeId
    chunk: NodeId | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """Sections and chunks that were read together, without those that were erased."""

    sections: Mapping[NodeId, Section]
    chunks: Mapping[NodeId, _FullChunk]

    @classmethod
    def read(cls, view: CorpusAtRevision, sections: Sequence[NodeId], chunks: Sequence[NodeId], model: int) -> _Found:
        keys = view.keys
        section_keys, chunk_keys = list(map(keys.section, sections)), list(map(keys.chunk, chunks))
        vector_keys = [keys.vector(model, chunk) for chunk in chunks]
        view.read_ahead([*section_keys, *chunk_keys, *vector_keys])
        found = zip(sections, view.opened(section_keys), strict=True)
        placed = [
            (decode_chunk(chunk, entry.value), vector)
            for chunk, entry, vector in zip(
                chunks,
                view.opened(chunk_keys),
                view.sealed.get_many_unless_erased(view.tr, vector_keys, view.revision),
                strict=True,
            )
            if entry is not None
        ]
        return cls(
            {section: SECTION.decode(entry.value) for section, entry in found if entry is not None},
            {full.found.chunk.id: full for full in _full_chunks(view, placed)},
        )


def _full_chunks(view: CorpusAtRevision, placed: Sequence[tuple[PlacedChunk, Entry | None]]) -> Iterator[_FullChunk]:
    """Reads the raws of chunks, and what was done to their documents."""
    chunks = [chunk for chunk, _ in placed]
    documents = list(dict.fromkeys(chunk.chunk.document for chunk in chunks))
    document_keys = list(map(view.keys.document, documents))
    view.read_ahead([*(raw_key(view.keys, chunk.chunk) for chunk in chunks), *document_keys])
    stored = zip(documents, view.opened(document_keys), strict=True)
    preprocessing = {
        document: () if entry is None else DOCUMENT.decode(entry.value).preprocessing for document, entry in stored
    }
    for found, (_, vector) in zip(HierarchyReader(view).with_raws(chunks), placed, strict=True):
        if found is not None:
            yield _FullChunk(found, None if vector is None else vector.value, preprocessing[found.chunk.document])


class CorpusWalk:
    """Reads one revision item by item. May be repeated: only signatures that were made meanwhile are new.

    Raises `StoreCorruptError` if a record is missing, because the store is damaged or the revision was trimmed.
    """

    def __init__(self, snapshot: BatchedReads, corpus: Corpus, signatures: ContentSignatures) -> None:
        self._snapshot = snapshot
        self._signatures = signatures
        self.corpus = corpus

    @property
    def revision(self) -> Revision:
        return self._snapshot.revision

    def items(self) -> Iterator[Item]:
        erased = self._snapshot.read(lambda view: list(erasures.of_corpus(view.tr, view.keys)))
        yield Item(Part.CORPUS, corpus_content(self.corpus, erased))
        for entry in self._snapshot.sealed.opened_all(self._snapshot.entries(self._snapshot.keys.documents())):
            yield Item(Part.DOCUMENT, document_content(DOCUMENT.decode(entry.value)))
        yield from self._facts()
        yield from self._history()
        yield from self._signed(self._nodes())

    def _facts(self) -> Iterator[Item]:
        """All facts, including deleted ones, which have no vector."""
        stored = stored_facts(self._snapshot)
        while facts := list(islice(stored, _FACTS_AT_ONCE)):
            vectors = self._vectors_of(facts)
            signatures = self._signatures.of_facts(self.corpus.tenant_id, [(fact.id, fact.version) for fact in facts])
            for fact, vector in zip(facts, vectors, strict=True):
                embedding = embedding_content(self._model.name, vector)
                further = {"embedding": embedding, SIGNATURES: list(signatures.get(fact.id, ()))}
                yield Item(Part.FACT, fact_content(fact, self.corpus.id) | further)

    def _vectors_of(self, facts: Sequence[Fact]) -> list[bytes | None]:
        ids = [fact.id for fact in facts]
        return self._snapshot.read(lambda view: FactReader(view).vectors_unless_erased(self._model.number, ids))

    def _history(self) -> Iterator[Item]:
        """The revisions up to this one."""
        for after in range(0, self.revision, _REVISIONS_AT_ONCE):
            begin, end = Revision(after), Revision(min(after + _REVISIONS_AT_ONCE, self.revision))
            for record in self._snapshot.read(partial(_records, begin=begin, end=end)):
                yield Item(Part.REVISION, revision_content(record))

    def _signed(self, nodes: Iterator[list[Node]]) -> Iterator[Item]:
        for together in nodes:
            versions = [(node.id, node.version) for node in together]
            signatures = self._signatures.of_nodes(self.corpus.tenant_id, versions)
            for node in together:
                content = node_content(node) | {SIGNATURES: list(signatures.get(node.id, ()))}
                yield Item(Part.NODE, content, node.parent)

    def _nodes(self) -> Iterator[list[Node]]:
        """All nodes in reading order, a few at a time."""
        master = self._snapshot.read(lambda view: HierarchyReader(view).master_unless_erased())
        if master is not None:
            yield [self._upper(master, Level.MASTER, None)]
        parent, places = None if master is None else master.id, self._places()
        while some := list(islice(places, _PLACES_AT_ONCE)):
            found = self._found_at(some)
            yield [node for place in some for node in self._nodes_of(place, found, parent)]

    def _places(self) -> Iterator[_Place]:
        """All sections and chunks in reading order."""
        keys = self._snapshot.keys
        listed = (node_id(entry.key[-16:]) for entry in self._snapshot.entries(keys.listed_sections()))
        while sections := list(islice(listed, _SECTIONS_AT_ONCE)):
            members = self._snapshot.entries_of_each(list(map(keys.members, sections)), _MEMBERS_AT_ONCE)
            for section, entries in zip(sections, members, strict=True):
                yield _Place(section)
                yield from (_Place(section, keys.parse_member(entry.key).id) for entry in entries)

    def _found_at(self, places: Sequence[_Place]) -> _Found:
        sections = [place.section for place in places if place.chunk is None]
        chunks = [place.chunk for place in places if place.chunk is not None]
        model = self._model.number if chunks else 0
        return self._snapshot.read(lambda view: _Found.read(view, sections, chunks, model))

    def _nodes_of(self, place: _Place, found: _Found, master: NodeId | None) -> Iterator[Node]:
        """The section at a place, or the chunk and its raws. Nothing if it was erased."""
        if place.chunk is not None:
            chunk = found.chunks.get(place.chunk)
            if chunk is not None:
                yield from self._chunk_and_raws(place.section, chunk)
        elif (section := found.sections.get(place.section)) is not None:
            yield self._upper(section, Level.SECTION, master)

    def _chunk_and_raws(self, section: NodeId, full: _FullChunk) -> Iterator[Node]:
        chunk, page = full.found.chunk, full.found.page
        embedding = () if full.vector is None else tuple(unpacked(full.vector).tolist())
        about = chunk.created_at, chunk.created_by, chunk.version
        text = ChunkText(chunk, page, self._model.name, embedding)
        yield Node(chunk.id, self.corpus.id, Level.CHUNK, section, text, *about)
        for place, raw in enumerate(page.raws):
            node = chunk.raw_ids[place] if chunk.raw_ids else raw_id(chunk.id, place)
            yield Node(node, self.corpus.id, Level.RAW, chunk.id, RawText(raw, chunk, full.preprocessing), *about)

    @cached_property
    def _model(self) -> EmbeddingModel:
        found = self._snapshot.read(embeddings_of)
        if found is None:
            raise StoreCorruptError(f"revision {self.revision} has chunks, but no embedding model is recorded for it")
        return found.current

    def _upper(self, content: Master | Section, level: Level, parent: NodeId | None) -> Node:
        about = content.created_at, content.created_by, content.version
        return Node(content.id, self.corpus.id, level, parent, content, *about)


def _records(view: CorpusAtRevision, begin: Revision, end: Revision) -> list[RevisionRecord]:
    return list(revisions.between(view.tr, view.keys, begin, end))
