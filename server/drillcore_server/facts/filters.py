"""Which facts of a corpus the filters of a listing or search allow, found through the indexes.

Searches whose filters allow few facts: which those are is found out once, instead of trying the nearest one by one.

Status, metadata and times are in no index, so a search tries facts in the order of their scores. One that has tried
many in vain ends, all records of the corpus are gone through in transactions of their own, as many as it takes, and the
search begins anew among those that the filters allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from drillcore_server.facts.model import Fact, FactFilters
from drillcore_server.facts.reader import FactReads
from drillcore_server.facts.state_hash import changed_facts
from drillcore_server.facts.store import FACT, FactReader
from drillcore_server.hierarchy.query import left
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.unit import refusing
from drillcore_server.storage.ids import CorpusNumber, FactId, Revision

LOOKED_AT_MAX: Final = 20_000
"""For one page, whether the filters allow them or not: well within five seconds."""


@dataclass(slots=True)
class Listing:
    """The facts that the filters allow, in the order of their ids, behind one; as far as one transaction can look."""

    reads: FactReads
    view: CorpusAtRevision
    filters: FactFilters
    after: FactId | None
    is_cut: bool = False
    """Once all were taken: whether there may be more behind the last fact that was looked at, which `after` is then."""

    def facts(self) -> Iterator[Fact]:
        for count, one in enumerate(self._looked_at()):
            if count == LOOKED_AT_MAX:
                self.is_cut = True
                return
            self.after = one.id
            if allowed(self.reads, self.view, self.filters, one):
                yield one

    def _looked_at(self) -> Iterator[Fact]:
        facts, after = FactReader(self.view), self.after
        narrowed = candidates(self.reads, self.view, self.filters)
        if narrowed is None:
            return facts.facts(after)
        found = (facts.fact_left(one) for one in sorted(narrowed) if after is None or one > after)
        return (one for one in found if one is not None)


def candidates(reads: FactReads, view: CorpusAtRevision, filters: FactFilters) -> set[FactId] | None:
    """The facts that indexes lead to, which the filters have yet to be asked of; None: all."""
    facts = FactReader(view)
    sets: list[set[FactId]] = []
    if filters.sources:
        sets.append({fact for source in filters.sources for fact in facts.of_source(source)})
    chunks = set(filters.chunks)
    if filters.documents:
        found = [left(HierarchyReader(view).document, one) for one in filters.documents]
        of_documents = {chunk for document in found if document is not None for chunk in document.chunks}
        # A fact may be of a document that is no longer there, so its chunks are not enough to go by.
        if None not in found:
            sets.append({fact for chunk in of_documents for fact in facts.of_chunk(chunk)})
    if chunks:
        sets.append({fact for chunk in chunks for fact in facts.of_chunk(chunk)})
    if filters.communities:
        memberships = reads.communities.at(view)
        sets.append({fact for community in filters.communities for fact in memberships.members(community)})
    return set.intersection(*sets) if sets else None


def allowed(reads: FactReads, view: CorpusAtRevision, filters: FactFilters, fact: Fact) -> bool:
    """Whether all filters allow a fact."""
    return filters.allows(fact, reads.community_of(view, fact.id) if filters.communities else None)


T = TypeVar("T")
TRIED_MAX: Final = 5_000
"""In vain, in one corpus: a fraction of a second. A transaction has five."""


class _TriedTooMany(Exception):  # noqa: N818 - a turn of events, not an error
    def __init__(self, view: CorpusAtRevision) -> None:
        super().__init__()
        self.view = view


@dataclass(frozen=True, slots=True)
class _Allowed:
    revision: Revision
    facts: frozenset[FactId]


class Narrowing:
    """Of one search. It is brought up to the revision that each run of the search sees."""

    def __init__(self, reads: FactReads, filters: FactFilters) -> None:
        self._reads = reads
        self._filters = replace(filters, communities=frozenset())
        """A fact's community is not in its record; there is an index of it."""
        self._known: dict[CorpusNumber, _Allowed] = {}

    def run(self, search: Callable[[], T]) -> T:
        """What a search finds; it begins anew when it has tried too many facts of a corpus."""
        while True:
            try:
                return search()
            except _TriedTooMany as tried:
                with refusing():
                    self._known[tried.view.corpus.number] = self._gathered(self._reads.snapshot(tried.view))

    def among(self, view: CorpusAtRevision, candidates: set[FactId] | None) -> set[FactId] | frozenset[FactId] | None:
        """Those of the candidates that may be allowed, as far as that is known; None stands for all facts."""
        known = self._known.get(view.corpus.number)
        if known is None:
            return candidates
        if known.revision != view.revision:
            known = self._followed(known, self._reads.snapshot(view))
            self._known[view.corpus.number] = known
        return known.facts if candidates is None else candidates & known.facts

    def check(self, view: CorpusAtRevision, tried: int) -> None:
        """To be asked when facts were tried in vain. For what is called by `run` only."""
        if tried >= TRIED_MAX and view.corpus.number not in self._known:
            raise _TriedTooMany(view)

    def _gathered(self, snapshot: BatchedReads) -> _Allowed:
        entries = snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.facts()))
        found = (FACT.decode(entry.value) for entry in entries)
        return _Allowed(snapshot.revision, frozenset(one.id for one in found if self._is_allowed(one)))

    def _followed(self, known: _Allowed, snapshot: BatchedReads) -> _Allowed:
        touched = changed_facts(snapshot, known.revision)
        now = snapshot.find(touched, lambda view, one: FactReader(view).fact_left(one))
        allowed = {one.id for one in now if one is not None and self._is_allowed(one)}
        return _Allowed(snapshot.revision, known.facts.difference(touched) | allowed)

    def _is_allowed(self, fact: Fact) -> bool:
        return fact.is_searched and self._filters.allows(fact, None)
