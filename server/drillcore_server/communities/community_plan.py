"""Plans the communities of a revision: their labels, and the writes that differ from what is stored.

A label consists of keywords of a community's most important facts. Writes are planned after a run, from what it found,
and for an erasure, from what is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

import numpy as np

from drillcore_fdb.tuples import KeyRange
from drillcore_server.communities.community_finder import Assignment
from drillcore_server.communities.find.neighbour_graph import NONE, groups
from drillcore_server.communities.memberships import ID
from drillcore_server.communities.model import LABEL_FACTS, Community, community_id
from drillcore_server.communities.store import COMMUNITY, ID_BYTES, CommunityWrites, packed_pages, unpacked_members
from drillcore_server.documents.processors.keywords import (
    guess_language,
    keywords,
    lower,
    stopwords,
    tokens_of,
    word_scores,
)
from drillcore_server.facts.blocks import block_of
from drillcore_server.facts.model import Fact
from drillcore_server.facts.state_hash import changed_facts
from drillcore_server.facts.store import FactReader
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.holdings import Holdings
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CommunityId, CorpusId, FactId
from drillcore_server.storage.spaces import Space

LABEL_KEYWORDS: Final = 3
_OPENING_CHARACTERS: Final = 60
_BETWEEN: Final = ", "


def keywords_of(texts: Sequence[str]) -> tuple[str, ...]:
    """Keywords of all texts together, best first. No phrase spans two texts."""
    tokens = [tokens_of(lower(text)) for text in texts]
    return keywords(tokens, word_scores(tokens, stopwords(guess_language(" ".join(texts))), frozenset()))


def opening_of(text: str) -> str:
    """The first words of a text, for a community without keywords."""
    shortened = " ".join(text.split())
    if len(shortened) <= _OPENING_CHARACTERS:
        return shortened
    cut, _, _ = shortened[:_OPENING_CHARACTERS].rpartition(" ")
    return f"{cut or shortened[:_OPENING_CHARACTERS]} ..."


def labels(named: Iterable[tuple[tuple[str, ...], str]], in_use: Iterable[str] = ()) -> Iterator[str]:
    """A label for each community, given its keywords and its opening. No two are equal, and none is in use already.

    The first communities get the shortest labels. Later ones use further keywords and, if these do not help, a number.
    """
    taken = set(in_use)
    for words, opening in named:
        label = next(candidate for candidate in _candidates(words, opening) if candidate not in taken)
        taken.add(label)
        yield label


def _candidates(words: tuple[str, ...], opening: str) -> Iterator[str]:
    for count in range(min(LABEL_KEYWORDS, len(words)), len(words) + 1):
        if count:
            yield _BETWEEN.join(words[:count])
    shortest = _BETWEEN.join(words[:LABEL_KEYWORDS]) or opening
    yield shortest
    number = 2
    while True:
        yield f"{shortest} ({number})"
        number += 1


@dataclass(frozen=True, slots=True)
class CommunityPlan:
    communities: int
    """How many communities there are afterwards."""
    writes: Sequence[Write]


def plan_communities(
    corpus: CorpusId,
    assignment: Assignment,
    size_min: int,
    snapshot: BatchedReads,
    make: CommunityWrites,
    now: datetime,
) -> CommunityPlan:
    """Plans what a run found, on the revision of the snapshot, which may be later than that of the run.

    Facts that have left the search index meanwhile are taken out of their communities. New facts are in none. `now` is
    the time that changed communities get.
    """
    made = _new_communities(corpus, _members(assignment, size_min, snapshot), snapshot, now)
    return CommunityPlan(len(made), list(_differences(made, _Stored.of(snapshot), snapshot.keys, make)))


def plan_without(
    corpus: CorpusId, gone: Collection[FactId], held: Holdings, make: CommunityWrites, now: datetime
) -> list[Write]:
    """Plans anew the communities whose labels have words of these facts, which are those of a source.

    The facts are no members of these communities any more. From all others they are absent without a write, like every
    fact that leaves the search index. A community that becomes too small stays until the next run.
    """
    snapshot = held.snapshot
    touched = {CommunityId(UUID(bytes=entry.key[-16:])) for entry in held.entries(Space.COMMUNITIES)}
    if not touched:
        return []
    stored = _Stored.some(snapshot, touched)
    missing = np.array([fact.bytes for fact in gone], ID)
    members = (_without(members, missing) for _, members in sorted(stored.members(snapshot.keys).items()))
    left = [there for packed in members if (there := _with_label_facts(packed, snapshot))]
    made = _new_communities(corpus, left, snapshot, now, _labels_in_use(snapshot, touched))
    return list(_differences(made, stored, snapshot.keys, make))


def _with_label_facts(members: bytes, snapshot: BatchedReads) -> bytes:
    """The members without those erased earlier, as far as the label would be made from them."""
    while True:
        drawn = unpacked_members(members[: LABEL_FACTS * ID_BYTES])
        found = snapshot.read(lambda view, ids=drawn: FactReader(view).facts_unless_erased(ids))  # type: ignore[misc]
        erased = [id_.bytes for id_, fact in zip(drawn, found, strict=True) if fact is None]
        if not erased:
            return members
        members = _without(members, np.array(erased, ID))


def _labels_in_use(snapshot: BatchedReads, besides: Collection[CommunityId]) -> list[str]:
    """The labels of the other communities, unless they were erased."""
    others = _opened(snapshot, snapshot.keys.communities())
    for community in besides:
        others.pop(snapshot.keys.community(community), None)
    return [COMMUNITY.decode(record).label for record in others.values()]


@dataclass(frozen=True, slots=True)
class _NewCommunity:
    """A community to store."""

    community: Community
    members: bytes
    """Packed, the most important first."""
    drawn_from: Sequence[Fact]


@dataclass(frozen=True, slots=True)
class _Stored:
    """The stored records of a revision by their keys. None for a record that was erased."""

    records: Mapping[bytes, bytes | None]
    pages: Mapping[bytes, bytes]

    @classmethod
    def of(cls, snapshot: BatchedReads) -> _Stored:
        keys = snapshot.keys
        records = dict.fromkeys((entry.key for entry in snapshot.entries(keys.communities())), None)
        return cls(records | _opened(snapshot, keys.communities()), _opened(snapshot, keys.all_community_pages()))

    @classmethod
    def some(cls, snapshot: BatchedReads, communities: Collection[CommunityId]) -> _Stored:
        """The pages of some communities. Takes their records for erased."""
        keys, ordered = snapshot.keys, sorted(communities)
        pages: dict[bytes, bytes] = {}
        for community in ordered:
            pages |= _opened(snapshot, keys.community_pages(community))
        return cls(dict.fromkeys(map(keys.community, ordered)), pages)

    def members(self, keys: CorpusKeys) -> dict[CommunityId, bytes]:
        found: dict[CommunityId, list[bytes]] = {}
        for key, page in self.pages.items():
            found.setdefault(keys.parse_community_page(key)[0], []).append(page)
        return {community: b"".join(pages) for community, pages in found.items()}


def _opened(snapshot: BatchedReads, keys: KeyRange) -> dict[bytes, bytes]:
    return {entry.key: entry.value for entry in snapshot.sealed.opened_all(snapshot.entries(keys))}


def _without(members: bytes, missing: np.ndarray[tuple[int], np.dtype[np.bytes_]]) -> bytes:
    ids = np.frombuffer(members, ID)
    return ids[~np.isin(ids, missing)].tobytes()


def _members(assignment: Assignment, size_min: int, snapshot: BatchedReads) -> list[bytes]:
    """The packed members of each community, without facts that have left the search index since the run."""
    ids, importances = assignment.facts.ids, assignment.facts.importances
    communities = assignment.found.communities
    if snapshot.revision != assignment.of_revision:
        importances, communities = importances.copy(), communities.copy()
        for place, fact in _changed_members(assignment, snapshot):
            if fact is None or not fact.is_searched:
                communities[place] = NONE
            else:
                importances[place] = fact.importance
    return [ids[rows].tobytes() for rows in groups(communities, importances, size_min)]


def _changed_members(assignment: Assignment, snapshot: BatchedReads) -> Iterator[tuple[int, Fact | None]]:
    """The facts of the run that have changed since, as they are now, each with its place."""
    ids = assignment.facts.ids
    changed = changed_facts(snapshot, assignment.of_revision)
    wanted = np.array([fact.bytes for fact in changed], ID)
    at = np.searchsorted(ids, wanted)
    there = [place < len(ids) and ids[place] == id_ for place, id_ in zip(at.tolist(), wanted, strict=True)]
    known = [fact for fact, is_there in zip(changed, there, strict=True) if is_there]
    found = snapshot.together(known, lambda view, facts: FactReader(view).facts_by_id(facts))
    return zip(at[np.array(there, bool)].tolist(), found, strict=True)


def _new_communities(
    corpus: CorpusId, members: Sequence[bytes], snapshot: BatchedReads, now: datetime, in_use: Sequence[str] = ()
) -> list[_NewCommunity]:
    """Communities with their labels. The largest ones choose first, and none takes a label that is in use."""
    found = [(community_id(corpus, unpacked_members(packed)), packed) for packed in members]
    found.sort(key=lambda pair: (-len(pair[1]), pair[0]))
    drawn = [unpacked_members(packed[: LABEL_FACTS * ID_BYTES]) for _, packed in found]
    facts = _facts(drawn, snapshot)
    texts = [[facts[id_].content for id_ in ids] for ids in drawn]
    words = [keywords_of(contents) for contents in texts]
    named = labels(
        ((keywords, opening_of(contents[0])) for keywords, contents in zip(words, texts, strict=True)), in_use
    )
    return [
        _NewCommunity(
            Community(community, label, keywords, len(packed) // ID_BYTES, tuple(ids), now),
            packed,
            [facts[id_] for id_ in ids],
        )
        for (community, packed), ids, keywords, label in zip(found, drawn, words, named, strict=True)
    ]


def _facts(drawn: Sequence[Sequence[FactId]], snapshot: BatchedReads) -> Mapping[FactId, Fact]:
    wanted = [id_ for ids in drawn for id_ in ids]
    found = snapshot.each(
        wanted, lambda view, id_: FactReader(view).fact(id_), lambda keys, id_: keys.fact_block(block_of(id_))
    )
    return dict(zip(wanted, found, strict=True))


def _differences(
    made: Sequence[_NewCommunity], stored: _Stored, keys: CorpusKeys, make: CommunityWrites
) -> Iterator[Write]:
    """The writes that turn what is stored into what was made."""
    gone = {*stored.records, *stored.pages}
    for new in made:
        key = keys.community(new.community.id)
        gone.discard(key)
        if not _is_same(stored.records.get(key), new.community):
            yield make.put(new.community, {fact.source for fact in new.drawn_from})
        for number, page in enumerate(packed_pages(new.members)):
            place = keys.community_page(new.community.id, number)
            gone.discard(place)
            if stored.pages.get(place) != page:
                yield make.put_page(new.community.id, number, page)
    yield from make.remove(sorted(gone))


def _is_same(stored: bytes | None, community: Community) -> bool:
    """Whether a stored community equals this one, except for the time it was made."""
    return stored is not None and replace(COMMUNITY.decode(stored), made_at=community.made_at) == community
