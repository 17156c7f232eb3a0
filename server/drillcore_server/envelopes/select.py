"""What an envelope is looked for with: the texts of its question, and the facts that its filters allow.

Phase 1 of an envelope: the facts that may be packed, from everything that leads to one.

    sub-queries -> nearest vectors ┐
                -> matching words  ├-> more of communities that are hardly there -> each read from the store, and scored
                -> best sections   ┘

What is found, and its relevance, depends on the plan, the corpus at its revision and the session, and on nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from operator import attrgetter
from typing import Final, TypeVar

import numpy as np

from drillcore_server.communities.memberships import Memberships
from drillcore_server.communities.store import CommunityReader
from drillcore_server.envelopes.envelope_plan import EnvelopePlan
from drillcore_server.envelopes.fused_relevance import fused_relevance
from drillcore_server.envelopes.model import SCORE_DIGITS, Candidate, FoundBy
from drillcore_server.envelopes.rendering import lead_of
from drillcore_server.envelopes.request import EnvelopeReads
from drillcore_server.envelopes.scoring import FUSED
from drillcore_server.facts.filters import Narrowing, allowed, candidates
from drillcore_server.facts.lexical.lexical_index import LexicalIndex
from drillcore_server.facts.lexical.relevance import WordShares
from drillcore_server.facts.model import Fact, FactStatus
from drillcore_server.facts.session_facts import beside_session
from drillcore_server.facts.session_store import SessionFact
from drillcore_server.facts.store import FactReader
from drillcore_server.facts.words import question
from drillcore_server.hierarchy.chunk_index import unpacked
from drillcore_server.hierarchy.search_text import SoughtTexts
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.storage.ids import CommunityId, FactId, NodeId
from drillcore_server.vectors.embedding.embedders import Vector
from drillcore_server.vectors.model import Model
from drillcore_server.vectors.store import embeddings_of
from drillcore_server.vectors.vector_index import VectorIndex
from drillcore_server.vectors.vector_log import Labels

T = TypeVar("T")


class SoughtFacts(SoughtTexts):
    """For one call. What is run begins anew for a further model, or when it has tried many facts in vain."""

    def __init__(self, reads: EnvelopeReads, plan: EnvelopePlan, *, at_once: bool = True) -> None:
        super().__init__(reads.facts.embedders, plan.sought, at_once=at_once)
        self.narrowing = Narrowing(reads.facts, plan.filters)

    def run(self, search: Callable[[], T]) -> T:
        return super().run(lambda: self.narrowing.run(search))


SECTIONS_MAX: Final = 5
"""Drilled into, for each sub-query."""
SECTIONS_CONSIDERED: Final = 20
"""By their centroids, before their summaries have a say."""
SECTION_FACTS_MAX: Final = 10
"""Of one section, for each sub-query."""
HARDLY_THERE: Final = 3
"""A community with fewer candidates than this is looked at again,"""
COMMUNITY_NEAR_MIN: Final = 10
"""if so many of its facts are near, and up to so many of them join."""
COMMUNITIES_MAX: Final = 20
"""Looked at again, those of the best candidates first."""
WORDS_TIMES: Final = 4
"""As many candidates by words as by vectors: words tell apart what vectors put together."""
WORDS_MAX: Final = 1_000
FACT_TOKENS: Final = 20
"""Of a short fact: candidates are looked for until they could fill the budget."""
_LEADS: Final = tuple(FoundBy)


@dataclass(frozen=True, slots=True)
class Selected:
    candidates: tuple[Candidate, ...]
    exact: bool
    """Whether every vector was compared."""


@dataclass(frozen=True, slots=True)
class SessionMemory:
    """What the session holds: facts of its own, and the communities that it used before."""

    facts: Sequence[SessionFact] = ()
    warm: frozenset[CommunityId] = frozenset()
    deferred: frozenset[FactId] = frozenset()
    """Left over from the windows before."""


def select(
    reads: EnvelopeReads,
    views: Sequence[CorpusAtRevision],
    plan: EnvelopePlan,
    sought: SoughtFacts,
    memory: SessionMemory,
    now: datetime,
) -> Selected:
    """The candidates of all corpora and of the session, each once, in the order of their ids.

    Tenants that share corpora may have chosen the same id: the session's fact counts, or else that of the corpus with
    the smaller id.
    """
    found: list[Candidate] = []
    exact = True
    for view in views if plan.memory_tier_max >= 1 else ():
        found += _in_session(view, plan, sought, memory, now)
        embeddings = embeddings_of(view) if plan.memory_tier_max >= 2 else None
        if embeddings is not None:
            model = embeddings.current.model
            vectors = sought.of(view.corpus.id, model)
            search = _CorpusSearch(reads, view, model, plan, memory, now, vectors, sought.narrowing)
            found += search.candidates()
            exact = exact and (plan.exact or search.index.is_exact)
    in_order = sorted(found, key=lambda one: (one.id.int, not one.session_only, one.corpus.int), reverse=True)
    return Selected(tuple(reversed({one.id: one for one in in_order}.values())), exact)


def _by_words(plan: EnvelopePlan) -> int:
    """How many candidates words should lead to, for each text that is sought."""
    return min(max(WORDS_TIMES * plan.per_query, plan.budget.tokens // FACT_TOKENS), WORDS_MAX)


@dataclass(slots=True)
class _CorpusSearch:
    reads: EnvelopeReads
    view: CorpusAtRevision
    model: Model
    plan: EnvelopePlan
    memory: SessionMemory
    now: datetime
    vectors: Sequence[Vector]
    """Of the texts that are sought; the whole question is the last."""
    narrowing: Narrowing
    index: VectorIndex[FactId] = field(init=False)
    words: LexicalIndex = field(init=False)
    _facts: dict[FactId, Fact | None] = field(default_factory=dict)
    _refused: int = 0
    _led: dict[FactId, list[FoundBy]] = field(default_factory=dict)
    _shared: tuple[str, WordShares] | None = None
    _relevances: dict[FactId, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.index = self.reads.facts.indexes.at(self.view)
        self.words = self.reads.words.at(self.view)

    def candidates(self) -> Iterator[Candidate]:
        among = self._among()
        self._note(FoundBy.DEFERRED, (one for one in sorted(self.memory.deferred) if one in self.index))
        if among is None or among:
            for text, vector in zip(self.plan.sought, self.vectors, strict=True):
                ranking = self.index.ranking(vector, among, exact=self.plan.exact)
                self._note(FoundBy.VECTORS, self._passing((one for one, _ in ranking), self.plan.per_query))
                matching = self.words.ranking(self._shares(text), _by_words(self.plan), among)
                self._note(FoundBy.WORDS, self._passing(one for one, _ in matching))
                self._note(FoundBy.SECTIONS, self._passing(self._drilled(vector, among)))
            self._note(FoundBy.COMMUNITY, self._passing(self._of_communities(among)))
        return self._scored()

    def _shares(self, text: str) -> WordShares:
        """Of all facts. The whole question's are needed twice: to find facts, and to score them."""
        if self._shared is None or self._shared[0] != text:
            self._shared = text, self.words.shares(question(text))
        return self._shared[1]

    def _among(self) -> Set[FactId] | None:
        """The facts to look among, as far as indexes tell, or as was found out; None: all."""
        indexed = candidates(self.reads.facts, self.view, self.plan.filters)
        narrowed = self.narrowing.among(self.view, indexed)
        if self.plan.memory_tier_max >= 3:
            return narrowed
        known = self._memberships
        warm = {fact for community in self.memory.warm for fact in known.members(community)}
        return warm if narrowed is None else warm & narrowed

    def _passing(self, ids: Iterable[FactId], at_most: int | None = None) -> Iterator[FactId]:
        return islice((one for one in ids if self._fact(one) is not None), at_most)

    def _fact(self, one: FactId) -> Fact | None:
        """A fact that the filters allow, as the store has it at this revision."""
        try:
            return self._facts[one]
        except KeyError:
            fact = FactReader(self.view).fact_left(one)
            if fact is None or not fact.is_searched or not self._passes(fact):
                fact = None
                self._refused += 1
                self.narrowing.check(self.view, self._refused)
            return self._facts.setdefault(one, fact)

    def _passes(self, fact: Fact) -> bool:
        return allowed(self.reads.facts, self.view, self.plan.filters, fact)

    def _note(self, by: FoundBy, found: Iterable[FactId]) -> None:
        for one in found:
            self._led.setdefault(one, []).append(by)

    def _drilled(self, vector: Vector, among: Set[FactId] | None) -> Iterator[FactId]:
        """The best facts of the best sections, so many of each."""
        for section in self._sections(vector):
            facts = set(self.words.facts_of(HierarchyReader(self.view).chunks_of(section)))
            own = facts if among is None else facts & among
            yield from (one for one, _ in self.index.search(vector, SECTION_FACTS_MAX, own, exact=True))

    def _sections(self, vector: Vector) -> list[NodeId]:
        """By their centroid or by the passages that their summary is made of, whichever is nearer."""
        near = self.reads.sections.at(self.view).search(vector, SECTIONS_CONSIDERED)
        scored = [(max(score, self._summary_score(one, vector)), one) for one, score in near]
        return [one for _, one in sorted(scored, key=lambda pair: (-pair[0], pair[1]))[:SECTIONS_MAX]]

    def _summary_score(self, section: NodeId, vector: Vector) -> float:
        """The cosine with what a section's summary is made of: the chunks of its heaviest passages."""
        passages = self.reads.sections.passages(self.view, section)
        chunks = self.reads.chunks.at(self.view)
        there = [one for one in dict.fromkeys(passages) if one in chunks]
        if not there:
            return -1.0
        total = chunks.rows(there).sum(axis=0)
        return round(float(total @ vector / max(float(np.linalg.norm(total)), 1e-12)), SCORE_DIGITS)

    def _of_communities(self, among: Set[FactId] | None) -> Iterator[FactId]:
        """More of the communities that are hardly there, though many of their facts are near."""
        members = self._memberships.labels_in(self.index, self._hardly_there())
        if among is not None:
            allowed = self.index.labels([one.bytes for one in among])
            members = [np.intersect1d(one, allowed, assume_unique=True) for one in members]
        return self._near([one for one in members if len(one) >= COMMUNITY_NEAR_MIN])

    def _hardly_there(self) -> list[CommunityId]:
        """Communities with few candidates; if they are too many, those whose best candidate is most relevant."""
        found = {one: community for one, community in self._by_community() if community is not None}
        counts = Counter(found.values())
        few = {one: community for one, community in found.items() if counts[community] < HARDLY_THERE}
        if len(set(few.values())) <= COMMUNITIES_MAX:
            return sorted(set(few.values()))
        relevance = self._relevance(list(few))
        best: dict[CommunityId, float] = {}
        for one, community in few.items():
            best[community] = max(best.get(community, 0.0), relevance[one])
        return sorted(best, key=lambda one: (-best[one], one))[:COMMUNITIES_MAX]

    def _by_community(self) -> Iterator[tuple[FactId, CommunityId | None]]:
        """Each candidate so far that may be packed, and its community."""
        ids = [one for one in self._led if self._fact(one) is not None]
        return zip(ids, self._memberships.of(ids), strict=True)

    def _near(self, groups: Sequence[Labels]) -> Iterator[FactId]:
        """The nearest of each group that has so many near ones. All are compared at once."""
        if not groups:
            return
        every = np.sort(np.concatenate(groups))
        for vector in self.vectors:
            cosines = self.index.cosines(vector, every)
            for labels in groups:
                scores = cosines[np.searchsorted(every, labels)]
                if np.count_nonzero(scores >= self.plan.relevance_floor) >= COMMUNITY_NEAR_MIN:
                    yield from (one for one, _ in self.index.best((scores, labels), COMMUNITY_NEAR_MIN))

    def _scored(self) -> Iterator[Candidate]:
        ids = sorted((one for one in self._led if self._fact(one) is not None), key=attrgetter("int"))
        if not ids:
            return
        relevance, rows = self._relevance(ids), self.index.rows(ids)
        communities = self._memberships.of(ids)
        labels = self._labels(communities)
        for one, row, community in zip(ids, rows, communities, strict=True):
            fact = self._fact(one)
            assert fact is not None
            label = "" if community is None else labels[community]
            led = self._led[one]
            yield Candidate(
                id=one,
                corpus=self.view.corpus.id,
                content=fact.content,
                source=fact.source,
                importance=fact.importance,
                ingested_at=fact.ingested_at,
                relevance=relevance[one],
                vector=row,
                model=self.model.name,
                stale=is_stale(fact, self.plan, self.now),
                community=community if label else None,
                community_label=label,
                found_by=tuple([by for by in _LEADS if by in led]),
                memory_tier=self._tier(one, community if label else None),
                version=fact.version,
                document=fact.document,
                lead=lead_of(fact),
                fact=fact,
            )

    def _relevance(self, ids: Sequence[FactId]) -> Mapping[FactId, float]:
        """Of each, which does not depend on the others."""
        if missing := [one for one in ids if one not in self._relevances]:
            self._relevances |= self._computed_relevance(missing)
        return self._relevances

    def _computed_relevance(self, ids: Sequence[FactId]) -> Mapping[FactId, float]:
        """By the scoring policy: the whole question's, or the best cosine with one of its parts."""
        if self.plan.policy == FUSED:
            chunks = self.reads.chunks.at(self.view)
            asked, shares = question(self.plan.query), self._shares(self.plan.query)
            return fused_relevance(self.words, self.index, chunks, asked, self.vectors[-1], ids, shares)
        cosines: dict[FactId, float] = dict.fromkeys(ids, 0.0)
        for vector in self.vectors:
            for one, score in self.index.search(vector, len(ids), ids, exact=True):
                cosines[one] = max(cosines[one], score)
        return {one: min(score, 1.0) for one, score in cosines.items()}

    def _labels(self, communities: Iterable[CommunityId | None]) -> Mapping[CommunityId, str]:
        """What they are called; nothing where the words of a label were erased."""
        labels = CommunityReader(self.view)
        return {one: labels.label(one) or "" for one in {one for one in communities if one is not None}}

    def _tier(self, one: FactId, community: CommunityId | None) -> int:
        """The lowest that has it."""
        if one in self.plan.window_facts:
            return 0
        if one in self.memory.deferred:
            return 1
        return 2 if community in self.memory.warm else 3

    @property
    def _memberships(self) -> Memberships:
        return self.reads.communities.at(self.view)


