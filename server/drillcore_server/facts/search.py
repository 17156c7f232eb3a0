"""SearchFacts: the facts nearest in meaning to a text or a vector, from corpora and the caller's session."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Final

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.facts.cache_directives import CacheDirectives
from drillcore_server.facts.fact_reads import FactReads, check_corpora
from drillcore_server.facts.filters import FilteredSearch, allowed, candidates, growing_batches
from drillcore_server.facts.index import FactIndex, FactIndexes
from drillcore_server.facts.model import SEARCHED_STATUSES, Fact, FactFilters, FactStatus, FoundFact
from drillcore_server.facts.session_fact_store import OwnSession, SessionFact, head_key
from drillcore_server.facts.session_facts import found_session_fact, question_for_session_fact
from drillcore_server.facts.store import FactReader, note_accesses_later
from drillcore_server.hierarchy.search_text import Sought, SoughtText, SoughtVector
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusAtRevision
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Notes
from drillcore_server.storage.ids import CorpusId, FactId, Revision, TenantId
from drillcore_server.vectors.corpus_models import embeddings_of
from drillcore_server.vectors.model import Embeddings
from drillcore_server.vectors.stored_vectors import unpacked

LIMIT_DEFAULT: Final = 10
LIMIT_MAX: Final = 1_000
TEXT_CHARACTERS_MAX: Final = 10_000
SCORE_DIGITS: Final = 6
_FILTERED_FACTOR: Final = 8
"""With a filter that no index knows, so many times as many facts are read first: it rejects most of them."""


@dataclass(frozen=True, slots=True)
class FactQuestion:
    corpora: tuple[CorpusId, ...]
    text: str
    vector: tuple[float, ...]
    """Searches by this vector instead of a text. `embedding_model` made it."""
    embedding_model: str
    filters: FactFilters
    limit: int
    exact: bool
    as_of: AsOf
    with_embedding: bool = False
    directives: CacheDirectives = CacheDirectives()  # noqa: RUF009 - it is frozen
    session: str = ""
    """The caller's session. Its facts are searched too, unless the search is as of an earlier moment."""

    @property
    def has_session(self) -> bool:
        return bool(self.session) and self.as_of == AsOf()


@dataclass(frozen=True, slots=True)
class FactHit:
    found: FoundFact
    score: float
    stale: bool
    """Whether its status is STALE, or it is older than max-age."""


@dataclass(frozen=True, slots=True)
class FactHits:
    hits: Sequence[FactHit]
    revisions: Mapping[CorpusId, Revision]
    exact: bool


@dataclass(frozen=True)
class _Searched:
    """A corpus that is being searched."""

    view: CorpusAtRevision
    indexes: FactIndexes

    @cached_property
    def embeddings(self) -> Embeddings | None:
        return embeddings_of(self.view)

    @cached_property
    def index(self) -> FactIndex | None:
        """The index; None if the corpus has no vectors. Cached: the index of an earlier moment may have to be read."""
        return None if self.embeddings is None else self.indexes.at(self.view)

    @property
    def is_exact(self) -> bool:
        return self.index is None or self.index.is_exact


@dataclass(frozen=True, slots=True)
class _Candidate:
    fact: Fact
    score: float
    where: CorpusAtRevision | SessionFact
    """Its corpus, or its record in the session."""

    @property
    def order(self) -> tuple[float, FactId]:
        return -self.score, self.fact.id


def search_facts(reads: FactReads, call: Call, *, tenant: TenantId | None, question: FactQuestion) -> FactHits:
    """The facts nearest in meaning that the filters allow, best first. Scores are cosines; ties go to the smaller id.

    The index only selects candidates: each is read from the store at the revision of the search. Raises `Refused`.
    """
    _check(question)
    sought, filtered = _sought(reads, question), FilteredSearch(reads, question.filters)

    def work(tr: Reader, granted: InTenant, trail: Trail, notes: Notes) -> FactHits:
        if question.text:
            trail.private["query"] = question.text
        views = reads.at_each(tr, granted, trail, question.corpora, question.as_of)
        searched = [_Searched(view, reads.indexes) for view in views]
        stored = _stored(reads, searched, question, sought, filtered)
        own = OwnSession(granted.tenant, call.principal.id, question.session)
        kept = reads.sessions.found(tr, own, trail, notes, call.at) if question.has_session else []
        best = heapq.merge(stored, _in_session(kept, views, question, sought), key=lambda candidate: candidate.order)
        hits = _hits(reads, trail, notes, call, question, list(islice(best, question.limit or LIMIT_DEFAULT)))
        _check_size(hits, reads.unit.page_bytes_max)
        exact = question.exact or all(corpus.is_exact for corpus in searched)
        return FactHits(hits, {view.corpus.id: view.revision for view in views}, exact)

    owner = call.principal.tenant or tenant
    expected = [] if owner is None or not question.has_session else [_session_key(reads, owner, call, question)]

    def search() -> FactHits:
        return reads.unit.read_with_notes(call, access.in_tenant(tenant, Permission.READ), work, expected=expected)

    return sought.run(lambda: filtered.run(search))


def _session_key(reads: FactReads, tenant: TenantId, call: Call, question: FactQuestion) -> bytes:
    return head_key(reads.unit.keys, OwnSession(tenant, call.principal.id, question.session))


