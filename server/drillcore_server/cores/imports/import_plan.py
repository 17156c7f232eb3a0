"""Plans the import of a checked core on one revision of the corpus. The plan is made again if another call commits
first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Final, Protocol
from uuid import UUID

from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.communities import store as communities
from drillcore_server.communities.model import CommunityRun, Trigger
from drillcore_server.communities.store import CommunityWrites
from drillcore_server.cores.foreign_store import EntityVectorWrites, LibraryPlaces, LibraryWrites, has_any
from drillcore_server.cores.imports.check_core import CheckedCore
from drillcore_server.cores.imports.foreign_writes import ForeignWrites, batches
from drillcore_server.cores.imports.full_intake import FullIntake
from drillcore_server.cores.imports.full_writes import FullWrites
from drillcore_server.cores.model import Skips, StoredCounts
from drillcore_server.facts.block_writes import FactWrites
from drillcore_server.graphs.quad_store import QuadWrites
from drillcore_server.graphs.turn_store import TurnWrites
from drillcore_server.hierarchy.model import IDS_PER_NODE
from drillcore_server.hierarchy.source_model import source_without_document
from drillcore_server.hierarchy.store import HierarchyReader, HierarchyWrites
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.errors import Exists, NotReady
from drillcore_server.kernel.revise import Reviser
from drillcore_server.kernel.unit import Call
from drillcore_server.kernel.writes import Write
from drillcore_server.signatures.store import ForeignSignatureWrites
from drillcore_server.storage.ids import DocumentId, NodeId, Revision, SourceId
from drillcore_server.vectors.corpus_models import CorpusModels
from drillcore_server.vectors.embedding.embedders import Embedders
from drillcore_server.vectors.model import Embeddings, Model

_NO_MODEL: Final = 0


class CorePlan(Protocol):
    """What an import changes in a corpus, planned on one revision."""

    counts: StoredCounts
    """Counts of the stored records. Complete once all writes were read."""
    skips: Skips

    @property
    def sources(self) -> Sequence[SourceId]:
        """The sources of the stored records."""

    @property
    def outcome_sources(self) -> Sequence[SourceId]:
        """The sources whose ids or content the report may mention."""

    @property
    def sections(self) -> tuple[NodeId, ...]: ...

    @property
    def documents(self) -> tuple[DocumentId, ...]: ...

    @property
    def has_communities(self) -> bool: ...

    def writes(self) -> Iterator[Write]:
        """Call it once. Raises `Refused` if the core conflicts with content of the corpus."""

    def finish(self, tr: Transaction, revision: Revision) -> None:
        """Makes further writes in the transaction that commits the revision."""


@dataclass
class ForeignPlan:
    """The plan for another system's core, all of one source."""

    reviser: Reviser
    call: Call
    corpus: Corpus
    base: Revision
    core: CheckedCore
    source: SourceId
    counts: StoredCounts = field(default_factory=StoredCounts)
    sections: tuple[NodeId, ...] = ()
    documents: tuple[DocumentId, ...] = ()
    has_communities: bool = False

    def __post_init__(self) -> None:
        self.skips = self.core.skips.copy()

    @property
    def sources(self) -> Sequence[SourceId]:
        return [self.source]

    outcome_sources = sources

    def writes(self) -> Iterator[Write]:
        make = foreign_writes(self.reviser, self.corpus, self.base, self.core, self.counts, self.source)
        known = make.known_documents(self.skips)
        changes = chain(make.quads(), make.vectors(), make.documents(known))
        first = next(changes, None)
        if first is not None:
            yield from self._registered()
            yield first
            yield from changes

    def finish(self, tr: Transaction, revision: Revision) -> None:
        """Makes no further writes."""

    def _registered(self) -> Iterator[Write]:
        known = self.reviser.batched(self.corpus, self.base).read(
            lambda view: HierarchyReader(view).source(self.source)
        )
        if known is None:
            self.counts.sources += 1
            yield from hierarchy_writes(self.reviser, self.corpus, None).put_source(
                source_without_document(self.source, self.call.at)
            )


