"""What a core that was checked makes of a corpus: planned on one revision of it, anew whenever others come first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from typing import Final, Protocol
from uuid import UUID

from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.commands.ingester import Ingester
from drillcore_server.commands.unit import Call
from drillcore_server.domain.communities import CommunityRun, Trigger
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.embeddings import Embeddings, Model
from drillcore_server.domain.errors import Exists, NotReady
from drillcore_server.domain.ids import DocumentId, NodeId, Revision, SourceId
from drillcore_server.domain.nodes import RAWS_PER_CHUNK_MAX
from drillcore_server.domain.sources import registered
from drillcore_server.importing.counts import StoredCounts
from drillcore_server.importing.foreign_writes import ForeignWrites
from drillcore_server.importing.full import FullIntake
from drillcore_server.importing.full_writes import FullWrites
from drillcore_server.importing.reading import CheckedCore
from drillcore_server.importing.report import Skips
from drillcore_server.store import communities
from drillcore_server.store.communities import CommunityWrites
from drillcore_server.store.entity_vectors import EntityVectorWrites
from drillcore_server.store.facts import FactWrites
from drillcore_server.store.foreign_signatures import ForeignSignatureWrites
from drillcore_server.store.hierarchy import CorpusView, HierarchyWrites
from drillcore_server.store.library import LibraryPlaces, LibraryWrites, is_there
from drillcore_server.store.quads import QuadWrites
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.turns import TurnWrites
from drillcore_server.store.writes import Write

_AT_ONCE: Final = 500
"""Looked up in one transaction."""
_NO_MODEL: Final = 0


class CorePlan(Protocol):
    counts: StoredCounts
    """Of what is stored, once all writes were gone through."""
    skips: Skips

    @property
    def sources(self) -> Sequence[SourceId]:
        """That something is stored of."""

    @property
    def outcome_sources(self) -> Sequence[SourceId]:
        """That the report may tell something of."""

    @property
    def sections(self) -> tuple[NodeId, ...]: ...

    @property
    def documents(self) -> tuple[DocumentId, ...]: ...

    @property
    def has_communities(self) -> bool: ...

    def writes(self) -> Iterator[Write]:
        """Once. Raises `Refused` if the core does not fit what the corpus has."""

    def finish(self, tr: Transaction, revision: Revision) -> None:
        """What else belongs to the commit."""


@dataclass
class ForeignPlan:
    """Of a core of another system, all of one source."""

    ingester: Ingester
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
        make = foreign_writes(self.ingester, self.corpus, self.base, self.core, self.counts, self.source)
        known = make.known_documents(self.skips)
        changes = chain(make.quads(), make.vectors(), make.documents(known))
        first = next(changes, None)
        if first is not None:
            yield from self._registered()
            yield first
            yield from changes

    def finish(self, tr: Transaction, revision: Revision) -> None:
        """Nothing."""

    def _registered(self) -> Iterator[Write]:
        known = self.ingester.snapshot(self.corpus, self.base).read(lambda view: view.source(self.source))
        if known is None:
            self.counts.sources += 1
            yield from hierarchy_writes(self.ingester, self.corpus, None).put_source(
                registered(self.source, self.call.at)
            )


@dataclass
class FullPlan:
    """Of a full core: the corpus becomes what it says."""

    ingester: Ingester
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
        snapshot = self.ingester.snapshot(self.corpus, self.base)
        check_empty(snapshot)
        self._check_raws_free(snapshot)
        models = self._models()
        foreign = foreign_writes(
            self.ingester, self.corpus, self.base, self.core, self.counts, None, self.intake.rest.library
        )
        yield from self._full_writes(models).writes()
        yield from foreign.quads()
        yield from foreign.vectors()
        yield from foreign.documents({})

    def finish(self, tr: Transaction, revision: Revision) -> None:
        """The core's communities are of its facts: none are due."""
        if self.has_communities:
            facts, found = self.intake.facts.embedded, self.intake.facts.communities
            run = CommunityRun(self.call.at, revision, revision, facts, found, Trigger.REQUEST, 0.0)
            communities.put_run(tr, self.ingester.unit.keys.of_corpus(self.corpus.number), run)

    def _models(self) -> Embeddings | None:
        assert self.core.root is not None
        model = self.core.root.said.model
        if model is None:
            return None
        return self.ingester.models(self.corpus, self.base).after(Model(model.name, model.dimensions))

    def _full_writes(self, models: Embeddings | None) -> FullWrites:
        unit, keyring, corpus = self.ingester.unit, self.ingester.keyring, self.corpus
        keys = unit.keys.of_corpus(corpus.number)
        model = _NO_MODEL if models is None else models.current.number
        return FullWrites(
            self.core,
            self.intake,
            corpus.id,
            models,
            hierarchy_writes(self.ingester, corpus, models),
            FactWrites(unit.keys, corpus.tenant_id, corpus.number, keyring, model),
            CommunityWrites(keys, corpus.number, keyring),
            TurnWrites(unit.keys, corpus.tenant_id, corpus.number, keyring),
            ForeignSignatureWrites(keys, corpus.number, keyring),
            self.counts,
        )

    def _check_raws_free(self, snapshot: Snapshot) -> None:
        """Raws of ingested chunks have no locators: nothing of the tenant may have an id that is one of theirs."""
        known = self.intake.hierarchy.chunks
        for some in _batches(one for one, chunk in known.items() if not chunk.has_own_raws):
            for taken in snapshot.find(some, self._taken):
                if taken is not None:
                    message = f"node {taken}: the tenant has, or had, a node of this id elsewhere; import it elsewhere"
                    raise Exists(Reason.NODE_EXISTS, message, node=str(taken))

    def _taken(self, view: CorpusView, chunk: NodeId) -> UUID | None:
        """A node whose id is one that a raw of the chunk could have."""
        keys, tenant = self.ingester.unit.keys, self.corpus.tenant_id
        first, last = UUID(int=chunk.int + 1), UUID(int=chunk.int | RAWS_PER_CHUNK_MAX)
        begin, end = keys.locator(tenant, NodeId(first)), keys.locator(tenant, NodeId(last)) + b"\0"
        found = next(iter(view.tr.range(begin, end, limit=1)), None)
        return None if found is None else UUID(bytes=found[0][-16:])