def _in_session(
    view: CorpusAtRevision, plan: EnvelopePlan, sought: SoughtFacts, memory: SessionMemory, now: datetime
) -> Iterator[Candidate]:
    """The session's own facts that were put beside a corpus."""
    for one in memory.facts:
        if one.corpus == view.corpus.id and plan.filters.allows(one.fact, None):
            vector = unpacked(one.vector)
            yield Candidate(
                id=one.fact.id,
                corpus=one.corpus,
                content=one.fact.content,
                source=one.fact.source,
                importance=one.fact.importance,
                ingested_at=one.fact.ingested_at,
                relevance=_cosine(one, vector, sought),
                vector=vector,
                model=one.fact.embedding_model,
                stale=is_stale(one.fact, plan, now),
                found_by=(FoundBy.SESSION,),
                memory_tier=0 if one.fact.id in plan.window_facts else 1,
                version=one.fact.version,
                session_only=True,
                fact=one.fact,
            )


def _cosine(one: SessionFact, vector: Vector, sought: SoughtFacts) -> float:
    compared = beside_session(one.fact, one.corpus, len(vector), sought.of)
    return max(0.0, min(1.0, round(max(float(vector @ text) for text in compared), SCORE_DIGITS)))


def is_stale(fact: Fact, plan: EnvelopePlan, now: datetime) -> bool:
    return fact.status is FactStatus.STALE or (plan.max_age is not None and fact.age(now) > plan.max_age)
