"""What the commands that read facts share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.fact_sessions import FactSessions
from drillcore_server.commands.viewing import Library, Shelf
from drillcore_server.derived.communities import CommunityCache
from drillcore_server.derived.fact_index import FactIndexes
from drillcore_server.derived.state_hashes import StateHashes
from drillcore_server.derived.vectors import unpacked
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import BadInput, Missing
from drillcore_server.domain.facts import Fact
from drillcore_server.domain.found import AsOf
from drillcore_server.domain.found_facts import FoundFact
from drillcore_server.domain.ids import CommunityId, CorpusId, FactId
from drillcore_server.domain.nodes import Level
from drillcore_server.store import fact_accesses, facts
from drillcore_server.store.communities import CommunitiesView
from drillcore_server.store.facts import FactsView
from drillcore_server.store.snapshot import Snapshot

CORPORA_MAX: Final = 100
"""That one call reads."""


@dataclass(frozen=True, slots=True)
class FactLibrary:
    """Everything that reads of facts need."""

    library: Library
    indexes: FactIndexes
    states: StateHashes
    sessions: FactSessions
    communities: CommunityCache

    def shelf(self, tr: Reader, granted: InTenant, trail: Trail, corpus: CorpusId, as_of: AsOf) -> Shelf:
        """A corpus at a moment, whose facts the caller may read."""
        shelf = self.library.shelf(tr, granted, trail, corpus, as_of)
        granted.check_level(corpus, Level.CHUNK)
        return shelf

    def shelves(
        self, tr: Reader, granted: InTenant, trail: Trail, corpora: Sequence[CorpusId], as_of: AsOf
    ) -> list[Shelf]:
        """Those that are named, or all that the caller may read."""
        wanted = corpora or self._everything(tr, granted)
        return [self.shelf(tr, granted, trail, one, as_of) for one in wanted]

    def shelf_of(self, tr: Reader, granted: InTenant, trail: Trail, fact: FactId, as_of: AsOf) -> Shelf:
        """The corpus that a fact is in, at a moment. One that is not granted has no facts."""
        return self.shelf(tr, granted, trail, corpus_of(tr, self.library, granted, fact), as_of)

    def told(self, shelf: Shelf, found: Sequence[Fact], *, with_embedding: bool = False) -> list[FoundFact]:
        """Facts of a corpus as the caller gets them."""
        view = FactsView(shelf.view)
        embeddings = shelf.embeddings
        accesses = fact_accesses.read(shelf.view.tr, shelf.view.keys, [one.id for one in found])
        communities = self._communities(shelf, found)
        made = []
        for fact, access, (community, label) in zip(found, accesses, communities, strict=True):
            stored = view.vector(embeddings.current.number, fact.id) if with_embedding and embeddings else None
            made.append(
                FoundFact(
                    fact,
                    shelf.corpus.id,
                    access.count,
                    access.last_at,
                    community,
                    label,
                    embedding=tuple(unpacked(stored).tolist()) if stored is not None else (),
                    embedding_model=embeddings.current.name if embeddings else "",
                )
            )
        return made

    def snapshot(self, shelf: Shelf) -> Snapshot:
        """The same corpus at the same revision, for what may take longer than a transaction."""
        return Snapshot(self.sessions.engine, shelf.view.keys, shelf.view.sealed, shelf.revision)

    def community_of(self, shelf: Shelf, fact: FactId) -> CommunityId | None:
        (found,) = self.communities.at(shelf.corpus.number, shelf.view).of([fact])
        return found

    def _communities(self, shelf: Shelf, found: Sequence[Fact]) -> list[tuple[CommunityId | None, str]]:
        """Of each fact its community and what that is called; none where the words of the label were erased."""
        own = self.communities.at(shelf.corpus.number, shelf.view).of([one.id for one in found])
        view = CommunitiesView(shelf.view)
        labels = {one: None if one is None else view.label(one) for one in set(own)}
        return [(None, "") if (label := labels[one]) is None else (one, label) for one in own]

    def _everything(self, tr: Reader, granted: InTenant) -> Sequence[CorpusId]:
        stored = granted.corpora(tr, self.library.unit.keys)
        allowed = (corpus.id for corpus, _ in stored if granted.reaches(corpus.id, Level.CHUNK))
        return check_count(list(islice(allowed, CORPORA_MAX + 1)))


def corpus_of(tr: Reader, library: Library, granted: InTenant, fact: FactId) -> CorpusId:
    """The corpus that has, or had, a fact. Raises `Missing` if the caller may not have it."""
    keys = library.unit.keys
    for owner in granted.owners(tr, keys):
        number = facts.locate(tr, keys, owner, fact)
        corpus = None if number is None else library.numbered(tr, granted, owner, number)
        if corpus is not None:
            return corpus.id
    raise missing_fact(fact)


def missing_fact(fact: FactId) -> Missing:
    return Missing(Reason.FACT_NOT_FOUND, f"there is no fact {fact}")


def check_count(corpora: Sequence[CorpusId]) -> Sequence[CorpusId]:
    if len(corpora) > CORPORA_MAX:
        message = f"more than {CORPORA_MAX} corpora at once: name those to read"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="corpus_ids")
    return corpora


def check_facts(wanted: Iterable[FactId], at_most: int) -> list[FactId]:
    """Each once, in order. Raises `BadInput` for none, or too many."""
    ids = list(dict.fromkeys(wanted))
    if not 0 < len(ids) <= at_most:
        raise BadInput(Reason.INVALID_ARGUMENT, f"name 1 to {at_most} facts", field="fact_ids")
    return ids
