"""What the commands that change documents share: preparing, planning and writing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

from drillcore_fdb.engine import Engine
from drillcore_server.commands.changes import writes_of
from drillcore_server.commands.corpus_embeddings import CorpusEmbeddings
from drillcore_server.commands.corpus_models import CorpusModels
from drillcore_server.commands.corpus_reader import SnapshotReader
from drillcore_server.commands.document_facts import DocumentFacts
from drillcore_server.commands.revise import Plan, Reviser
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.derived.sections import SectionCache
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.embeddings import Embeddings, Model
from drillcore_server.domain.ids import Revision, SourceId
from drillcore_server.domain.importance import ImportanceSettings
from drillcore_server.domain.nodes import Document
from drillcore_server.domain.sources import Source
from drillcore_server.ingest.drawing import DrawingSettings
from drillcore_server.ingest.embedding.embedders import Embedders
from drillcore_server.ingest.embedding.ports import Embedder
from drillcore_server.ingest.planning import Planner, Settled
from drillcore_server.ingest.prepare import PreparedDocument, Preparer
from drillcore_server.ingest.readers import Readers
from drillcore_server.store.facts import FactWrites
from drillcore_server.store.hierarchy import HierarchyWrites
from drillcore_server.store.keyring import CORPUS_SCOPE, KeyNumber, Keyring
from drillcore_server.store.sealed import SealedRecords
from drillcore_server.store.snapshot import Snapshot

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Change:
    """Documents to add, documents to remove, and their sources afterwards."""

    added: Sequence[PreparedDocument]
    removed: Sequence[Document]
    sources: Sequence[Source]
    made_with: Model | None = None
    """Of the vectors of those that are added."""


@dataclass(frozen=True, slots=True)
class Ingester:
    engine: Engine
    unit: Unit
    reviser: Reviser
    keyring: Keyring
    sealed: SealedRecords
    cache: SectionCache
    preparer: Preparer
    readers: Readers
    weights: ImportanceSettings = field(default_factory=ImportanceSettings)

    def reader(self, corpus: Corpus, revision: Revision) -> SnapshotReader:
        return SnapshotReader(self.snapshot(corpus, revision), corpus.number, self.cache)

    def embeddings(self, corpus: Corpus, revision: Revision) -> CorpusEmbeddings:
        """What embeds texts for the corpus. Raises `NotReady` if its model is not here."""
        models = self.models(corpus, revision)
        now, embedder = models.now(), models.embedder()
        following = None if now is None or now.next is None else self.embedders.find(now.next.model)
        return self.embeddings_with(embedder, corpus, revision, following)

    def embeddings_with(
        self, embedder: Embedder, corpus: Corpus, revision: Revision, following: Embedder | None = None
    ) -> CorpusEmbeddings:
        secret = self.keyring.derived(self.make_keys(corpus, []), b"embedded texts")
        return CorpusEmbeddings(embedder, self.snapshot(corpus, revision), secret, following)

    @property
    def embedders(self) -> Embedders:
        return self.preparer.embedders

    def models(self, corpus: Corpus, revision: Revision) -> CorpusModels:
        return CorpusModels(self.snapshot(corpus, revision), self.embedders)

    def snapshot(self, corpus: Corpus, revision: Revision) -> Snapshot:
        return Snapshot(self.engine, self.unit.keys.of_corpus(corpus.number), self.sealed, revision)

    def make_keys(self, corpus: Corpus, sources: Iterable[SourceId]) -> KeyNumber:
        """The number of the corpus's own key. Makes all that are missing: one by one, each would wait for the disk."""
        number, *_ = self.keyring.numbers(corpus.number, [CORPUS_SCOPE, *sorted(sources)])
        return number

    def plan(
        self,
        call: Call,
        corpus: Corpus,
        base: Revision,
        documents: Change,
        settled: Settled,
        result: Callable[[Revision, int], R],
    ) -> Plan[R]:
        """The revision that makes a change of documents; `result` gets its number and how many sections changed.

        `settled` is the call's own: it has what earlier plans of the call, which others overtook, worked out.
        """
        reader, models = self.reader(corpus, base), self.models(corpus, base)
        before = models.now()
        after = before if documents.made_with is None else models.after(documents.made_with, was_current=True)
        assert after is not None, "there are no documents without a model"
        settled = settled.by(after.current.number)
        planner = Planner(reader, self.preparer.processor, call.at, call.principal.id, settled)
        change = planner.plan(documents.added, documents.removed)
        make = HierarchyWrites(self.unit.keys, corpus.tenant_id, corpus.number, self.keyring, after)
        number = self.make_keys(corpus, [one.id for one in documents.sources])
        facts = self._facts(call, corpus, reader.snapshot, documents.sources, after)
        writes = writes_of(change, documents.sources, reader, make, facts)
        sections = tuple(section.id for section in change.sections)
        return Plan(
            base=base,
            number=number,
            writes=writes if after == before else chain([make.set_embeddings(after)], writes),
            sections=sections,
            documents_added=tuple(source.document for source in documents.sources if source.document is not None),
            documents_removed=tuple(document.id for document in change.removed),
            sources=[one.id for one in documents.sources],
            result=lambda revision: result(revision, len(sections)),
            facts_count=lambda: facts.changed,
        )

    def _facts(
        self, call: Call, corpus: Corpus, snapshot: Snapshot, sources: Iterable[Source], models: Embeddings
    ) -> DocumentFacts:
        return DocumentFacts(
            snapshot,
            {source.id: source for source in sources},
            self.fact_writes(corpus, models),
            DrawingSettings(self.weights, models.current.name, call.at, call.principal.id),
        )

    def fact_writes(self, corpus: Corpus, models: Embeddings) -> FactWrites:
        keys, number = self.unit.keys, models.current.number
        return FactWrites(keys, corpus.tenant_id, corpus.number, self.keyring, number, models.others)
