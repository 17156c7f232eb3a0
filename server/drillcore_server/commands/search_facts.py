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
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.fact_library import FactLibrary, check_count
from drillcore_server.commands.fact_narrowing import Narrowing
from drillcore_server.commands.fact_selecting import allowed, candidates
from drillcore_server.commands.seeking import Sought, SoughtText, SoughtVector, beside_session
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Shelf
from drillcore_server.derived.fact_index import FactIndex, FactIndexes
from drillcore_server.derived.vectors import unpacked
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.cache_directives import CacheDirectives
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.fact_sessions import OwnSession, SessionFact
from drillcore_server.domain.facts import FOUND, Fact, FactStatus
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.found_facts import FactFilters, FoundFact
from drillcore_server.domain.ids import CorpusId, FactId, Revision, TenantId
from drillcore_server.store.facts import FactsView

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

    shelf: Shelf
    indexes: FactIndexes

    @cached_property
    def index(self) -> FactIndex | None:
        """None before it has vectors. Asked for once: that of an earlier moment may have to be read for it."""
        if self.shelf.embeddings is None:
            return None
        return self.indexes.at(self.shelf.corpus.number, self.shelf.view)

    @property
    def is_exact(self) -> bool:
        return self.index is None or self.index.is_exact


@dataclass(frozen=True, slots=True)
class _Candidate:
    fact: Fact
    score: float
    where: Shelf | SessionFact
    """The corpus that it is in, or that it is in the session."""

    @property
    def order(self) -> tuple[float, FactId]:
        return -self.score, self.fact.id


def search_facts(library: FactLibrary, call: Call, *, tenant: TenantId | None, question: FactQuestion) -> FactHits:
    """The facts nearest in meaning that the filters allow, best first; scores are cosines, ties go to the smaller id.

    What is found was found in the store at the same moment: an index only says where to look.
    """
    _check(question)
    sought, narrowing = _sought(library, question), Narrowing(library, question.filters)

    def work(tr: Reader, granted: InTenant, trail: Trail) -> FactHits:
        if question.text:
            trail.private["query"] = question.text
        shelves = library.shelves(tr, granted, trail, question.corpora, question.as_of)
        searched = [_Searched(shelf, library.indexes) for shelf in shelves]
        stored = _stored(library, searched, question, sought, narrowing)
        own = OwnSession(granted.tenant, call.principal.id, question.session)
        kept = library.sessions.found(tr, own, trail, call.at) if question.has_session else []
        best = heapq.merge(stored, _in_session(kept, shelves, question, sought), key=lambda one: one.order)
        hits = _hits(library, trail, call, question, list(islice(best, question.limit or LIMIT_DEFAULT)))
        _check_size(hits, library.library.unit.page_bytes_max)
        exact = question.exact or all(one.is_exact for one in searched)
        return FactHits(hits, {shelf.corpus.id: shelf.revision for shelf in shelves}, exact)

    def search() -> FactHits:
        return library.library.unit.read(call, access.in_tenant(tenant, Permission.READ), work)

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


def _sought(library: FactLibrary, question: FactQuestion) -> Sought:
    if question.vector:
        return SoughtVector(question.vector, question.embedding_model)
    return SoughtText(library.library.embedders, question.text)


def _stored(
    library: FactLibrary, searched: Sequence[_Searched], question: FactQuestion, sought: Sought, narrowing: Narrowing
) -> Iterator[_Candidate]:
    """Those of the corpora, best first. Raises `Missing` if there must be a relevant one and there is none."""
    rankings = [_ranking(library, one, question, sought, narrowing) for one in searched]
    found = heapq.merge(*rankings, key=lambda one: one.order)
    first = next(found, None)
    question.directives.check_relevant(None if first is None else first.score)
    return found if first is None else chain([first], found)


def _in_session(
    kept: Sequence[SessionFact], shelves: Sequence[Shelf], question: FactQuestion, sought: Sought
) -> list[_Candidate]:
    """Those of the session that were put beside one of the corpora, best first."""
    searched = {shelf.corpus.id for shelf in shelves}
    allowed = [one for one in kept if one.corpus in searched and question.filters.allows(one.fact, None)]
    return sorted((_Candidate(one.fact, _score(one, sought), one) for one in allowed), key=lambda one: one.order)


def _score(one: SessionFact, sought: Sought) -> float:
    vector = unpacked(one.vector)
    compared = beside_session(one.fact, one.corpus, len(vector), sought.of)
    return round(float(vector @ compared), SCORE_DIGITS)


def _ranking(
    library: FactLibrary, searched: _Searched, question: FactQuestion, sought: Sought, narrowing: Narrowing
) -> Iterator[_Candidate]:
    """The facts of one corpus, best first, each read from the store. More are looked for only if they are asked for."""
    shelf = searched.shelf
    if shelf.embeddings is None:
        return
    vector = sought.of(shelf.corpus.id, shelf.embeddings.current.model)
    index = searched.index
    assert index is not None
    view, narrowed = FactsView(shelf.view), narrowing.among(shelf, candidates(library, shelf, question.filters))
    tried = 0
    for one, score in index.ranking(vector, narrowed, exact=question.exact):
        fact = view.fact_left(one)
        if fact is not None and fact.is_searched and allowed(library, shelf, question.filters, fact):
            yield _Candidate(fact, score, shelf)
        else:
            tried += 1
            narrowing.check(shelf, tried)


def _hits(
    library: FactLibrary, trail: Trail, call: Call, question: FactQuestion, best: Sequence[_Candidate]
) -> list[FactHit]:
    """In the same order; those of a corpus are told together."""
    found: dict[int, FoundFact] = {}
    for shelf in {id(one.where): one.where for one in best if isinstance(one.where, Shelf)}.values():
        places = [place for place, one in enumerate(best) if one.where is shelf]
        facts = [best[place].fact for place in places]
        trail.touch_facts(facts, shelf.corpus.number, accessed=True)
        found |= zip(places, library.told(shelf, facts, with_embedding=question.with_embedding), strict=True)
    for place, one in enumerate(best):
        if isinstance(one.where, SessionFact):
            found[place] = library.sessions.told(one.where, with_embedding=question.with_embedding)
    return [FactHit(found[place], one.score, _is_stale(one.fact, call, question)) for place, one in enumerate(best)]


def _is_stale(fact: Fact, call: Call, question: FactQuestion) -> bool:
    return fact.status is FactStatus.STALE or question.directives.is_too_old(fact.age(call.at))


def _check_size(hits: Sequence[FactHit], size_bytes_max: int) -> None:
    if sum(one.found.size_bytes for one in hits) > size_bytes_max:
        raise BadInput(Reason.TOO_LARGE, "these facts do not fit into one answer; ask for fewer", field="limit")
