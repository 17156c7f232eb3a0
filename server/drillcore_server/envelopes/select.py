"""Selects the candidates of an envelope: the facts that may be packed, from several searches.

    sub-queries -> nearest vectors ┐
                -> matching words  ├-> read the facts -> more facts of communities with few candidates -> score
                -> best sections   ┘

All sub-queries are searched in memory first, and what they found is read together: how often the store is waited for
does not depend on how many there are.

The candidates and their relevance depend on the plan, the corpora at their revisions and the session, and on nothing
else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, islice
from operator import attrgetter
from typing import Final, TypeVar

import numpy as np

from drillcore_server.communities.memberships import Memberships
from drillcore_server.communities.store import CommunityReader
from drillcore_server.envelopes.envelope_plan import EnvelopePlan
from drillcore_server.envelopes.envelope_text import lead_of
from drillcore_server.envelopes.model import (
    MEMORY_TIER_SESSION,
    MEMORY_TIER_STORE,
    MEMORY_TIER_WARM,
    MEMORY_TIER_WINDOW,
    SCORE_DIGITS,
    Candidate,
    FoundBy,
)
from drillcore_server.envelopes.request import EnvelopeReads
from drillcore_server.envelopes.scoring_policy import fused_relevance
from drillcore_server.envelopes.settings import FUSED
from drillcore_server.facts.filters import FilteredSearch, allowed, candidates, growing_batches
from drillcore_server.facts.lexical.lexical_index import LexicalIndex
from drillcore_server.facts.lexical.relevance import WordShares
from drillcore_server.facts.model import Fact, FactStatus
from drillcore_server.facts.session_fact_store import SessionFact
from drillcore_server.facts.session_facts import question_for_session_fact
from drillcore_server.facts.store import FactReader
from drillcore_server.facts.words import question
from drillcore_server.hierarchy.search_text import SoughtTexts
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.storage.ids import CommunityId, FactId, NodeId
from drillcore_server.vectors.corpus_models import embeddings_of
from drillcore_server.vectors.embedding.embedders import Vector
from drillcore_server.vectors.model import Model
from drillcore_server.vectors.stored_vectors import unpacked
from drillcore_server.vectors.vector_index import VectorIndex
from drillcore_server.vectors.vector_log import Labels

T = TypeVar("T")


class SoughtFacts(SoughtTexts):
    """The texts and filters of one call's search.

    The search starts again if a corpus needs a further embedding model, or if the filters reject too many facts.
    """

    def __init__(self, reads: EnvelopeReads, plan: EnvelopePlan, *, at_once: bool = True) -> None:
        super().__init__(reads.facts.embedders, plan.sought, at_once=at_once)
        self.filtered = FilteredSearch(reads.facts, plan.filters)

    def run(self, search: Callable[[], T]) -> T:
        return super().run(lambda: self.filtered.run(search))


SECTIONS_MAX: Final = 5
"""The sections that are searched for each sub-query."""
SECTIONS_CONSIDERED: Final = 20
"""The sections with the nearest centroids, from which the best are chosen by their summaries too."""
SECTION_FACTS_MAX: Final = 10
"""The facts that each sub-query takes from one section."""
FEW_CANDIDATES_BELOW: Final = 3
"""A community with fewer candidates than this is searched again."""
COMMUNITY_NEAR_MIN: Final = 10
"""A community is worth that only if this many of its facts are near. At most this many are added."""
COMMUNITIES_MAX: Final = 20
"""The communities that are searched again, those of the best candidates first."""
WORDS_FACTOR: Final = 4
"""This many times as many candidates by words as by vectors: words distinguish facts whose vectors are similar."""
WORDS_MAX: Final = 1_000
READ_MAX: Final = 1_000
"""Facts that are read from the store together."""
FACT_TOKENS: Final = 20
"""The size of a short fact. Words lead to enough candidates to fill the budget with such facts."""
_SEARCHES: Final = tuple(FoundBy)


@dataclass(frozen=True, slots=True)
class Selection:
    candidates: tuple[Candidate, ...]
    exact: bool
    """Whether every vector was compared, instead of following a graph."""


@dataclass(frozen=True, slots=True)
class SessionMemory:
    """What the session contributes: its own facts, the communities that it used, and facts left from before."""

    facts: Sequence[SessionFact] = ()
    warm: frozenset[CommunityId] = frozenset()
    deferred: frozenset[FactId] = frozenset()
    """Facts that the window before had no tokens for."""


def select(
    reads: EnvelopeReads,
    views: Sequence[CorpusAtRevision],
    plan: EnvelopePlan,
    sought: SoughtFacts,
    memory: SessionMemory,
    now: datetime,
) -> Selection:
    """Returns the candidates of all corpora and of the session, each once, in the order of their ids.

    Tenants that share corpora may have chosen the same id for two facts. Then the session's fact is taken, or else the
    fact of the corpus with the smaller id.
    """
    found: list[Candidate] = []
    exact = True
    for view in views if plan.memory_tier_max >= MEMORY_TIER_SESSION else ():
        found += _in_session(view, plan, sought, memory, now)
        embeddings = embeddings_of(view) if plan.memory_tier_max >= MEMORY_TIER_WARM else None
        if embeddings is not None:
            model = embeddings.current.model
            vectors = sought.of(view.corpus.id, model)
            search = _CorpusSearch(reads, view, model, plan, memory, now, vectors, sought.filtered)
            found += search.candidates()
            exact = exact and (plan.exact or search.index.is_exact)
    # In reverse, so that of several candidates of one id the preferred one comes last and replaces the others.
    last_first = sorted(found, key=lambda fact: (fact.id.int, not fact.session_only, fact.corpus.int), reverse=True)
    return Selection(tuple(reversed({fact.id: fact for fact in last_first}.values())), exact)


def _words_count(plan: EnvelopePlan) -> int:
    """Returns how many candidates to find by words, for each text."""
    return min(max(WORDS_FACTOR * plan.per_query, plan.budget.tokens // FACT_TOKENS), WORDS_MAX)


@dataclass(frozen=True, slots=True)
class _Search:
    """What one search found, best first."""

    by: FoundBy
    first: Sequence[FactId]
    """Those that are wanted if all of them may be packed."""
    others: Iterator[FactId] = field(default_factory=lambda: iter(()))
    """Those that take their place otherwise."""
    at_most: int | None = None


@dataclass(slots=True)
class _CorpusSearch:
    """Finds the candidates of one corpus."""

    reads: EnvelopeReads
    view: CorpusAtRevision
    model: Model
    plan: EnvelopePlan
    memory: SessionMemory
    now: datetime
    vectors: Sequence[Vector]
    """The vectors of the texts to search for; that of the whole question comes last."""
    filtered: FilteredSearch
    index: VectorIndex[FactId] = field(init=False)
    words: LexicalIndex = field(init=False)
    _facts: dict[FactId, Fact | None] = field(default_factory=dict)
    """Facts that were looked at; None for those that the filters reject."""
    _stored: dict[FactId, Fact | None] = field(default_factory=dict)
    """Facts as they were read from the store, ahead of being looked at."""
    _rejected: int = 0
    _found_by: dict[FactId, list[FoundBy]] = field(default_factory=dict)
    _last_shares: tuple[str, WordShares] | None = None
    _relevances: dict[FactId, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.index = self.reads.facts.indexes.at(self.view)
        self.words = self.reads.words.at(self.view)

    def candidates(self) -> Iterator[Candidate]:
        among = self._among()
        searches = [_Search(FoundBy.DEFERRED, [fact for fact in sorted(self.memory.deferred) if fact in self.index])]
        if among is None or among:
            searches += self._searches(among)
        self._read([fact for search in searches for fact in search.first])
        for search in searches:
            self._note(search.by, self._passing(search))
        if among is None or among:
            near = list(self._of_communities(among))
            self._read(near)
            self._note(FoundBy.COMMUNITY, self._passing(_Search(FoundBy.COMMUNITY, near)))
        return self._scored()

    def _searches(self, among: Set[FactId] | None) -> Iterator[_Search]:
        """Yields what vectors, words and sections find for each text, without reading any fact."""
        sections = [self._sections(vector) for vector in self.vectors]
        chunks = self._chunks([section for found in sections for section in found])
        for text, vector, best in zip(self.plan.sought, self.vectors, sections, strict=True):
            ranking = (fact for fact, _ in self.index.ranking(vector, among, exact=self.plan.exact))
            yield _Search(FoundBy.VECTORS, list(islice(ranking, self.plan.per_query)), ranking, self.plan.per_query)
            matching = self.words.ranking(self._shares(text), _words_count(self.plan), among)
            yield _Search(FoundBy.WORDS, [fact for fact, _ in matching])
            yield _Search(FoundBy.SECTIONS, list(self._of_sections(vector, [chunks[id_] for id_ in best], among)))

    def _shares(self, text: str) -> WordShares:
        """Returns the word shares of all facts for a text. Keeps the last, since the whole question is needed twice: to
        find facts, and to score them."""
        if self._last_shares is None or self._last_shares[0] != text:
            self._last_shares = text, self.words.shares(question(text))
        return self._last_shares[1]

    def _among(self) -> Set[FactId] | None:
        """Returns the facts that filters and memory tier may allow, as far as indexes can tell; None if all facts."""
        indexed = candidates(self.reads.facts, self.view, self.plan.filters)
        narrowed = self.filtered.among(self.view, indexed)
        if self.plan.memory_tier_max >= MEMORY_TIER_STORE:
            return narrowed
        known = self._memberships
        warm = {fact for community in self.memory.warm for fact in known.members(community)}
        return warm if narrowed is None else warm & narrowed

    def _passing(self, search: _Search) -> Iterator[FactId]:
        """Yields the facts of a search that may be packed, as many as are wanted. Reads further ones as needed."""
        found = chain(search.first, self._read_further(search))
        return islice((fact for fact in found if self._fact(fact) is not None), search.at_most)

    def _read_further(self, search: _Search) -> Iterator[FactId]:
        for batch in growing_batches(search.others, search.at_most or 1):
            self._read(batch)
            yield from batch

    def _read(self, ids: Iterable[FactId]) -> None:
        """Reads facts from the store together, except those that were read before."""
        unread = [fact for fact in dict.fromkeys(ids) if fact not in self._stored]
        for start in range(0, len(unread), READ_MAX):
            batch = unread[start : start + READ_MAX]
            self._stored |= zip(batch, FactReader(self.view).facts_unless_erased(batch), strict=True)

    def _fact(self, fact_id: FactId) -> Fact | None:
        """Returns a fact at this revision; None if it may not be packed, by its status or by the filters."""
        try:
            return self._facts[fact_id]
        except KeyError:
            fact = self._stored[fact_id]
            if fact is None or not fact.is_searched or not self._passes(fact):
                fact = None
                self._rejected += 1
                self.filtered.check(self.view, self._rejected)
            return self._facts.setdefault(fact_id, fact)

    def _passes(self, fact: Fact) -> bool:
        return allowed(self.reads.facts, self.view, self.plan.filters, fact)

    def _note(self, by: FoundBy, found: Iterable[FactId]) -> None:
        for fact in found:
            self._found_by.setdefault(fact, []).append(by)

    def _chunks(self, sections: Sequence[NodeId]) -> Mapping[NodeId, Sequence[NodeId]]:
        """Returns the chunks of each section, read together."""
        ids = list(dict.fromkeys(sections))
        return dict(zip(ids, HierarchyReader(self.view).chunks_of_each(ids), strict=True))

    def _of_sections(
        self, vector: Vector, sections: Sequence[Sequence[NodeId]], among: Set[FactId] | None
    ) -> Iterator[FactId]:
        """Yields the best facts of each of these sections, given by their chunks."""
        for chunks in sections:
            facts = set(self.words.facts_of(chunks))
            own = facts if among is None else facts & among
            yield from (fact for fact, _ in self.index.search(vector, SECTION_FACTS_MAX, own, exact=True))

    def _sections(self, vector: Vector) -> list[NodeId]:
        """Returns the best sections by their centroid or their summary, whichever is nearer."""
        near = self.reads.sections.at(self.view).search(vector, SECTIONS_CONSIDERED)
        if not near:
            return []
        chunks = self.reads.chunks.at(self.view)
        scored = [(max(score, self._summary_score(section, vector, chunks)), section) for section, score in near]
        return [section for _, section in sorted(scored, key=lambda pair: (-pair[0], pair[1]))[:SECTIONS_MAX]]

    def _summary_score(self, section: NodeId, vector: Vector, chunks: VectorIndex[NodeId]) -> float:
        """Returns the cosine with the chunks that the section's summary was made from."""
        passages = self.reads.sections.passages(self.view, section)
        present = [chunk for chunk in dict.fromkeys(passages) if chunk in chunks]
        if not present:
            return -1.0
        total = chunks.rows(present).sum(axis=0)
        return round(float(total @ vector / max(float(np.linalg.norm(total)), 1e-12)), SCORE_DIGITS)

    def _of_communities(self, among: Set[FactId] | None) -> Iterator[FactId]:
        """Yields more facts of communities that have few candidates although many of their facts are near."""
        members = self._memberships.labels_in(self.index, self._communities_with_few())
        if among is not None:
            allowed_labels = self.index.labels([fact.bytes for fact in among])
            members = [np.intersect1d(labels, allowed_labels, assume_unique=True) for labels in members]
        return self._near([labels for labels in members if len(labels) >= COMMUNITY_NEAR_MIN])

    def _communities_with_few(self) -> list[CommunityId]:
        """Returns the communities with few candidates; if too many, those whose best candidate is most relevant."""
        found = {fact: community for fact, community in self._by_community() if community is not None}
        counts = Counter(found.values())
        few = {fact: community for fact, community in found.items() if counts[community] < FEW_CANDIDATES_BELOW}
        if len(set(few.values())) <= COMMUNITIES_MAX:
            return sorted(set(few.values()))
        relevance = self._relevance(list(few))
        best: dict[CommunityId, float] = {}
        for fact, community in few.items():
            best[community] = max(best.get(community, 0.0), relevance[fact])
        return sorted(best, key=lambda community: (-best[community], community))[:COMMUNITIES_MAX]

    def _by_community(self) -> Iterator[tuple[FactId, CommunityId | None]]:
        """Yields each candidate so far with its community."""
        ids = [fact for fact in self._found_by if self._fact(fact) is not None]
        return zip(ids, self._memberships.communities_of(ids), strict=True)

    def _near(self, groups: Sequence[Labels]) -> Iterator[FactId]:
        """Yields the nearest facts of each group that has enough near facts. Compares all groups at once."""
        if not groups:
            return
        every = np.sort(np.concatenate(groups))
        for vector in self.vectors:
            cosines = self.index.cosines(vector, every)
            for labels in groups:
                scores = cosines[np.searchsorted(every, labels)]
                if np.count_nonzero(scores >= self.plan.relevance_floor) >= COMMUNITY_NEAR_MIN:
                    yield from (fact for fact, _ in self.index.best((scores, labels), COMMUNITY_NEAR_MIN))

    def _scored(self) -> Iterator[Candidate]:
        ids = sorted((fact for fact in self._found_by if self._fact(fact) is not None), key=attrgetter("int"))
        if not ids:
            return
        relevance, rows = self._relevance(ids), self.index.rows(ids)
        communities = self._memberships.communities_of(ids)
        labels = self._labels(communities)
        for fact_id, row, community in zip(ids, rows, communities, strict=True):
            fact = self._fact(fact_id)
            assert fact is not None
            label = "" if community is None else labels[community]
            found_by = self._found_by[fact_id]
            yield Candidate(
                id=fact_id,
                corpus=self.view.corpus.id,
                content=fact.content,
                source=fact.source,
                importance=fact.importance,
                ingested_at=fact.ingested_at,
                relevance=relevance[fact_id],
                vector=row,
                model=self.model.name,
                stale=is_stale(fact, self.plan, self.now),
                community=community if label else None,
                community_label=label,
                found_by=tuple([search for search in _SEARCHES if search in found_by]),
                memory_tier=self._tier(fact_id, community if label else None),
                version=fact.version,
                document=fact.document,
                lead=lead_of(fact),
                fact=fact,
            )

    def _relevance(self, ids: Sequence[FactId]) -> Mapping[FactId, float]:
        """Returns the relevance of at least these facts. The relevance of a fact does not depend on other facts."""
        if missing := [fact for fact in ids if fact not in self._relevances]:
            self._relevances |= self._computed_relevance(missing)
        return self._relevances

    def _computed_relevance(self, ids: Sequence[FactId]) -> Mapping[FactId, float]:
        """Computes relevance by the scoring policy: for the whole question, or the best cosine with a sub-query."""
        if self.plan.policy == FUSED:
            chunks = self.reads.chunks.at(self.view)
            asked, shares = question(self.plan.query), self._shares(self.plan.query)
            return fused_relevance(self.words, self.index, chunks, asked, self.vectors[-1], ids, shares)
        cosines: dict[FactId, float] = dict.fromkeys(ids, 0.0)
        for vector in self.vectors:
            for fact, score in self.index.search(vector, len(ids), ids, exact=True):
                cosines[fact] = max(cosines[fact], score)
        return {fact: min(score, 1.0) for fact, score in cosines.items()}

    def _labels(self, communities: Iterable[CommunityId | None]) -> Mapping[CommunityId, str]:
        """Returns the labels of communities; empty for a label whose words were erased."""
        known = sorted({community for community in communities if community is not None})
        return {
            community: "" if found is None else found.label
            for community, found in zip(known, CommunityReader(self.view).communities(known), strict=True)
        }

    def _tier(self, fact: FactId, community: CommunityId | None) -> int:
        """Returns the lowest memory tier that has the fact."""
        if fact in self.plan.window_facts:
            return MEMORY_TIER_WINDOW
        if fact in self.memory.deferred:
            return MEMORY_TIER_SESSION
        return MEMORY_TIER_WARM if community in self.memory.warm else MEMORY_TIER_STORE

    @property
    def _memberships(self) -> Memberships:
        return self.reads.communities.at(self.view)


