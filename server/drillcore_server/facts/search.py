"""SearchFacts."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Final

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.facts import counters
from drillcore_server.facts.cache_directives import CacheDirectives
from drillcore_server.facts.filters import Narrowing, allowed, candidates
from drillcore_server.facts.index import FactIndex, FactIndexes
from drillcore_server.facts.model import FOUND, Fact, FactFilters, FactStatus, FoundFact
from drillcore_server.facts.reader import FactReads, check_count
from drillcore_server.facts.session_facts import beside_session
from drillcore_server.facts.session_store import OwnSession, SessionFact
from drillcore_server.facts.store import FactReader
from drillcore_server.hierarchy.chunk_index import unpacked
from drillcore_server.hierarchy.search_text import Sought, SoughtText, SoughtVector
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.accounts import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusAtRevision
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Notes
from drillcore_server.storage.ids import CorpusId, FactId, Revision, TenantId
from drillcore_server.vectors.model import Embeddings
from drillcore_server.vectors.store import embeddings_of

LIMIT_DEFAULT: Final = 10
LIMIT_MAX: Final = 1_000
TEXT_CHARACTERS_MAX: Final = 10_000
SCORE_DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class FactQuestion:
    corpora: tuple[CorpusId, ...]
    text: str
    vector: tuple[float, ...]
    """Instead of a text: searches by this, which `embedding_model` made."""
    embedding_model: str
    filters: FactFilters
    limit: int
    exact: bool
    as_of: AsOf
    with_embedding: bool = False
    directives: CacheDirectives = CacheDirectives()  # noqa: RUF009 - it is frozen
    session: str = ""
    """The caller's session whose facts are searched too, unless an earlier moment is asked for."""

    @property
    def has_session(self) -> bool:
        return bool(self.session) and self.as_of == AsOf()


@dataclass(frozen=True, slots=True)
class FactHit:
    found: FoundFact
    score: float
    stale: bool


@dataclass(frozen=True, slots=True)
class FactHits:
    hits: Sequence[FactHit]
    revisions: Mapping[CorpusId, Revision]
    exact: bool


@dataclass(frozen=True)
class _Searched:
    """A corpus that is searched."""

    view: CorpusAtRevision
    indexes: FactIndexes

    @cached_property
    def embeddings(self) -> Embeddings | None:
        return embeddings_of(self.view)

    @cached_property
    def index(self) -> FactIndex | None:
        """None before it has vectors. Asked for once: that of an earlier moment may have to be read for it."""
        return None if self.embeddings is None else self.indexes.at(self.view)

    @property
    def is_exact(self) -> bool:
        return self.index is None or self.index.is_exact


@dataclass(frozen=True, slots=True)
class _Candidate:
    fact: Fact
    score: float
    where: CorpusAtRevision | SessionFact
    """The corpus that it is in, or that it is in the session."""

    @property
    def order(self) -> tuple[float, FactId]:
        return -self.score, self.fact.id


def search_facts(reads: FactReads, call: Call, *, tenant: TenantId | None, question: FactQuestion) -> FactHits:
    """The facts nearest in meaning that the filters allow, best first; scores are cosines, ties go to the smaller id.

    What is found was found in the store at the same moment: an index only says where to look.
    """
    _check(question)
    sought, narrowing = _sought(reads, question), Narrowing(reads, question.filters)

    def work(tr: Reader, granted: InTenant, trail: Trail, notes: Notes) -> FactHits:
        if question.text:
            trail.private["query"] = question.text
        views = reads.at_each(tr, granted, trail, question.corpora, question.as_of)
        searched = [_Searched(view, reads.indexes) for view in views]
        stored = _stored(reads, searched, question, sought, narrowing)
        own = OwnSession(granted.tenant, call.principal.id, question.session)
        kept = reads.sessions.found(tr, own, trail, notes, call.at) if question.has_session else []
        best = heapq.merge(stored, _in_session(kept, views, question, sought), key=lambda one: one.order)
        hits = _hits(reads, trail, notes, call, question, list(islice(best, question.limit or LIMIT_DEFAULT)))
        _check_size(hits, reads.unit.page_bytes_max)
        exact = question.exact or all(one.is_exact for one in searched)
        return FactHits(hits, {view.corpus.id: view.revision for view in views}, exact)

    def search() -> FactHits:
        return reads.unit.read_with_notes(call, access.in_tenant(tenant, Permission.READ), work)

    return sought.run(lambda: narrowing.run(search))


