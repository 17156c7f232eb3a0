"""Searches whose filters allow few facts: which those are is found out once, instead of trying the nearest one by one.

Status, metadata and times are in no index, so a search tries facts in the order of their scores. One that has tried
many in vain ends, all records of the corpus are gone through in transactions of their own, as many as it takes, and the
search begins anew among those that the filters allow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from drillcore_server.commands.fact_library import FactLibrary
from drillcore_server.commands.unit import refusing
from drillcore_server.commands.viewing import Shelf
from drillcore_server.derived.state_hashes import changed_facts
from drillcore_server.domain.facts import Fact
from drillcore_server.domain.found_facts import FactFilters
from drillcore_server.domain.ids import CorpusNumber, FactId, Revision
from drillcore_server.store.facts import FACT, FactsView
from drillcore_server.store.snapshot import Snapshot

T = TypeVar("T")
TRIED_MAX: Final = 5_000
"""In vain, in one corpus: a fraction of a second. A transaction has five."""


class _TriedTooMany(Exception):  # noqa: N818 - a turn of events, not an error
    def __init__(self, shelf: Shelf) -> None:
        super().__init__()
        self.shelf = shelf


@dataclass(frozen=True, slots=True)
class _Allowed:
    revision: Revision
    facts: frozenset[FactId]


class Narrowing:
    """Of one search. It is brought up to the revision that each run of the search sees."""

    def __init__(self, library: FactLibrary, filters: FactFilters) -> None:
        self._library = library
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
                    self._known[tried.shelf.corpus.number] = self._gathered(self._library.snapshot(tried.shelf))

    def among(self, shelf: Shelf, candidates: set[FactId] | None) -> set[FactId] | frozenset[FactId] | None:
        """Those of the candidates that may be allowed, as far as that is known; None stands for all facts."""
        known = self._known.get(shelf.corpus.number)
        if known is None:
            return candidates
        if known.revision != shelf.revision:
            known = self._followed(known, self._library.snapshot(shelf))
            self._known[shelf.corpus.number] = known
        return known.facts if candidates is None else candidates & known.facts

    def check(self, shelf: Shelf, tried: int) -> None:
        """To be asked when facts were tried in vain. For what is called by `run` only."""
        if tried >= TRIED_MAX and shelf.corpus.number not in self._known:
            raise _TriedTooMany(shelf)

    def _gathered(self, snapshot: Snapshot) -> _Allowed:
        entries = snapshot.sealed.opened_all(snapshot.entries(snapshot.keys.facts()))
        found = (FACT.decode(entry.value) for entry in entries)
        return _Allowed(snapshot.revision, frozenset(one.id for one in found if self._is_allowed(one)))

    def _followed(self, known: _Allowed, snapshot: Snapshot) -> _Allowed:
        touched = changed_facts(snapshot, known.revision)
        now = snapshot.find(touched, lambda view, one: FactsView(view).fact_left(one))
        allowed = {one.id for one in now if one is not None and self._is_allowed(one)}
        return _Allowed(snapshot.revision, known.facts.difference(touched) | allowed)

    def _is_allowed(self, fact: Fact) -> bool:
        return fact.is_searched and self._filters.allows(fact, None)
