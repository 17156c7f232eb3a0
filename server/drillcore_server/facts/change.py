"""Shared by the commands that change facts: finds the facts and plans a revision of their corpus."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, NamedTuple, TypeVar

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.facts.block_writes import FactWrites
from drillcore_server.facts.blocks import block_of
from drillcore_server.facts.fact_reads import corpora_of, expected_locators, missing_fact
from drillcore_server.facts.importance import ImportanceSettings
from drillcore_server.facts.model import ChangedFact, Fact
from drillcore_server.facts.sources import source_writes
from drillcore_server.facts.store import FactReader
from drillcore_server.hierarchy.model import Chunk
from drillcore_server.hierarchy.source_model import SourceDescription, description_of
from drillcore_server.hierarchy.store import HierarchyReader, HierarchyWrites
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision, CorpusReads
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.revise import Plan, Reviser, SoughtTarget
from drillcore_server.kernel.unit import Call
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.ids import BlockId, CorpusId, DocumentId, FactId, Revision, TenantId
from drillcore_server.tokenizers.encodings import TokenCounter
from drillcore_server.vectors.corpus_models import CorpusModels
from drillcore_server.vectors.embedding.embedders import Embedders, embed_or_refuse, model_of
from drillcore_server.vectors.model import Embeddings, Model
from drillcore_server.vectors.stored_vectors import packed

R = TypeVar("R")
_READ_AHEAD_MAX: Final = 250
"""Changed facts whose blocks are read ahead. Those of others are read when their turn comes."""


class Embedded(NamedTuple):
    """Vectors as they are stored, and the model that made them."""

    model: Model
    vectors: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class FactPlanner:
    """Plans changes of facts as revisions."""

    reads: CorpusReads
    reviser: Reviser
    embedders: Embedders
    counter: TokenCounter
    weights: ImportanceSettings

    def models(self, snapshot: BatchedReads) -> CorpusModels:
        return CorpusModels(snapshot, self.embedders)

    def target(self, call: Call, tenant: TenantId | None, facts: Sequence[FactId]) -> SoughtTarget:
        """The corpus of these facts. Finding it raises `BadInput` if they are in several corpora."""

        def find(tr: Reader, granted: InTenant) -> CorpusId:
            corpora = set(corpora_of(tr, self.reads, granted, facts).values())
            if len(corpora) > 1:
                message = "the facts are in several corpora; change the facts of one corpus at a time"
                raise BadInput(Reason.INVALID_ARGUMENT, message, field="fact_ids")
            return corpora.pop()

        return SoughtTarget(tenant, find, expected_locators(self.reads.unit, call, tenant, facts))

    def facts(self, snapshot: BatchedReads, wanted: Sequence[FactId]) -> list[Fact]:
        """These facts at a revision, in order. Raises `Missing` if one does not exist."""
        found = snapshot.read(lambda view: _facts_and_models(view, wanted))
        for id_, fact in zip(wanted, found, strict=True):
            if fact is None:
                raise missing_fact(id_)
        return [fact for fact in found if fact is not None]

    def embedded(self, snapshot: BatchedReads, texts: Sequence[str]) -> Embedded:
        """Embeds texts with the model that the corpus has at a revision.

        Raises `Refused` if this server does not have the model, or if it fails.
        """
        embedder = self.models(snapshot).embedder()
        return Embedded(model_of(embedder), [packed(vector) for vector in embed_or_refuse(embedder, texts)])

    def plan(
        self,
        snapshot: BatchedReads,
        changes: Sequence[ChangedFact],
        result: Callable[[Revision], R],
        *,
        model: Model | None = None,
        new_blocks: Container[BlockId] = (),
    ) -> Plan[R]:
        """Plans the revision that makes these changes. `model` made the new vectors; None if there are none.

        `new_blocks` were made for the new facts.
        """
        sources = sorted({change.after.source for change in changes})
        return Plan(
            base=snapshot.revision,
            number=self.reviser.make_keys(snapshot.corpus, sources),
            writes=self._writes(snapshot, changes, model, new_blocks),
            sections=(),
            documents_added=(),
            documents_removed=(),
            sources=sources,
            result=result,
            facts=[change.after.id for change in changes],
            facts_count=lambda: len(changes),
        )

    def _writes(
        self,
        snapshot: BatchedReads,
        changes: Sequence[ChangedFact],
        model: Model | None,
        new_blocks: Container[BlockId],
    ) -> list[Write]:
        models = self.models(snapshot)
        known = models.now()
        embeddings = known if model is None else models.after(model)
        assert embeddings is not None, "there are no facts without a model"
        snapshot.read(lambda view: _read_ahead(view, changes, embeddings, new_blocks))
        keys, keyring, number = self.reviser.keys, self.reviser.keyring, embeddings.current.number
        corpus = snapshot.corpus
        make = FactWrites(keys, corpus.tenant_id, corpus.number, keyring, number, embeddings.others)
        writes = [] if embeddings == known else [make.set_embeddings(embeddings)]
        writes += make.change(snapshot, changes, new_blocks)
        return [*writes, *self._sources(snapshot, changes)]

    def _sources(self, snapshot: BatchedReads, changes: Iterable[ChangedFact]) -> Iterator[Write]:
        """Updates the number of facts of each source in the source registry."""
        corpus = snapshot.corpus
        make = HierarchyWrites(self.reviser.keys, corpus.tenant_id, corpus.number, self.reviser.keyring)
        pairs = ((change.before, change.after) for change in changes)
        return source_writes(
            pairs, lambda source: snapshot.read(lambda view: HierarchyReader(view).source(source)), make
        )

    def describe(self, snapshot: BatchedReads, chunks: Iterable[Chunk]) -> dict[DocumentId, SourceDescription]:
        """How each chunk's document is described, for the weights of its facts.

        So a fact that is put weighs as much as one that was drawn from the same document.
        """
        sources = {chunk.document: chunk.source for chunk in chunks}

        def described(view: CorpusAtRevision, id_: DocumentId) -> SourceDescription:
            document = HierarchyReader(view).document(id_)
            known = description_of(HierarchyReader(view).source(sources[id_]))
            return known if document is None else replace(known, metadata=document.metadata)

        ids = sorted(sources)
        return dict(zip(ids, snapshot.find(ids, described), strict=True))


def _facts_and_models(view: CorpusAtRevision, wanted: Sequence[FactId]) -> list[Fact | None]:
    """The facts, read together with the models, which planning a change needs next."""
    reader = FactReader(view)
    view.read_ahead([view.keys.embeddings(), *reader.keys_of(wanted)])
    return reader.facts_by_id(wanted)


def _read_ahead(
    view: CorpusAtRevision, changes: Sequence[ChangedFact], embeddings: Embeddings, new_blocks: Container[BlockId]
) -> None:
    """Reads what the writes of these changes need: blocks, their vectors of every model, and sources."""
    reader = FactReader(view)
    facts = [change.after.id for change in changes if block_of(change.after.id) not in new_blocks][:_READ_AHEAD_MAX]
    vectors = (reader.vector_keys_of(model, facts) for model in (embeddings.current.number, *embeddings.others))
    sources = sorted({view.sealed.hashed(change.after.source) for change in changes})
    view.read_ahead([*reader.keys_of(facts), *chain.from_iterable(vectors), *map(view.keys.source, sources)])
