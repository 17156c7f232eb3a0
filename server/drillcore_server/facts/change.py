"""What the commands that change facts share: finding them, and making a change of them a revision of their corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.facts.counters import source_writes
from drillcore_server.facts.importance import ImportanceSettings
from drillcore_server.facts.model import Fact, FactChange
from drillcore_server.facts.reader import corpus_of, missing_fact
from drillcore_server.facts.store import FactReader, FactWrites, packed
from drillcore_server.hierarchy.model import Chunk
from drillcore_server.hierarchy.source_model import Described, described_as
from drillcore_server.hierarchy.store import HierarchyReader, HierarchyWrites
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.accounts import Permission
from drillcore_server.kernel.corpora import Corpus
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision, CorpusReads
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.revise import Plan, Reviser, Target
from drillcore_server.kernel.unit import Call
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.ids import CorpusId, DocumentId, FactId, Revision, TenantId
from drillcore_server.tokenizers.encodings import TokenCounter
from drillcore_server.vectors.corpus_models import CorpusModels
from drillcore_server.vectors.embedding.embedders import Embedders, embed_or_refuse, model_of
from drillcore_server.vectors.model import Model

R = TypeVar("R")


class Embedded(NamedTuple):
    """Vectors as they are stored, and the model that made them."""

    model: Model
    vectors: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class ChangedFact:
    """A fact as it was and as it will be."""

    before: Fact | None
    """None: it is new."""
    after: Fact
    what: FactChange
    vector: bytes | None = None
    """Of new content."""


@dataclass(frozen=True, slots=True)
class FactPlanner:
    """What calls that change facts use."""

    reads: CorpusReads
    reviser: Reviser
    embedders: Embedders
    counter: TokenCounter
    weights: ImportanceSettings

    def models(self, corpus: Corpus, revision: Revision) -> CorpusModels:
        return CorpusModels(self.reviser.batched(corpus, revision), self.embedders)

    def target(self, call: Call, tenant: TenantId | None, facts: Sequence[FactId]) -> Target:
        """The one corpus that facts are of."""

        def work(tr: Reader, granted: InTenant) -> set[CorpusId]:
            return {corpus_of(tr, self.reads, granted, one) for one in facts}

        corpora = self.reads.unit.look(call, access.in_tenant(tenant, Permission.WRITE), work)
        if len(corpora) > 1:
            message = "these are facts of several corpora; change those of one at a time"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="fact_ids")
        return Target(tenant, corpora.pop())

    def facts(self, corpus: Corpus, base: Revision, wanted: Sequence[FactId]) -> list[Fact]:
        """All of them, as they are at a revision. Raises `Missing` for one that is not there."""
        found = list(self.reviser.batched(corpus, base).find(wanted, lambda view, one: FactReader(view).fact(one)))
        for one, fact in zip(wanted, found, strict=True):
            if fact is None:
                raise missing_fact(one)
        return [fact for fact in found if fact is not None]

    def embedded(self, corpus: Corpus, base: Revision, texts: Sequence[str]) -> Embedded:
        """With the model that the corpus has at a revision. Raises `Refused` if it is not here, or fails."""
        embedder = self.models(corpus, base).embedder()
        return Embedded(model_of(embedder), [packed(one) for one in embed_or_refuse(embedder, texts)])

    def plan(
        self,
        corpus: Corpus,
        base: Revision,
        changes: Sequence[ChangedFact],
        result: Callable[[Revision], R],
        *,
        model: Model | None = None,
    ) -> Plan[R]:
        """The revision that makes these changes. `model` made the vectors of those that are new."""
        sources = sorted({one.after.source for one in changes})
        return Plan(
            base=base,
            number=self.reviser.make_keys(corpus, sources),
            writes=self._writes(corpus, base, changes, model),
            sections=(),
            documents_added=(),
            documents_removed=(),
            sources=sources,
            result=result,
            facts=[one.after.id for one in changes],
            facts_count=lambda: len(changes),
        )

    def _writes(
        self, corpus: Corpus, base: Revision, changes: Sequence[ChangedFact], model: Model | None
    ) -> list[Write]:
        models = self.models(corpus, base)
        known = models.now()
        embeddings = known if model is None else models.after(model)
        assert embeddings is not None, "there are no facts without a model"
        keys, keyring, number = self.reviser.keys, self.reviser.keyring, embeddings.current.number
        make = FactWrites(keys, corpus.tenant_id, corpus.number, keyring, number, embeddings.others)
        writes = [] if embeddings == known else [make.set_embeddings(embeddings)]
        for one in changes:
            if one.before is None:
                assert one.vector is not None
                writes += make.add(one.after, one.vector)
            else:
                writes += make.change(one.before, one.after, one.what, one.vector)
        return [*writes, *self._sources(corpus, base, changes)]

    def _sources(self, corpus: Corpus, base: Revision, changes: Iterable[ChangedFact]) -> Iterator[Write]:
        """The registry with the facts that their sources have then."""
        snapshot = self.reviser.batched(corpus, base)
        make = HierarchyWrites(self.reviser.keys, corpus.tenant_id, corpus.number, self.reviser.keyring)
        pairs = ((one.before, one.after) for one in changes)
        return source_writes(
            pairs, lambda source: snapshot.read(lambda view: HierarchyReader(view).source(source)), make
        )

    def describe(self, corpus: Corpus, base: Revision, chunks: Iterable[Chunk]) -> dict[DocumentId, Described]:
        """What facts that are put of chunks weigh by: as those that were drawn from the same document."""
        sources = {chunk.document: chunk.source for chunk in chunks}

        def described(view: CorpusAtRevision, one: DocumentId) -> Described:
            document = HierarchyReader(view).document(one)
            known = described_as(HierarchyReader(view).source(sources[one]))
            return known if document is None else replace(known, metadata=document.metadata)

        ids = sorted(sources)
        return dict(zip(ids, self.reviser.batched(corpus, base).find(ids, described), strict=True))
