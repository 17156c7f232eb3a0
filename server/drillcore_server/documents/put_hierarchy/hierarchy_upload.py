"""PutHierarchy: checks the hierarchy that a client sends, and stores it as the next revision of the corpus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.documents.document_planner import DocumentPlanner
from drillcore_server.documents.put_hierarchy.client_hierarchy import ClientHierarchy, DocumentDraft, NodeDraft
from drillcore_server.documents.put_hierarchy.client_records import ClientRecords, MadeChunk, model_of
from drillcore_server.documents.put_hierarchy.replace import (
    EarlierCorpus,
    Records,
    ReplacedFacts,
    Replacement,
    StoredChunk,
)
from drillcore_server.hierarchy.model import ChunkWithRaws, Document, Statistics
from drillcore_server.hierarchy.packed import SECTION, decode_whole_chunk, encode_whole_chunk
from drillcore_server.hierarchy.store import HierarchyWrites
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import Stale
from drillcore_server.kernel.revise import Plan, Target
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import DocumentId, NodeId, Revision, SourceId
from drillcore_server.storage.records import RecordKind
from drillcore_server.vectors.embedding.embedders import Embedder
from drillcore_server.vectors.model import Embeddings

_PAGES_KEPT: Final = 64
"""The number of cited chunks that stay decoded. Citations of a chunk often follow each other."""


@dataclass(frozen=True, slots=True)
class PutTarget:
    """The corpus, the model of the vectors in the call, and the revision that the caller expects, if any."""

    corpus: Target
    embedding_model: str
    expected_revision: int | None


@dataclass(frozen=True, slots=True)
class Progress:
    documents: int
    nodes: int
    chunks_prepared: int


@dataclass(frozen=True, slots=True)
class Put:
    """The outcome of the call."""

    revision: Revision
    documents: int
    sections: int
    chunks: int
    raws: int


PUT = RecordKind(Put)


class HierarchyUpload:
    """Takes the parts of a hierarchy one by one. `commit` stores them as one revision with exactly this hierarchy.

    If any part is wrong, the whole call is refused. `report` gets the progress.
    """

    def __init__(
        self, planner: DocumentPlanner, call: Call, target: PutTarget, report: Callable[[Progress], None]
    ) -> None:
        self._planner = planner
        self._call = call
        self._target = target
        self._report = report
        self._hierarchy = ClientHierarchy()
        self._records: Records | None = None
        planner.reviser.find(call, target.corpus)

    @property
    def documents(self) -> int:
        return len(self._hierarchy.documents)

    @property
    def nodes(self) -> int:
        return len(self._hierarchy.levels)

    def take_document(self, draft: DocumentDraft) -> None:
        self._hierarchy.take_document(draft)

    def take_node(self, draft: NodeDraft) -> None:
        self._hierarchy.take_node(draft)

    def report_progress(self, chunks_prepared: int = 0) -> None:
        self._report(Progress(self.documents, self.nodes, chunks_prepared))

    def commit(self, call: Call) -> Put:
        """Stores the hierarchy. `call` has the fingerprint of the whole stream.

        Raises `Refused`, and then nothing is stored. May be run again with the same call.
        """
        self._hierarchy.check()
        return self._planner.reviser.revise(call, self._target.corpus, PUT, self._plan)

    def _plan(self, snapshot: BatchedReads) -> Plan[Put]:
        corpus, base = snapshot.corpus, snapshot.revision
        expected = self._target.expected_revision
        if expected is not None and base != expected:
            message = f"the corpus is at revision {base}, not at the expected {expected}; read it again"
            raise Stale(Reason.VERSION_MISMATCH, message, version=str(base))
        planner, keys = self._planner, self._planner.reviser.keys
        earlier = EarlierCorpus(snapshot, keys, corpus)
        known = earlier.known(self._hierarchy.levels)
        records = self._make_records(snapshot)
        models = planner.models(snapshot)
        after = models.after_replacing(records.model)
        before = {document.id: document.source for document in earlier.documents()}
        sources = {*before.values(), *(document.source for document in records.documents.values())}
        make = HierarchyWrites(keys, corpus.tenant_id, corpus.number, planner.reviser.keyring, after)
        facts = self._facts(corpus, earlier, records, set(before.values()), models.now() or after)
        replacement = Replacement(
            self._call, earlier, known, self._hierarchy.levels.keys(), records, make, models.now(), after, facts
        )
        return Plan(
            base=base,
            number=planner.reviser.make_keys(corpus, sources),
            writes=replacement.writes(before),
            sections=tuple(dict.fromkeys([*records.sections, *sorted(earlier.section_ids())])),
            documents_added=tuple(records.documents),
            documents_removed=tuple(before),
            sources=sources,
            result=lambda revision: _put(revision, records.master.statistics),
            facts_count=lambda: facts.changed,
        )

    def _facts(
        self, corpus: Corpus, earlier: EarlierCorpus, records: Records, sources: set[SourceId], models: Embeddings
    ) -> ReplacedFacts:
        """`sources` are the sources of the documents that the corpus has before."""
        documents = {document.source: document for document in records.documents.values()}
        chunk_of = lru_cache(_PAGES_KEPT)(records.chunk)
        make = self._planner.fact_writes(corpus, models)
        return ReplacedFacts(earlier, documents, chunk_of, sources - documents.keys(), make, self._call.at)

    def _make_records(self, snapshot: BatchedReads) -> Records:
        """Makes the records on the first call only: embedding is slow, and the plan may be made several times."""
        if self._records is None:
            planner, hierarchy = self._planner, self._hierarchy
            planner.reviser.make_keys(snapshot.corpus, {draft.source for draft in hierarchy.documents.values()})
            embedder = self._embedder(snapshot)
            model = model_of(hierarchy, self._target.embedding_model, embedder)
            embeddings = planner.embeddings_with(embedder, snapshot)
            counter = planner.preparer.digester.counter
            made = ClientRecords(hierarchy, counter, embeddings, self._call.at, self._call.principal.id)
            documents: dict[DocumentId, Document] = {}
            chunks: dict[NodeId, StoredChunk] = {}
            for document, made_chunks in made.documents(self.report_progress):
                documents[document.id] = document
                chunks.update({made_chunk.chunk.id: _stored(made_chunk) for made_chunk in made_chunks})
            page_of = lru_cache(_PAGES_KEPT)(lambda chunk: decode_whole_chunk(chunk, chunks[chunk].chunk).page)
            sections = {section.id: SECTION.encode(section) for section in made.sections(page_of)}
            self._records = Records(documents, chunks, sections, made.master(page_of), model)
        return self._records

    def _embedder(self, snapshot: BatchedReads) -> Embedder:
        """Returns the embedder for chunks that come without vectors."""
        if self._hierarchy.dimensions:
            return self._planner.embedders.own
        return self._planner.models(snapshot).replacing_embedder()


def _stored(made: MadeChunk) -> StoredChunk:
    chunk, encoded = made.chunk, encode_whole_chunk(ChunkWithRaws(made.chunk, made.page))
    return StoredChunk(encoded, made.vector, made.section, (chunk.document, chunk.span.start, chunk.ordinal))


def _put(revision: Revision, statistics: Statistics) -> Put:
    return Put(revision, statistics.documents, statistics.sections, statistics.chunks, statistics.raws)
