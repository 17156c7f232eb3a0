"""A corpus with real parts around it, below gRPC: engine, keyring, built-in models and commands."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

from drillcore_fdb import directory
from drillcore_fdb.embedded import Durability
from drillcore_fdb.engine import Engine, Transaction
from drillcore_fdb.format import STORE_PATH
from drillcore_server.app.factories import open_keyring
from drillcore_server.documents.add import Added, DocumentBatch, DocumentOutcome, Upload
from drillcore_server.documents.document_planner import DocumentPlanner
from drillcore_server.documents.ingestion.cited_chunks import CitedChunks
from drillcore_server.documents.ingestion.digest import InProcessReaders
from drillcore_server.documents.ingestion.plan_reader import PlanReader
from drillcore_server.documents.ingestion.prepared_documents import builtin_preparer
from drillcore_server.documents.update import Removed, remove_documents
from drillcore_server.fsck.check_store import Fsck, Report
from drillcore_server.hierarchy.sections import SectionCache
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel import corpus_store as corpora
from drillcore_server.kernel import revisions
from drillcore_server.kernel.access import Principal
from drillcore_server.kernel.account_model import EVERYTHING
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.journal import Journal
from drillcore_server.kernel.revise import Reviser, Target
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusId, DocumentId, PrincipalId, RequestId, Revision, TenantId
from drillcore_server.storage.keyring import Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.sealed import SealedRecords
from drillcore_server.storage.store import open_store
from drillcore_server.tenancy.corpora import create_corpus
from drillcore_server.tenancy.tenants import create_tenant
from tests.support.stores.engines import engine_settings, open_engine
from tests.support.stores.journals import STORE, open_journal

OPERATOR = Principal(PrincipalId("operator"), None, grants=EVERYTHING)
TENANT = TenantId(UUID(int=1))
CORPUS = CorpusId(UUID(int=2))

SENTENCES = {
    "consent": "The investigator shall obtain informed consent of the {n} trial subjects before any dose is given.",
    "aircraft": "The airline must inspect the turbine blades of each aircraft engine after {n} flight hours.",
    "fishing": "A vessel may not land more than {n} tonnes of cod and herring from the northern fishing grounds.",
    "banking": "The bank holds capital of at least ${n},000 against its mortgage loans and credit risk.",
    "school": "Pupils sit the mathematics examination in classroom {n}, and the teacher marks it within a week.",
}


def text_of(topic: str, seed: int, paragraphs: int = 2) -> str:
    """A Markdown document about a topic. Another seed words it differently. A paragraph is about a chunk."""
    dice = random.Random(f"{topic}/{seed}")
    lines = [f"# Rules on {topic}, edition {seed}"]
    for place in range(paragraphs):
        numbers = [dice.randint(2, 900) for _ in range(7)]
        sentences = [SENTENCES[topic].format(n=number) for number in numbers]
        sentences.insert(3, f"Acme Holdings Ltd wrote rule {place} on {1 + dice.randint(0, 27)} March 2021.")
        lines.append(" ".join(sentences))
    return "\n\n".join(lines) + "\n"


@dataclass
class Archive:
    """A corpus and the commands that change it. `engine` may have faults; the keyring has an engine of its own."""

    engine: Engine
    keyring: Keyring
    corpus: Corpus
    planner: DocumentPlanner
    sealed: SealedRecords
    keyspace: Keyspace
    journal: Journal
    _name: str = field(default_factory=lambda: uuid4().hex)
    """Part of every request id: no other process has made a request of the same id."""
    _calls: Iterator[int] = field(default_factory=itertools.count)

    @property
    def keys(self) -> CorpusKeys:
        return self.keyspace.of_corpus(self.corpus.number)

    @property
    def target(self) -> Target:
        return Target(self.corpus.tenant_id, self.corpus.id)

    def on(self, engine: Engine) -> Archive:
        """The same corpus through another engine, as another server would have it, with caches of its own."""
        return _archive(engine, self.keyring, self.keyspace, self.journal, self.corpus)

    def call(self, action: str, *, timeout_s: float = 60.0) -> Call:
        request = RequestId(f"{action}-{self._name}-{next(self._calls)}")
        fingerprint = hashlib.sha256(request.encode()).digest()
        return Call(action, request, OPERATOR, datetime.now(UTC), timeout_s, fingerprint)

    def add(
        self, texts: Mapping[str, str], call: Call | None = None, metadata: Mapping[str, str] | None = None
    ) -> Added:
        """Documents by the source they come from, as one revision."""
        call = call or self.call("AddDocuments")
        reports: list[DocumentOutcome] = []
        with DocumentBatch(self.planner, call, self.target, reports.append) as batch:
            for source, text in texts.items():
                batch.take(Upload(f"{source}.md", "", source, metadata or {}, text.encode()))
            return batch.commit(call)

    def remove(self, documents: Sequence[DocumentId], call: Call | None = None) -> Removed:
        return remove_documents(self.planner, call or self.call("RemoveDocuments"), self.target, documents)

    def fsck(self) -> Report:
        return Fsck(self.engine, self.keyspace, self.keyring, STORE).run()

    def reader(self, revision: Revision) -> PlanReader:
        return self.planner.reader(self.planner.reviser.batched(self.corpus, revision))

    def head(self) -> Revision:
        return self.engine.run(lambda tr: revisions.head(tr, self.keys))

    def documents(self) -> dict[str, DocumentId]:
        """The ids of the head's documents, by source."""

        def work(tr: revisions.Transaction) -> dict[str, DocumentId]:
            view = CorpusAtRevision(tr, self.corpus, self.keys, self.sealed, revisions.head(tr, self.keys))
            return {document.source: document.id for document in HierarchyReader(view).documents()}

        return self.engine.run(work)

    def dump(self) -> dict[bytes, bytes]:
        """Every key of the store with its value. On a cluster the keyring has a directory beside the store's."""
        return self.engine.run(_dump)


