"""Filters of listings and searches: which facts of a corpus they allow.

Indexes narrow a listing or search by source, document, chunk and community. Status, metadata and times are in no index
(see docs/decisions/facts-and-state.md). So a search tries facts in the order of their scores. After many attempts in
vain it stops, reads all records of the corpus in as many transactions as it takes, and starts again among the facts
that the filters allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, TypeVar

from drillcore_server.facts.fact_reads import FactReads
from drillcore_server.facts.model import Fact, FactFilters
from drillcore_server.facts.state_hash import changed_facts
from drillcore_server.facts.store import FactReader, stored_facts
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.unit import errors_as_refusals
from drillcore_server.storage.ids import CorpusNumber, FactId, Revision

_READ_MAX: Final = 500
"""Facts that are read together."""
LOOKED_AT_MAX: Final = 20_000
"""Facts that a listing looks at for one page, allowed or not: well within the five seconds of a transaction."""


@dataclass(slots=True)
class FactListing:
    """The facts that the filters allow, in the order of ids. It stops when one transaction cannot look further."""

    reads: FactReads
    view: CorpusAtRevision
    filters: FactFilters
    after: FactId | None
    """The last fact that was looked at, or None at the beginning. The listing continues behind it."""
    is_cut: bool = False
    """Whether the listing stopped early, so that more facts may follow `after`. Read it once the facts are consumed."""

    def facts(self) -> Iterator[Fact]:
        for count, fact in enumerate(self._looked_at()):
            if count == LOOKED_AT_MAX:
                self.is_cut = True
                return
            self.after = fact.id
            if allowed(self.reads, self.view, self.filters, fact):
                yield fact

    def _looked_at(self) -> Iterator[Fact]:
        facts, after = FactReader(self.view), self.after
        narrowed = candidates(self.reads, self.view, self.filters)
        if narrowed is None:
            return facts.facts(after)
        return _read_in_order(facts, [id_ for id_ in sorted(narrowed) if after is None or id_ > after])


def _read_in_order(facts: FactReader, ids: Sequence[FactId]) -> Iterator[Fact]:
    for start in range(0, len(ids), _READ_MAX):
        yield from (fact for fact in facts.facts_unless_erased(ids[start : start + _READ_MAX]) if fact is not None)


def candidates(reads: FactReads, view: CorpusAtRevision, filters: FactFilters) -> set[FactId] | None:
    """The facts that indexes find for these filters; `allowed` must still check each. None if no index narrows them."""
    facts = FactReader(view)
    sets: list[set[FactId]] = []
    if filters.sources:
        sets.append({fact.id for fact in facts.of_sources(sorted(filters.sources))})
    chunks = set(filters.chunks)
    if filters.documents:
        found = HierarchyReader(view).documents_by_id(sorted(filters.documents))
        of_documents = {chunk for document in found if document is not None for chunk in document.chunks}
        # Facts of a removed document stay, but its list of chunks is gone: then this index cannot narrow the search.
        if None not in found:
            sets.append({fact.id for fact in facts.of_chunks(sorted(of_documents))})
    if chunks:
        sets.append({fact.id for fact in facts.of_chunks(sorted(chunks))})
    if filters.communities:
        memberships = reads.communities.at(view)
        sets.append({fact for community in filters.communities for fact in memberships.members(community)})
    return set.intersection(*sets) if sets else None


def allowed(reads: FactReads, view: CorpusAtRevision, filters: FactFilters, fact: Fact) -> bool:
    """Whether all filters allow a fact."""
    return filters.allows(fact, reads.community_of(view, fact.id) if filters.communities else None)


T = TypeVar("T")
_GROWTH: Final = 4
_BATCH_MAX: Final = 1_000


def growing_batches(ranking: Iterable[T], first: int) -> Iterator[list[T]]:
    """A ranking in batches, each to be read together: `first` of them, then four times as many each time.

    Without filters the first batch is enough. A filter that allows few of them takes few batches.
    """
    left, size = iter(ranking), min(first, _BATCH_MAX)
    while batch := list(islice(left, size)):
        yield batch
        size = min(_GROWTH * size, _BATCH_MAX)


TRIED_MAX: Final = 5_000
"""Facts of one corpus that a search tries in vain: a fraction of the five seconds of a transaction."""


class _TriedTooMany(Exception):  # noqa: N818 - control flow, not an error
    def __init__(self, view: CorpusAtRevision) -> None:
        super().__init__()
        self.view = view


@dataclass(frozen=True, slots=True)
class _Allowed:
    revision: Revision
    facts: frozenset[FactId]


class FilteredSearch:
    """Runs one search with filters, and restarts it if too many facts were tried in vain.

    What it then knows about the filters is brought up to the revision that each run of the search sees.
    """

    def __init__(self, reads: FactReads, filters: FactFilters) -> None:
        self._reads = reads
        self._filters = replace(filters, communities=frozenset())
        """Without communities, which are not in the records of facts and have an index."""
        self._known: dict[CorpusNumber, _Allowed] = {}

    def run(self, search: Callable[[], T]) -> T:
        """Returns what a search finds. Runs it again when it has tried too many facts of a corpus in vain."""
        while True:
            try:
                return search()
            except _TriedTooMany as tried:
                with errors_as_refusals():
                    self._known[tried.view.corpus.number] = self._gathered(self._reads.snapshot(tried.view))

    def among(self, view: CorpusAtRevision, candidates: set[FactId] | None) -> set[FactId] | frozenset[FactId] | None:
        """The candidates that may be allowed, as far as is known by now. None, given or returned, means all facts."""
        known = self._known.get(view.corpus.number)
        if known is None:
            return candidates
        if known.revision != view.revision:
            known = self._followed(known, self._reads.snapshot(view))
            self._known[view.corpus.number] = known
        return known.facts if candidates is None else candidates & known.facts

    def check(self, view: CorpusAtRevision, tried: int) -> None:
        """The search must call this after each fact that it tried in vain, and only while `run` runs it."""
        if tried >= TRIED_MAX and view.corpus.number not in self._known:
            raise _TriedTooMany(view)

    def _gathered(self, snapshot: BatchedReads) -> _Allowed:
        found = (fact.id for fact in stored_facts(snapshot) if self._is_allowed(fact))
        return _Allowed(snapshot.revision, frozenset(found))

    def _followed(self, known: _Allowed, snapshot: BatchedReads) -> _Allowed:
        touched = changed_facts(snapshot, known.revision)
        now = snapshot.together(touched, lambda view, facts: FactReader(view).facts_unless_erased(facts))
        allowed = {fact.id for fact in now if fact is not None and self._is_allowed(fact)}
        return _Allowed(snapshot.revision, known.facts.difference(touched) | allowed)

    def _is_allowed(self, fact: Fact) -> bool:
        return fact.is_searched and self._filters.allows(fact, None)
