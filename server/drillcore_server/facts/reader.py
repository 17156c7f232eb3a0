"""What the commands that read facts share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.facts import counters as fact_accesses
from drillcore_server.facts import store as facts
from drillcore_server.facts.index import FactIndexes
from drillcore_server.facts.model import Fact, FoundFact
from drillcore_server.facts.session_facts import FactSessions
from drillcore_server.facts.state_hash import StateHashes
from drillcore_server.facts.store import FactReader
from drillcore_server.hierarchy.chunk_index import unpacked
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.corpus_at_revision import AsOf, BatchedReads, CorpusAtRevision, CorpusReads
from drillcore_server.kernel.errors import BadInput, Missing
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Unit
from drillcore_server.storage.ids import CommunityId, CorpusId, FactId, Level
from drillcore_server.vectors.embedding.embedders import Embedders
from drillcore_server.vectors.store import embeddings_of

CORPORA_MAX: Final = 100
"""That one call reads."""


class FactMemberships(Protocol):
    """Which facts are in which communities, at one revision."""

    def of(self, wanted: Sequence[FactId], /) -> list[CommunityId | None]:
        """The community of each fact; None for a fact in none."""

    def members(self, community: CommunityId, /) -> list[FactId]: ...


class FactCommunities(Protocol):
    """The communities of facts. `communities` finds them from the facts, so facts are read without knowing how."""

    def at(self, view: CorpusAtRevision, /) -> FactMemberships: ...

    def label(self, view: CorpusAtRevision, community: CommunityId, /) -> str | None:
        """None if its words were erased, or it is not there."""


@dataclass(frozen=True, slots=True)
class FactReads:
    """What calls that read facts use."""

    corpora: CorpusReads
    embedders: Embedders
    indexes: FactIndexes
    states: StateHashes
    sessions: FactSessions
    communities: FactCommunities

    @property
    def unit(self) -> Unit:
        return self.corpora.unit

    def at(self, tr: Reader, granted: InTenant, trail: Trail, corpus: CorpusId, as_of: AsOf) -> CorpusAtRevision:
        """A corpus at a moment, whose facts the caller may read."""
        view = self.corpora.at(tr, granted, trail, corpus, as_of)
        granted.check_level(corpus, Level.CHUNK)
        return view

    def at_each(
        self, tr: Reader, granted: InTenant, trail: Trail, corpora: Sequence[CorpusId], as_of: AsOf
    ) -> list[CorpusAtRevision]:
        """Those that are named, or all that the caller may read."""
        wanted = corpora or self._everything(tr, granted)
        return [self.at(tr, granted, trail, one, as_of) for one in wanted]

    def at_fact(self, tr: Reader, granted: InTenant, trail: Trail, fact: FactId, as_of: AsOf) -> CorpusAtRevision:
        """The corpus that a fact is in, at a moment. One that is not granted has no facts."""
        return self.at(tr, granted, trail, corpus_of(tr, self.corpora, granted, fact), as_of)

    def told(self, view: CorpusAtRevision, found: Sequence[Fact], *, with_embedding: bool = False) -> list[FoundFact]:
        """Facts of a corpus as the caller gets them."""
        facts = FactReader(view)
        embeddings = embeddings_of(view)
        accesses = fact_accesses.read(view.tr, view.keys, [one.id for one in found])
        communities = self._communities(view, found)
        made = []
        for fact, access, (community, label) in zip(found, accesses, communities, strict=True):
            stored = facts.vector(embeddings.current.number, fact.id) if with_embedding and embeddings else None
            made.append(
                FoundFact(
                    fact,
                    view.corpus.id,
                    access.count,
                    access.last_at,
                    community,
                    label,
                    embedding=tuple(unpacked(stored).tolist()) if stored is not None else (),
                    embedding_model=embeddings.current.name if embeddings else "",
                )
            )
        return made

    def snapshot(self, view: CorpusAtRevision) -> BatchedReads:
        """The same corpus at the same revision, for what may take longer than a transaction."""
        return BatchedReads.of(self.sessions.engine, view)

    def community_of(self, view: CorpusAtRevision, fact: FactId) -> CommunityId | None:
        (found,) = self.communities.at(view).of([fact])
        return found

    def _communities(self, view: CorpusAtRevision, found: Sequence[Fact]) -> list[tuple[CommunityId | None, str]]:
        """Of each fact its community and what that is called; none where the words of the label were erased."""
        own = self.communities.at(view).of([one.id for one in found])
        labels = {one: None if one is None else self.communities.label(view, one) for one in set(own)}
        return [(None, "") if (label := labels[one]) is None else (one, label) for one in own]

    def _everything(self, tr: Reader, granted: InTenant) -> Sequence[CorpusId]:
        stored = granted.corpora(tr, self.unit.keys)
        allowed = (corpus.id for corpus, _ in stored if granted.reaches(corpus.id, Level.CHUNK))
        return check_count(list(islice(allowed, CORPORA_MAX + 1)))


def corpus_of(tr: Reader, reads: CorpusReads, granted: InTenant, fact: FactId) -> CorpusId:
    """The corpus that has, or had, a fact. Raises `Missing` if the caller may not have it."""
    keys = reads.unit.keys
    for owner in granted.owners(tr, keys):
        number = facts.locate(tr, keys, owner, fact)
        corpus = None if number is None else reads.numbered(tr, granted, owner, number)
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