@dataclass
class FullPlan:
    """The plan for a full core, which fills an empty corpus with its content."""

    reviser: Reviser
    embedders: Embedders
    call: Call
    corpus: Corpus
    base: Revision
    core: CheckedCore
    intake: FullIntake
    counts: StoredCounts = field(default_factory=StoredCounts)
    outcome_sources: Sequence[SourceId] = ()

    def __post_init__(self) -> None:
        self.skips = self.core.skips.copy()

    @cached_property
    def sources(self) -> Sequence[SourceId]:
        return self.intake.sources

    @cached_property
    def sections(self) -> tuple[NodeId, ...]:
        return tuple(self.intake.hierarchy.sections)

    @cached_property
    def documents(self) -> tuple[DocumentId, ...]:
        return tuple(self.intake.hierarchy.documents)

    @property
    def has_communities(self) -> bool:
        return self.intake.facts.communities > 0

    def writes(self) -> Iterator[Write]:
        snapshot = self.reviser.batched(self.corpus, self.base)
        check_empty(snapshot)
        self._check_raws_free(snapshot)
        models = self._models()
        foreign = foreign_writes(
            self.reviser, self.corpus, self.base, self.core, self.counts, None, self.intake.rest.library
        )
        yield from self._full_writes(models).writes()
        yield from foreign.quads()
        yield from foreign.vectors()
        yield from foreign.documents({})

    def finish(self, tr: Transaction, revision: Revision) -> None:
        """Records a run for the core's communities. They fit its facts, so they need not be computed again."""
        if self.has_communities:
            facts, found = self.intake.facts.embedded, self.intake.facts.communities
            run = CommunityRun(self.call.at, revision, revision, facts, found, Trigger.REQUEST, 0.0)
            communities.put_run(tr, self.reviser.keys.of_corpus(self.corpus.number), run)

    def _models(self) -> Embeddings | None:
        assert self.core.root is not None
        model = self.core.root.content.model
        if model is None:
            return None
        return CorpusModels(self.reviser.batched(self.corpus, self.base), self.embedders).after(
            Model(model.name, model.dimensions)
        )

    def _full_writes(self, models: Embeddings | None) -> FullWrites:
        unit, keyring, corpus = self.reviser.unit, self.reviser.keyring, self.corpus
        keys = unit.keys.of_corpus(corpus.number)
        model = _NO_MODEL if models is None else models.current.number
        return FullWrites(
            self.core,
            self.intake,
            corpus.id,
            models,
            hierarchy_writes(self.reviser, corpus, models),
            FactWrites(unit.keys, corpus.tenant_id, corpus.number, keyring, model),
            CommunityWrites(keys, corpus.number, keyring),
            TurnWrites(unit.keys, corpus.tenant_id, corpus.number, keyring),
            ForeignSignatureWrites(keys, corpus.number, keyring),
            self.counts,
        )

    def _check_raws_free(self, snapshot: BatchedReads) -> None:
        """Raises `Exists` if another node of the tenant has an id that a raw of the core could have.

        Raws of ingested chunks have no locators of their own, so the usual check does not find this.
        """
        known = self.intake.hierarchy.chunks
        for some in batches(id_ for id_, chunk in known.items() if not chunk.has_own_raws):
            for taken in snapshot.together(some, self._taken):
                if taken is not None:
                    message = f"node {taken}: the tenant has or had a node with this id; import the core elsewhere"
                    raise Exists(Reason.NODE_EXISTS, message, node=str(taken))

    def _taken(self, view: CorpusAtRevision, chunks: Sequence[NodeId]) -> list[UUID | None]:
        """For each chunk, returns a node whose id a raw of it could have."""
        found = view.tr.range_many(list(map(self._ids_of_raws, chunks)), limit=1)
        return [UUID(bytes=entries[0][0][-16:]) if entries else None for entries in found]

    def _ids_of_raws(self, chunk: NodeId) -> tuple[bytes, bytes]:
        """Returns the range of the locators that raws of a chunk could have."""
        keys, tenant = self.reviser.keys, self.corpus.tenant_id
        first, last = UUID(int=chunk.int + 1), UUID(int=chunk.int | IDS_PER_NODE)
        return keys.locator(tenant, NodeId(first)), keys.locator(tenant, NodeId(last)) + b"\0"


def check_empty(snapshot: BatchedReads) -> None:
    """Raises `NotReady` unless the corpus has nothing that a full core could collide with."""
    keys = snapshot.keys
    spaces = (
        keys.documents(),
        keys.sections(),
        keys.chunks(),
        keys.sources(),
        keys.fact_blocks(),
        keys.communities(),
        keys.quads(),
        keys.library_documents(),
        keys.all_entity_vectors(),
        keys.turns(),
        keys.all_edges(),
        keys.all_foreign_signatures(),
    )
    has_master = snapshot.read(lambda view: HierarchyReader(view).master_unless_erased() is not None)
    if has_master or has_any(snapshot, *spaces):
        raise NotReady(Reason.CORPUS_NOT_EMPTY, "a full core needs an empty corpus; create a corpus for it")


def hierarchy_writes(reviser: Reviser, corpus: Corpus, models: Embeddings | None) -> HierarchyWrites:
    return HierarchyWrites(reviser.keys, corpus.tenant_id, corpus.number, reviser.keyring, models)


def foreign_writes(
    reviser: Reviser,
    corpus: Corpus,
    base: Revision,
    core: CheckedCore,
    counts: StoredCounts,
    source: SourceId | None,
    document_sources: dict[str, SourceId] | None = None,
) -> ForeignWrites:
    keys, keyring, number = reviser.keys, reviser.keyring, corpus.number
    return ForeignWrites(
        core,
        reviser.batched(corpus, base),
        QuadWrites(keys, number, keyring),
        EntityVectorWrites(keys.of_corpus(number), number, keyring),
        LibraryWrites(keys.of_corpus(number), number, keyring),
        LibraryPlaces.of(keyring, number),
        counts,
        source,
        document_sources or {},
    )
