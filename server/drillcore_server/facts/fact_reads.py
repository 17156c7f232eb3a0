"""Shared by the commands that read facts: finds corpora and facts, and prepares facts for the caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.facts import store as facts
from drillcore_server.facts.index import FactIndexes
from drillcore_server.facts.model import Fact, FoundFact
from drillcore_server.facts.session_facts import FactSessions
from drillcore_server.facts.state_hash import StateHashes
from drillcore_server.facts.store import FactReader, access_keys, read_accesses
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.corpus_at_revision import AsOf, BatchedReads, CorpusAtRevision, CorpusReads
from drillcore_server.kernel.errors import BadInput, Missing
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.storage.ids import CommunityId, CorpusId, FactId, Level, TenantId
from drillcore_server.vectors.corpus_models import embeddings_of
from drillcore_server.vectors.embedding.embedders import Embedders
from drillcore_server.vectors.stored_vectors import unpacked

CORPORA_MAX: Final = 100
"""Corpora that one call reads."""


class FactMemberships(Protocol):
    """Which facts are in which communities, at one revision."""

    def communities_of(self, wanted: Sequence[FactId], /) -> list[CommunityId | None]:
        """The community of each fact, in order; None for a fact in no community."""

    def members(self, community: CommunityId, /) -> list[FactId]: ...


class FactCommunities(Protocol):
    """The communities of facts. The capability `communities` implements it: it builds on facts, not the reverse."""

    def at(self, view: CorpusAtRevision, /) -> FactMemberships: ...

    def labels(self, view: CorpusAtRevision, communities: Sequence[CommunityId], /) -> list[str | None]:
        """The label of each community. None if the community does not exist, or its label was erased."""


@dataclass(frozen=True, slots=True)
class FactReads:
    """Reads facts for callers."""

    corpora: CorpusReads
    embedders: Embedders
    indexes: FactIndexes
    states: StateHashes
    sessions: FactSessions
    communities: FactCommunities

    @property
    def unit(self) -> Unit:
        return self.corpora.unit

    def at(self, tr: Reader, granted: InTenant, trail: Trail, corpus: CorpusId, as_of: AsOf) -> CorpusAtRevision:
        """A corpus at a moment. Raises `Refused` if the caller may not read its facts."""
        view = self.corpora.at(tr, granted, trail, corpus, as_of)
        granted.check_level(corpus, Level.CHUNK)
        return view

    def at_each(
        self, tr: Reader, granted: InTenant, trail: Trail, corpora: Sequence[CorpusId], as_of: AsOf
    ) -> list[CorpusAtRevision]:
        """The named corpora at a moment; if none is named, all that the caller may read."""
        wanted = corpora or self._readable(tr, granted)
        return [self.at(tr, granted, trail, corpus, as_of) for corpus in wanted]

    def found_facts(
        self, view: CorpusAtRevision, found: Sequence[Fact], *, with_embedding: bool = False
    ) -> list[FoundFact]:
        """Adds to facts of a corpus what is stored beside them: accesses, communities and vectors."""
        ids = [fact.id for fact in found]
        memberships = self.communities.at(view).communities_of(ids)
        self._read_ahead(view, ids, memberships, with_embedding=with_embedding)
        embeddings = embeddings_of(view)
        accesses = read_accesses(view.tr, view.keys, ids)
        communities = self._labelled(view, memberships)
        vectors: list[bytes | None] = [None] * len(ids)
        if with_embedding and embeddings:
            vectors = FactReader(view).vectors_unless_erased(embeddings.current.number, ids)
        made = []
        for fact, access, (community, label), stored in zip(found, accesses, communities, vectors, strict=True):
            made.append(
                FoundFact(
                    fact,
                    view.corpus.id,
                    access.count,
                    access.last_at,
                    community,
                    label,
                    embedding=tuple(unpacked(stored).tolist()) if stored is not None else (),
                    embedding_model=embeddings.current.name if embeddings else "",
                )
            )
        return made

    def snapshot(self, view: CorpusAtRevision) -> BatchedReads:
        """The same corpus at the same revision, for reads that may take longer than a transaction."""
        return BatchedReads.of(self.sessions.engine, view)

    def community_of(self, view: CorpusAtRevision, fact: FactId) -> CommunityId | None:
        (found,) = self.communities.at(view).communities_of([fact])
        return found

    @staticmethod
    def _read_ahead(
        view: CorpusAtRevision,
        ids: Sequence[FactId],
        communities: Iterable[CommunityId | None],
        *,
        with_embedding: bool,
    ) -> None:
        """Reads the models of the corpus, labels, vectors and accesses together. The models lead to the vectors."""
        keys = [view.keys.community(id_) for id_ in set(communities) if id_ is not None]
        if with_embedding and (embeddings := embeddings_of(view)) is not None:
            keys += FactReader(view).vector_keys_of(embeddings.current.number, ids)
        view.read_ahead([view.keys.embeddings(), *keys], keys=access_keys(view.keys, ids))

    def _labelled(
        self, view: CorpusAtRevision, communities: Sequence[CommunityId | None]
    ) -> list[tuple[CommunityId | None, str]]:
        """Communities with their labels. (None, "") if the label was erased."""
        known = sorted({id_ for id_ in communities if id_ is not None})
        labels = dict(zip(known, self.communities.labels(view, known), strict=True))
        return [(None, "") if id_ is None or (label := labels[id_]) is None else (id_, label) for id_ in communities]

    def _readable(self, tr: Reader, granted: InTenant) -> Sequence[CorpusId]:
        stored = granted.corpora(tr, self.unit.keys)
        allowed = (corpus.id for corpus, _ in stored if granted.reaches(corpus.id, Level.CHUNK))
        return check_corpora(list(islice(allowed, CORPORA_MAX + 1)))


def corpus_of(tr: Reader, reads: CorpusReads, granted: InTenant, fact: FactId) -> CorpusId:
    """The corpus that has, or had, a fact. Raises `Missing` if there is none, or the caller may not read it."""
    return corpora_of(tr, reads, granted, [fact])[fact]


def corpora_of(
    tr: Reader, reads: CorpusReads, granted: InTenant, wanted: Sequence[FactId]
) -> Mapping[FactId, CorpusId]:
    """The corpus of each of these different facts, as `corpus_of` finds it. Reads all locators of a tenant together."""
    keys = reads.unit.keys
    found: dict[FactId, CorpusId] = {}
    for owner in granted.owners(tr, keys):
        left = [fact for fact in wanted if fact not in found]
        numbers = facts.locate_each(tr, keys, owner, left)
        corpora = {number: reads.numbered(tr, granted, owner, number) for number in set(numbers) if number is not None}
        for fact, number in zip(left, numbers, strict=True):
            corpus = None if number is None else corpora[number]
            if corpus is not None:
                found[fact] = corpus.id
        if len(found) == len(wanted):
            return found
    raise missing_fact(next(fact for fact in wanted if fact not in found))


def expected_locators(unit: Unit, call: Call, tenant: TenantId | None, wanted: Iterable[FactId]) -> list[bytes]:
    """The keys that a call about these facts begins with, to be read ahead. Empty if its tenant is not known yet."""
    owner = call.principal.tenant or tenant
    return [] if owner is None else facts.locators(unit.keys, owner, wanted)


def missing_fact(fact: FactId) -> Missing:
    return Missing(Reason.FACT_NOT_FOUND, f"there is no fact {fact}")


def check_corpora(corpora: Sequence[CorpusId]) -> Sequence[CorpusId]:
    if len(corpora) > CORPORA_MAX:
        message = f"one call reads at most {CORPORA_MAX} corpora; name up to {CORPORA_MAX} in corpus_ids"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="corpus_ids")
    return corpora


def check_facts(wanted: Iterable[FactId], at_most: int) -> list[FactId]:
    """The ids without duplicates, in order. Raises `BadInput` if there are none or too many."""
    ids = list(dict.fromkeys(wanted))
    if not 0 < len(ids) <= at_most:
        raise BadInput(Reason.INVALID_ARGUMENT, f"name 1 to {at_most} facts in fact_ids", field="fact_ids")
    return ids
