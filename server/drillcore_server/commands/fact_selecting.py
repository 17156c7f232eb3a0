"""Which facts of a corpus the filters of a listing or search allow, found through the indexes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from drillcore_server.commands.fact_library import FactLibrary
from drillcore_server.commands.selecting import left
from drillcore_server.commands.viewing import Shelf
from drillcore_server.domain.facts import Fact
from drillcore_server.domain.found_facts import FactFilters
from drillcore_server.domain.ids import FactId
from drillcore_server.store.facts import FactsView

LOOKED_AT_MAX: Final = 20_000
"""For one page, whether the filters allow them or not: well within five seconds."""


@dataclass(slots=True)
class Listing:
    """The facts that the filters allow, in the order of their ids, behind one; as far as one transaction can look."""

    library: FactLibrary
    shelf: Shelf
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
            if allowed(self.library, self.shelf, self.filters, one):
                yield one

    def _looked_at(self) -> Iterator[Fact]:
        view, after = FactsView(self.shelf.view), self.after
        narrowed = candidates(self.library, self.shelf, self.filters)
        if narrowed is None:
            return view.facts(after)
        found = (view.fact_left(one) for one in sorted(narrowed) if after is None or one > after)
        return (one for one in found if one is not None)


def candidates(library: FactLibrary, shelf: Shelf, filters: FactFilters) -> set[FactId] | None:
    """The facts that indexes lead to, which the filters have yet to be asked of; None: all."""
    view = FactsView(shelf.view)
    sets: list[set[FactId]] = []
    if filters.sources:
        sets.append({fact for source in filters.sources for fact in view.of_source(source)})
    chunks = set(filters.chunks)
    if filters.documents:
        found = [left(shelf.view.document, one) for one in filters.documents]
        of_documents = {chunk for document in found if document is not None for chunk in document.chunks}
        # A fact may be of a document that is no longer there, so its chunks are not enough to go by.
        if None not in found:
            sets.append({fact for chunk in of_documents for fact in view.of_chunk(chunk)})
    if chunks:
        sets.append({fact for chunk in chunks for fact in view.of_chunk(chunk)})
    if filters.communities:
        memberships = library.communities.at(shelf.corpus.number, shelf.view)
        sets.append({fact for community in filters.communities for fact in memberships.members(community)})
    return set.intersection(*sets) if sets else None


def allowed(library: FactLibrary, shelf: Shelf, filters: FactFilters, fact: Fact) -> bool:
    """Whether all filters allow a fact."""
    return filters.allows(fact, library.community_of(shelf, fact.id) if filters.communities else None)
