"""Plans the revision for a change of documents, and makes its writes, for all commands that change documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

from drillcore_server.documents.document_facts import DocumentFacts
from drillcore_server.documents.ingestion.cited_chunks import CitedChunks
from drillcore_server.documents.ingestion.digest import Readers
from drillcore_server.documents.ingestion.fact_changes import FactChangeSettings
from drillcore_server.documents.ingestion.plan_reader import PlanReader
from drillcore_server.documents.ingestion.prepared_documents import PreparedDocument, Preparer
from drillcore_server.documents.ingestion.revision_plan import HierarchyChange, Planner, SectionChange, SettledSections
from drillcore_server.embeddings.corpus_embeddings import CorpusEmbeddings
from drillcore_server.facts.block_writes import FactWrites
from drillcore_server.facts.importance import ImportanceSettings
from drillcore_server.hierarchy.model import Document
from drillcore_server.hierarchy.sections import SectionCache
from drillcore_server.hierarchy.source_model import Source
from drillcore_server.hierarchy.store import HierarchyWrites
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.revise import Plan, Reviser
from drillcore_server.kernel.unit import Call
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.ids import Revision
from drillcore_server.vectors.corpus_models import CorpusModels
from drillcore_server.vectors.embedding.embedders import Embedder, Embedders
from drillcore_server.vectors.model import Embeddings, Model
from drillcore_server.vectors.stored_vectors import packed


def writes_of(
    change: HierarchyChange,
    sources: Sequence[Source],
    reader: PlanReader,
    make: HierarchyWrites,
    facts: DocumentFacts,
) -> Iterator[Write]:
    """Yields the writes of a change one by one, so that a large change is never in memory as a whole.

    `reader` reads the revision before the change.
    """
    replaced = {document.source: document for document in change.removed}
    for prepared in change.added:
        yield from make.put_document(prepared.document)
        for chunk in prepared.chunks:
            next_vector = None if chunk.next_vector is None else packed(chunk.next_vector)
            yield from make.put_chunk(chunk.chunk, chunk.page, packed(chunk.vector), next_vector)
        yield from facts.added_writes(prepared, replaced.pop(prepared.document.source, None))
    for document in change.removed:
        yield from make.remove_document(document)
        for removed in reader.chunks(document.chunks):
            yield from make.remove_chunk(removed)
        if document.source in replaced:
            yield from facts.removed_writes(document.source)
    for section in change.sections:
        yield from _section_writes(section, make)
    for source in sources:
        yield from make.put_source(facts.with_fact_count(source))
    yield from make.put_master(change.master, change.master_before, change.master_sources)


def _section_writes(change: SectionChange, make: HierarchyWrites) -> Iterator[Write]:
    for chunk in change.left:
        yield from make.leave(change.id, chunk)
    for chunk in change.joined:
        yield from make.join(change.id, chunk)
    if change.after is not None:
        yield from make.put_section(change.after, change.before)
    elif change.before is not None:
        yield from make.remove_section(change.before)


R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Change:
    """Documents to add, documents to remove, and their sources afterwards."""

    added: Sequence[PreparedDocument]
    removed: Sequence[Document]
    sources: Sequence[Source]
    made_with: Model | None = None
    """The model of the vectors of the added documents. None if no documents are added."""


@dataclass(frozen=True, slots=True)
class DocumentPlanner:
    """Prepares and plans for the commands that change documents."""

    reviser: Reviser
    outlines: SectionCache
    cited: CitedChunks
    preparer: Preparer
    readers: Readers
    weights: ImportanceSettings = field(default_factory=ImportanceSettings)

    @property
    def embedders(self) -> Embedders:
        return self.preparer.embedders

    def reader(self, snapshot: BatchedReads) -> PlanReader:
        return PlanReader(snapshot, self.outlines, self.cited)

    def models(self, snapshot: BatchedReads) -> CorpusModels:
        return CorpusModels(snapshot, self.embedders)

    def embeddings(self, snapshot: BatchedReads) -> CorpusEmbeddings:
        """Returns the embedder of texts for the corpus. Raises `NotReady` if this server does not have its model."""
        models = self.models(snapshot)
        now, embedder = models.now(), models.embedder()
        following = None if now is None or now.next is None else self.embedders.find(now.next.model)
        return self.embeddings_with(embedder, snapshot, following)

    def embeddings_with(
        self, embedder: Embedder, snapshot: BatchedReads, following: Embedder | None = None
    ) -> CorpusEmbeddings:
        secret = self.reviser.keyring.derived(self.reviser.make_keys(snapshot.corpus, []), b"embedded texts")
        return CorpusEmbeddings(embedder, snapshot, secret, following)

    def plan(
        self,
        call: Call,
        snapshot: BatchedReads,
        documents: Change,
        settled: SettledSections,
        result: Callable[[Revision, int], R],
    ) -> Plan[R]:
        """Returns the plan of the revision that changes these documents. May be run again on another snapshot.

        `result` gets the number of the revision and the number of changed sections. `settled` must be the same for all
        plans of a call. It keeps the work of earlier plans, which other calls have overtaken.
        """
        corpus, reader, models = snapshot.corpus, self.reader(snapshot), self.models(snapshot)
        sources = [source.id for source in documents.sources]
        reader.read_ahead(sources=sources, chunks=[chunk for removed in documents.removed for chunk in removed.chunks])
        before = models.now()
        after = before if documents.made_with is None else models.after(documents.made_with, was_current=True)
        assert after is not None, "there are no documents without a model"
        settled = settled.for_model(after.current.number)
        planner = Planner(reader, self.preparer.processor, call.at, call.principal.id, settled)
        change = planner.plan(documents.added, documents.removed)
        make = HierarchyWrites(self.reviser.keys, corpus.tenant_id, corpus.number, self.reviser.keyring, after)
        number = self.reviser.make_keys(corpus, sources)
        facts = self._facts(call, snapshot, documents.sources, after)
        writes = writes_of(change, documents.sources, reader, make, facts)
        sections = tuple(section.id for section in change.sections)
        return Plan(
            base=snapshot.revision,
            number=number,
            writes=writes if after == before else chain([make.set_embeddings(after)], writes),
            sections=sections,
            documents_added=tuple(source.document for source in documents.sources if source.document is not None),
            documents_removed=tuple(document.id for document in change.removed),
            sources=sources,
            result=lambda revision: result(revision, len(sections)),
            facts_count=lambda: facts.changed,
        )

    def _facts(
        self, call: Call, snapshot: BatchedReads, sources: Iterable[Source], models: Embeddings
    ) -> DocumentFacts:
        return DocumentFacts(
            snapshot,
            {source.id: source for source in sources},
            self.fact_writes(snapshot.corpus, models),
            FactChangeSettings(self.weights, models.current.name, call.at, call.principal.id),
        )

    def fact_writes(self, corpus: Corpus, models: Embeddings) -> FactWrites:
        keys, number = self.reviser.keys, models.current.number
        return FactWrites(keys, corpus.tenant_id, corpus.number, self.reviser.keyring, number, models.others)
