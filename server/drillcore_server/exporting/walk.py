"""One revision of a corpus, item by item: the one order in which every copy tells it.

corpus, documents by id, facts by id, revisions, then the nodes in reading order: master; each section, its chunks,
their raws

What came from a source that was erased since is left out, and the corpus says that there were erasures.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.embeddings import EmbeddingModel
from drillcore_server.domain.facts import Fact
from drillcore_server.domain.found import ChunkText, Node, RawText
from drillcore_server.domain.ids import DocumentId, NodeId, Revision
from drillcore_server.domain.nodes import ChunkWithRaws, Level, Master, Section, raw_id
from drillcore_server.domain.revisions import RevisionRecord
from drillcore_server.exporting.content import (
    SIGNATURES,
    Content,
    corpus_content,
    document_content,
    embedding_content,
    fact_content,
    node_content,
    revision_content,
)
from drillcore_server.exporting.signatures import ContentSignatures
from drillcore_server.store import erasures, revisions
from drillcore_server.store.facts import FACT, FactsView
from drillcore_server.store.hierarchy import DOCUMENT, CorpusView, node_id
from drillcore_server.store.snapshot import Snapshot

_REVISIONS_AT_ONCE: Final = 500
_FACTS_AT_ONCE: Final = 500
_CHUNKS_AT_ONCE: Final = 100
"""Read in one transaction and held together with their raws."""
_DOCUMENTS_AT_HAND: Final = 10_000
"""Whose preprocessing is remembered: neighbouring chunks are mostly of the same few documents."""


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
    """Of a node."""


@dataclass(frozen=True, slots=True)
class _FullChunk:
    found: ChunkWithRaws
    vector: bytes | None


class CorpusWalk:
    """May be begun again; reads the same each time, but for signatures made meanwhile.

    Raises `StoreCorruptError` if something is not there: damage, or the revision was trimmed meanwhile.
    """

    def __init__(self, snapshot: Snapshot, corpus: Corpus, signatures: ContentSignatures) -> None:
        self._snapshot = snapshot
        self._signatures = signatures
        self.corpus = corpus
        self._preprocessing = lru_cache(_DOCUMENTS_AT_HAND)(self._read_preprocessing)

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
        """All that are on record, deleted ones too: those have no vector any more."""
        entries = self._snapshot.sealed.opened_all(self._snapshot.entries(self._snapshot.keys.facts()))
        while some := list(islice(entries, _FACTS_AT_ONCE)):
            facts = [FACT.decode(entry.value) for entry in some]
            vectors = self._snapshot.find(facts, self._fact_vector)
            signatures = self._signatures.of_facts(self.corpus.tenant_id, [(fact.id, fact.version) for fact in facts])
            for fact, vector in zip(facts, vectors, strict=True):
                embedding = embedding_content(self._model.name, vector)
                said = {"embedding": embedding, SIGNATURES: list(signatures.get(fact.id, ()))}
                yield Item(Part.FACT, fact_content(fact, self.corpus.id) | said)

    def _fact_vector(self, view: CorpusView, fact: Fact) -> bytes | None:
        return FactsView(view).vector(self._model.number, fact.id)

    def _history(self) -> Iterator[Item]:
        """Only up to the revision: what came later is not part of it."""
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
        """A few at a time."""
        master = self._snapshot.read(lambda view: view.master_left())
        if master is not None:
            yield [self._upper(master, Level.MASTER, None)]
        keys = self._snapshot.keys
        for entry in self._snapshot.entries(keys.listed_sections()):
            found = list(self._snapshot.each_left([node_id(entry.key[-16:])], lambda view, one: view.section(one)))
            if found:
                yield [self._upper(found[0], Level.SECTION, None if master is None else master.id)]
            yield from self._below(node_id(entry.key[-16:]))

    def _below(self, section: NodeId) -> Iterator[list[Node]]:
        keys = self._snapshot.keys
        chunks = [keys.parse_member(entry.key).id for entry in self._snapshot.entries(keys.members(section))]
        for start in range(0, len(chunks), _CHUNKS_AT_ONCE):
            some = self._snapshot.each_left(chunks[start : start + _CHUNKS_AT_ONCE], self._full_chunk)
            yield [node for full in some for node in self._chunk_and_raws(section, full)]

    def _chunk_and_raws(self, section: NodeId, full: _FullChunk) -> Iterator[Node]:
        chunk, page = full.found.chunk, full.found.page
        embedding = () if full.vector is None else tuple(np.frombuffer(full.vector, "<f2").astype(np.float32).tolist())
        about = chunk.created_at, chunk.created_by, chunk.version
        text = ChunkText(chunk, page, self._model.name, embedding)
        yield Node(chunk.id, self.corpus.id, Level.CHUNK, section, text, *about)
        preprocessing = self._preprocessing(chunk.document)
        for place, raw in enumerate(page.raws):
            node = chunk.raw_ids[place] if chunk.raw_ids else raw_id(chunk.id, place)
            yield Node(node, self.corpus.id, Level.RAW, chunk.id, RawText(raw, chunk, preprocessing), *about)

    def _full_chunk(self, view: CorpusView, chunk: NodeId) -> _FullChunk | None:
        found = view.chunk_with_raws(chunk)
        return None if found is None else _FullChunk(found, view.vector(self._model.number, chunk))

    @cached_property
    def _model(self) -> EmbeddingModel:
        found = self._snapshot.read(lambda view: view.embeddings())
        if found is None:
            raise StoreCorruptError(f"revision {self.revision} has chunks, and no model that their vectors are of")
        return found.current

    def _read_preprocessing(self, document: DocumentId) -> tuple[str, ...]:
        found = self._snapshot.read(lambda view: view.document(document))
        if found is None:
            raise StoreCorruptError(f"document {document} is named at revision {self.revision} but is not there")
        return found.preprocessing

    def _upper(self, content: Master | Section, level: Level, parent: NodeId | None) -> Node:
        about = content.created_at, content.created_by, content.version
        return Node(content.id, self.corpus.id, level, parent, content, *about)


def _records(view: CorpusView, begin: Revision, end: Revision) -> list[RevisionRecord]:
    return list(revisions.between(view.tr, view.keys, begin, end))