def check_empty(snapshot: Snapshot) -> None:
    """Raises `NotReady` unless a corpus has nothing that a full core could be in the way of."""
    keys = snapshot.keys
    spaces = (
        keys.documents(),
        keys.sections(),
        keys.chunks(),
        keys.sources(),
        keys.facts(),
        keys.communities(),
        keys.quads(),
        keys.library_documents(),
        keys.all_entity_vectors(),
        keys.turns(),
        keys.all_edges(),
        keys.all_foreign_signatures(),
    )
    has_master = snapshot.read(lambda view: view.master_left() is not None)
    if has_master or any(is_there(snapshot, space) for space in spaces):
        raise NotReady(Reason.CORPUS_NOT_EMPTY, "a full core needs a corpus without content: create one for it")


def hierarchy_writes(ingester: Ingester, corpus: Corpus, models: Embeddings | None) -> HierarchyWrites:
    return HierarchyWrites(ingester.unit.keys, corpus.tenant_id, corpus.number, ingester.keyring, models)


def foreign_writes(
    ingester: Ingester,
    corpus: Corpus,
    base: Revision,
    core: CheckedCore,
    counts: StoredCounts,
    source: SourceId | None,
    document_sources: dict[str, SourceId] | None = None,
) -> ForeignWrites:
    keys, keyring, number = ingester.unit.keys, ingester.keyring, corpus.number
    return ForeignWrites(
        core,
        ingester.snapshot(corpus, base),
        QuadWrites(keys, number, keyring),
        EntityVectorWrites(keys.of_corpus(number), number, keyring),
        LibraryWrites(keys.of_corpus(number), number, keyring),
        LibraryPlaces.of(keyring, number),
        counts,
        source,
        document_sources or {},
    )


def _batches(items: Iterable[NodeId]) -> Iterator[list[NodeId]]:
    todo = iter(items)
    while batch := list(islice(todo, _AT_ONCE)):
        yield batch