def _check(question: FactQuestion) -> None:
    check_corpora(question.corpora)
    if bool(question.text.strip()) == bool(question.vector):
        raise BadInput(Reason.INVALID_ARGUMENT, "give either text or vector to search by", field="text")
    if len(question.text) > TEXT_CHARACTERS_MAX:
        raise BadInput(Reason.TOO_LARGE, f"text must have at most {TEXT_CHARACTERS_MAX} characters", field="text")
    if bool(question.vector) != bool(question.embedding_model):
        message = "give vector and embedding_model, the name of the model that made it, together"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="embedding_model")
    if question.limit > LIMIT_MAX:
        raise BadInput(Reason.INVALID_ARGUMENT, f"limit must be at most {LIMIT_MAX}", field="limit")
    if not question.filters.statuses <= SEARCHED_STATUSES:
        message = "a search finds only active and stale facts; remove other statuses from the filters"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="filters")
    if question.as_of.revision is not None and len(question.corpora) != 1:
        message = "as_of names a revision, which belongs to one corpus; name exactly that corpus in corpus_ids"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="as_of")


def _sought(reads: FactReads, question: FactQuestion) -> Sought:
    if question.vector:
        return SoughtVector(question.vector, question.embedding_model)
    return SoughtText(reads.embedders, question.text)


def _stored(
    reads: FactReads, searched: Sequence[_Searched], question: FactQuestion, sought: Sought, filtered: FilteredSearch
) -> Iterator[_Candidate]:
    """Candidates from the corpora, best first. Raises `Missing` for only-if-ckf without a relevant fact."""
    rankings = [_ranking(reads, corpus, question, sought, filtered) for corpus in searched]
    found = heapq.merge(*rankings, key=lambda candidate: candidate.order)
    first = next(found, None)
    question.directives.check_relevant(None if first is None else first.score)
    return found if first is None else chain([first], found)


def _in_session(
    kept: Sequence[SessionFact], views: Sequence[CorpusAtRevision], question: FactQuestion, sought: Sought
) -> list[_Candidate]:
    """Candidates from the session that belong to one of the corpora, best first."""
    searched = {view.corpus.id for view in views}
    matching = [own for own in kept if own.corpus in searched and question.filters.allows(own.fact, None)]
    scored = (_Candidate(own.fact, _score(own, sought), own) for own in matching)
    return sorted(scored, key=lambda candidate: candidate.order)


def _score(own: SessionFact, sought: Sought) -> float:
    vector = unpacked(own.vector)
    compared = question_for_session_fact(own.fact, own.corpus, len(vector), sought.of)
    return round(float(vector @ compared), SCORE_DIGITS)


def _ranking(
    reads: FactReads, searched: _Searched, question: FactQuestion, sought: Sought, filtered: FilteredSearch
) -> Iterator[_Candidate]:
    """The facts of one corpus, best first, each read from the store. Searches further only as they are consumed."""
    view = searched.view
    if searched.embeddings is None:
        return
    vector = sought.of(view.corpus.id, searched.embeddings.current.model)
    index = searched.index
    assert index is not None
    facts, among = FactReader(view), filtered.among(view, candidates(reads, view, question.filters))
    tried = 0
    ranking = index.ranking(vector, among, exact=question.exact)
    first = (question.limit or LIMIT_DEFAULT) * (_FILTERED_FACTOR if question.filters.is_beyond_indexes else 1)
    for (_, score), fact in _read_in_batches(facts, ranking, first):
        if fact is not None and fact.is_searched and allowed(reads, view, question.filters, fact):
            yield _Candidate(fact, score, view)
        else:
            tried += 1
            filtered.check(view, tried)


def _read_in_batches(
    facts: FactReader, ranking: Iterator[tuple[FactId, float]], count: int
) -> Iterator[tuple[tuple[FactId, float], Fact | None]]:
    """The ranking with the facts. The first `count` are read together: as many as are needed if all are allowed."""
    for batch in growing_batches(ranking, count):
        yield from zip(batch, facts.facts_unless_erased([id_ for id_, _ in batch]), strict=True)


def _hits(
    reads: FactReads, trail: Trail, notes: Notes, call: Call, question: FactQuestion, best: Sequence[_Candidate]
) -> list[FactHit]:
    """The best candidates as hits, in the same order. Counts their accesses."""
    found: dict[int, FoundFact] = {}
    for view in {id(hit.where): hit.where for hit in best if isinstance(hit.where, CorpusAtRevision)}.values():
        places = [place for place, candidate in enumerate(best) if candidate.where is view]
        facts = [best[place].fact for place in places]
        trail.touch_facts(facts, view.corpus.number)
        note_accesses_later(notes, view.keys, (fact.id for fact in facts), call.at)
        found |= zip(places, reads.found_facts(view, facts, with_embedding=question.with_embedding), strict=True)
    for place, candidate in enumerate(best):
        if isinstance(candidate.where, SessionFact):
            found[place] = found_session_fact(candidate.where, with_embedding=question.with_embedding)
    return [
        FactHit(found[place], candidate.score, _is_stale(candidate.fact, call, question))
        for place, candidate in enumerate(best)
    ]


def _is_stale(fact: Fact, call: Call, question: FactQuestion) -> bool:
    return fact.status is FactStatus.STALE or question.directives.is_too_old(fact.age(call.at))


def _check_size(hits: Sequence[FactHit], size_bytes_max: int) -> None:
    if sum(hit.found.size_bytes for hit in hits) > size_bytes_max:
        raise BadInput(Reason.TOO_LARGE, "these facts do not fit into one answer; lower limit", field="limit")