def _check(question: FactQuestion) -> None:
    check_count(question.corpora)
    if bool(question.text.strip()) == bool(question.vector):
        raise BadInput(Reason.INVALID_ARGUMENT, "search by a text or by a vector", field="text")
    if len(question.text) > TEXT_CHARACTERS_MAX:
        raise BadInput(Reason.TOO_LARGE, f"text has over {TEXT_CHARACTERS_MAX} characters", field="text")
    if bool(question.vector) != bool(question.embedding_model):
        message = "a vector comes with the name of the model that made it, and a model's name with a vector"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="embedding_model")
    if question.limit > LIMIT_MAX:
        raise BadInput(Reason.INVALID_ARGUMENT, f"at most {LIMIT_MAX} facts are found at once", field="limit")
    if not question.filters.statuses <= FOUND:
        raise BadInput(Reason.INVALID_ARGUMENT, "a search finds only active and stale facts", field="filters")
    if question.as_of.revision is not None and len(question.corpora) != 1:
        raise BadInput(Reason.INVALID_ARGUMENT, "a revision is of one corpus: name just that one", field="as_of")


def _sought(reads: FactReads, question: FactQuestion) -> Sought:
    if question.vector:
        return SoughtVector(question.vector, question.embedding_model)
    return SoughtText(reads.embedders, question.text)


def _stored(
    reads: FactReads, searched: Sequence[_Searched], question: FactQuestion, sought: Sought, narrowing: Narrowing
) -> Iterator[_Candidate]:
    """Those of the corpora, best first. Raises `Missing` if there must be a relevant one and there is none."""
    rankings = [_ranking(reads, one, question, sought, narrowing) for one in searched]
    found = heapq.merge(*rankings, key=lambda one: one.order)
    first = next(found, None)
    question.directives.check_relevant(None if first is None else first.score)
    return found if first is None else chain([first], found)


def _in_session(
    kept: Sequence[SessionFact], views: Sequence[CorpusAtRevision], question: FactQuestion, sought: Sought
) -> list[_Candidate]:
    """Those of the session that were put beside one of the corpora, best first."""
    searched = {view.corpus.id for view in views}
    allowed = [one for one in kept if one.corpus in searched and question.filters.allows(one.fact, None)]
    return sorted((_Candidate(one.fact, _score(one, sought), one) for one in allowed), key=lambda one: one.order)


def _score(one: SessionFact, sought: Sought) -> float:
    vector = unpacked(one.vector)
    compared = beside_session(one.fact, one.corpus, len(vector), sought.of)
    return round(float(vector @ compared), SCORE_DIGITS)


def _ranking(
    reads: FactReads, searched: _Searched, question: FactQuestion, sought: Sought, narrowing: Narrowing
) -> Iterator[_Candidate]:
    """The facts of one corpus, best first, each read from the store. More are looked for only if they are asked for."""
    view = searched.view
    if searched.embeddings is None:
        return
    vector = sought.of(view.corpus.id, searched.embeddings.current.model)
    index = searched.index
    assert index is not None
    facts, narrowed = FactReader(view), narrowing.among(view, candidates(reads, view, question.filters))
    tried = 0
    for one, score in index.ranking(vector, narrowed, exact=question.exact):
        fact = facts.fact_left(one)
        if fact is not None and fact.is_searched and allowed(reads, view, question.filters, fact):
            yield _Candidate(fact, score, view)
        else:
            tried += 1
            narrowing.check(view, tried)


def _hits(
    reads: FactReads, trail: Trail, notes: Notes, call: Call, question: FactQuestion, best: Sequence[_Candidate]
) -> list[FactHit]:
    """In the same order; those of a corpus are told together."""
    found: dict[int, FoundFact] = {}
    for view in {id(one.where): one.where for one in best if isinstance(one.where, CorpusAtRevision)}.values():
        places = [place for place, one in enumerate(best) if one.where is view]
        facts = [best[place].fact for place in places]
        trail.touch_facts(facts, view.corpus.number)
        counters.note_later(notes, view.keys, (fact.id for fact in facts), call.at)
        found |= zip(places, reads.told(view, facts, with_embedding=question.with_embedding), strict=True)
    for place, one in enumerate(best):
        if isinstance(one.where, SessionFact):
            found[place] = reads.sessions.told(one.where, with_embedding=question.with_embedding)
    return [FactHit(found[place], one.score, _is_stale(one.fact, call, question)) for place, one in enumerate(best)]


def _is_stale(fact: Fact, call: Call, question: FactQuestion) -> bool:
    return fact.status is FactStatus.STALE or question.directives.is_too_old(fact.age(call.at))


def _check_size(hits: Sequence[FactHit], size_bytes_max: int) -> None:
    if sum(one.found.size_bytes for one in hits) > size_bytes_max:
        raise BadInput(Reason.TOO_LARGE, "these facts do not fit into one answer; ask for fewer", field="limit")
