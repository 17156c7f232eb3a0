"""One revision of a corpus, item by item, in the one order that every copy uses.

    corpus, documents by id, facts by id, revisions, then nodes in reading order: master; each section, its chunks and
    their raws

Records of sources that were erased since are left out, and the item of the corpus lists the erasures.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
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
from drillcore_server.hierarchy.signable import Content, node_content
from drillcore_server.hierarchy.store import DOCUMENT, HierarchyReader
from drillcore_server.kernel import erasures, revisions
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.revisions import RevisionRecord
from drillcore_server.storage.ids import DocumentId, Level, NodeId, Revision, node_id
from drillcore_server.vectors.corpus_models import embeddings_of
from drillcore_server.vectors.model import EmbeddingModel
from drillcore_server.vectors.stored_vectors import unpacked

_REVISIONS_AT_ONCE: Final = 500
"""Records of revisions that are read in one transaction."""
_FACTS_AT_ONCE: Final = 500
"""Facts whose vectors and signatures are looked up together."""
_CHUNKS_AT_ONCE: Final = 100
"""Chunks that are read in one transaction and held in memory with their raws."""
_DOCUMENTS_CACHED: Final = 10_000
"""Documents whose preprocessing is cached. Neighbouring chunks mostly belong to the same few documents."""


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


class CorpusWalk:
    """Reads one revision item by item. May be repeated: only signatures that were made meanwhile are new.

    Raises `StoreCorruptError` if a record is missing, because the store is damaged or the revision was trimmed.
    """

    def __init__(self, snapshot: BatchedReads, corpus: Corpus, signatures: ContentSignatures) -> None:
        self._snapshot = snapshot
        self._signatures = signatures
        self.corpus = corpus
        self._preprocessing = lru_cache(_DOCUMENTS_CACHED)(self._read_preprocessing)

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
        keys = self._snapshot.keys
        for entry in self._snapshot.entries(keys.listed_sections()):
            found = list(
                self._snapshot.each_unless_erased(
                    [node_id(entry.key[-16:])], lambda view, id_: HierarchyReader(view).section(id_)
                )
            )
            if found:
                yield [self._upper(found[0], Level.SECTION, None if master is None else master.id)]
            yield from self._below(node_id(entry.key[-16:]))

    def _below(self, section: NodeId) -> Iterator[list[Node]]:
        keys = self._snapshot.keys
        chunks = [keys.parse_member(entry.key).id for entry in self._snapshot.entries(keys.members(section))]
        for start in range(0, len(chunks), _CHUNKS_AT_ONCE):
            batch = self._snapshot.each_unless_erased(chunks[start : start + _CHUNKS_AT_ONCE], self._full_chunk)
            yield [node for full in batch for node in self._chunk_and_raws(section, full)]

    def _chunk_and_raws(self, section: NodeId, full: _FullChunk) -> Iterator[Node]:
        chunk, page = full.found.chunk, full.found.page
        embedding = () if full.vector is None else tuple(unpacked(full.vector).tolist())
        about = chunk.created_at, chunk.created_by, chunk.version
        text = ChunkText(chunk, page, self._model.name, embedding)
        yield Node(chunk.id, self.corpus.id, Level.CHUNK, section, text, *about)
        preprocessing = self._preprocessing(chunk.document)
        for place, raw in enumerate(page.raws):
            node = chunk.raw_ids[place] if chunk.raw_ids else raw_id(chunk.id, place)
            yield Node(node, self.corpus.id, Level.RAW, chunk.id, RawText(raw, chunk, preprocessing), *about)

    def _full_chunk(self, view: CorpusAtRevision, chunk: NodeId) -> _FullChunk | None:
        found = HierarchyReader(view).chunk_with_raws(chunk)
        return None if found is None else _FullChunk(found, HierarchyReader(view).vector(self._model.number, chunk))

    @cached_property
    def _model(self) -> EmbeddingModel:
        found = self._snapshot.read(embeddings_of)
        if found is None:
            raise StoreCorruptError(f"revision {self.revision} has chunks, but no embedding model is recorded for it")
        return found.current

    def _read_preprocessing(self, document: DocumentId) -> tuple[str, ...]:
        found = self._snapshot.read(lambda view: HierarchyReader(view).document(document))
        if found is None:
            raise StoreCorruptError(
                f"document {document} is missing at revision {self.revision}, but a chunk refers to it"
            )
        return found.preprocessing

    def _upper(self, content: Master | Section, level: Level, parent: NodeId | None) -> Node:
        about = content.created_at, content.created_by, content.version
        return Node(content.id, self.corpus.id, level, parent, content, *about)


def _records(view: CorpusAtRevision, begin: Revision, end: Revision) -> list[RevisionRecord]:
    return list(revisions.between(view.tr, view.keys, begin, end))
