"""What the commands that change documents share: preparing, planning and writing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from drillcore_fdb.engine import Engine
from drillcore_server.commands.changes import writes_of
from drillcore_server.commands.corpus_embeddings import CorpusEmbeddings
from drillcore_server.commands.corpus_reader import SnapshotReader
from drillcore_server.commands.revise import Plan, Reviser
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.derived.sections import SectionCache
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.ids import Revision, SourceId
from drillcore_server.domain.nodes import Document
from drillcore_server.domain.sources import Source
from drillcore_server.ingest.planning import Planner, Settled
from drillcore_server.ingest.prepare import PreparedDocument, Preparer
from drillcore_server.ingest.readers import Readers
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

    def reader(self, corpus: Corpus, revision: Revision) -> SnapshotReader:
        return SnapshotReader(self.snapshot(corpus, revision), corpus.number, self.cache)

    def embeddings(self, corpus: Corpus, revision: Revision) -> CorpusEmbeddings:
        secret = self.keyring.derived(self.make_keys(corpus, []), b"embedded texts")
        return CorpusEmbeddings(self.preparer.embedder, self.snapshot(corpus, revision), secret)

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
        processor, embedder = self.preparer.processor, self.preparer.embedder
        reader = self.reader(corpus, base)
        planner = Planner(reader, processor, embedder.model, embedder.dimensions, call.at, call.principal.id, settled)
        change = planner.plan(documents.added, documents.removed)
        make = HierarchyWrites(self.unit.keys, corpus.tenant_id, corpus.number, self.keyring)
        sections = tuple(section.id for section in change.sections)
        return Plan(
            base=base,
            number=self.make_keys(corpus, [one.id for one in documents.sources]),
            writes=writes_of(change, documents.sources, reader, make),
            sections=sections,
            documents_added=tuple(source.document for source in documents.sources if source.document is not None),
            documents_removed=tuple(document.id for document in change.removed),
            sources=[one.id for one in documents.sources],
            result=lambda revision: result(revision, len(sections)),
        )