def _in_session(
    view: CorpusAtRevision, plan: EnvelopePlan, sought: SoughtFacts, memory: SessionMemory, now: datetime
) -> Iterator[Candidate]:
    """Yields the session's own facts that were put beside a corpus and that the filters allow."""
    for session_fact in memory.facts:
        if session_fact.corpus == view.corpus.id and plan.filters.allows(session_fact.fact, None):
            vector = unpacked(session_fact.vector)
            yield Candidate(
                id=session_fact.fact.id,
                corpus=session_fact.corpus,
                content=session_fact.fact.content,
                source=session_fact.fact.source,
                importance=session_fact.fact.importance,
                ingested_at=session_fact.fact.ingested_at,
                relevance=_cosine(session_fact, vector, sought),
                vector=vector,
                model=session_fact.fact.embedding_model,
                stale=is_stale(session_fact.fact, plan, now),
                found_by=(FoundBy.SESSION,),
                memory_tier=MEMORY_TIER_WINDOW if session_fact.fact.id in plan.window_facts else MEMORY_TIER_SESSION,
                version=session_fact.fact.version,
                session_only=True,
                fact=session_fact.fact,
            )


def _cosine(session_fact: SessionFact, vector: Vector, sought: SoughtFacts) -> float:
    compared = question_for_session_fact(session_fact.fact, session_fact.corpus, len(vector), sought.of)
    return max(0.0, min(1.0, round(max(float(vector @ text) for text in compared), SCORE_DIGITS)))


def is_stale(fact: Fact, plan: EnvelopePlan, now: datetime) -> bool:
    return fact.status is FactStatus.STALE or (plan.max_age is not None and fact.age(now) > plan.max_age)