def _dump(tr: Transaction) -> dict[bytes, bytes]:
    beside = tuple(directory.tree(tr, (f"{STORE_PATH[0]}-keyring",)).values())
    return {key: value for key, value in tr.range(b"", b"\xff") if not (beside and key.startswith(beside))}


@contextlib.contextmanager
def opened_archive(path: Path, durability: Durability = Durability.RELAXED) -> Iterator[Archive]:
    """The corpus of a data directory, made on first use."""
    settings = engine_settings(path, durability)
    with contextlib.ExitStack() as open_now:
        engine = open_engine(path, durability)
        open_now.callback(engine.close)
        keyring = open_now.enter_context(open_keyring(settings, engine))
        keyspace = Keyspace(open_store(engine)[0])
        journal = open_journal(engine, keyspace, keyring, path)
        corpus = _find_or_make(Unit(engine, keyspace, journal), engine)
        yield _archive(engine, keyring, keyspace, journal, corpus)


def _archive(engine: Engine, keyring: Keyring, keyspace: Keyspace, journal: Journal, corpus: Corpus) -> Archive:
    unit, sealed = Unit(engine, keyspace, journal), SealedRecords(keyring)
    reviser = Reviser(engine, unit, sealed, keyring)
    preparer = builtin_preparer()
    readers = InProcessReaders(preparer.digester)
    planner = DocumentPlanner(reviser, SectionCache(engine), CitedChunks(engine), preparer, readers)
    return Archive(engine, keyring, corpus, planner, sealed, keyspace, journal)


def _find_or_make(unit: Unit, engine: Engine) -> Corpus:
    """Returns the corpus. The first call makes it; later calls repeat the same request ids, so they make no other."""
    at = datetime(2026, 1, 1, tzinfo=UTC)

    def call(action: str) -> Call:
        return Call(action, RequestId(f"{action}-first"), OPERATOR, at, 30.0, b"")

    create_tenant(unit, call("CreateTenant"), name="tenant", metadata={}, tenant_id=TENANT)
    create_corpus(
        unit, call("CreateCorpus"), tenant=TENANT, name="corpus", description="", metadata={}, corpus_id=CORPUS
    )
    return engine.run(lambda tr: corpora.get(tr, unit.keys, TENANT, CORPUS))
