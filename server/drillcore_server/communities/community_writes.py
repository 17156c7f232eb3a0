"""What communities are called: keywords of their most important facts.

The writes that make communities what a run has found, or what is left of them: only what differs is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import numpy as np

from drillcore_fdb.tuples import KeyRange
from drillcore_server.communities.find.neighbour_graph import NONE, groups
from drillcore_server.communities.memberships import ID
from drillcore_server.communities.model import LABEL_FACTS, Community, community_id
from drillcore_server.communities.run import Assignment
from drillcore_server.communities.store import COMMUNITY, ID_BYTES, CommunityWrites, packed_pages, unpacked_members
from drillcore_server.documents.processing.keywords import (
    guess_language,
    keywords,
    lower,
    stopwords,
    tokens_of,
    word_scores,
)
from drillcore_server.facts.model import Fact
from drillcore_server.facts.state_hash import changed_facts
from drillcore_server.facts.store import FactReader
from drillcore_server.kernel.corpus_at_revision import BatchedReads
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CommunityId, CorpusId, FactId

LABEL_KEYWORDS: Final = 3
_OPENING_CHARACTERS: Final = 60
_BETWEEN: Final = ", "


def keywords_of(texts: Sequence[str]) -> tuple[str, ...]:
    """What the texts are about, best first. No phrase goes from one text into the next."""
    tokens = [tokens_of(lower(text)) for text in texts]
    return keywords(tokens, word_scores(tokens, stopwords(guess_language(" ".join(texts))), frozenset()))


def opening_of(text: str) -> str:
    """The first words of a text: for want of keywords."""
    shortened = " ".join(text.split())
    if len(shortened) <= _OPENING_CHARACTERS:
        return shortened
    cut, _, _ = shortened[:_OPENING_CHARACTERS].rpartition(" ")
    return f"{cut or shortened[:_OPENING_CHARACTERS]} ..."


def labels(named: Iterable[tuple[tuple[str, ...], str]], others: Iterable[str] = ()) -> Iterator[str]:
    """A label for each community, given by its keywords and what else to call it; no two are equal.

    The first ones get the shortest: later ones take further keywords, and at last a number. `others` are taken.
    """
    taken = set(others)
    for words, opening in named:
        label = next(one for one in _candidates(words, opening) if one not in taken)
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
    """That there are afterwards."""
    writes: Sequence[Write]


def plan_communities(
    corpus: CorpusId,
    assignment: Assignment,
    size_min: int,
    snapshot: BatchedReads,
    make: CommunityWrites,
    now: datetime,
) -> CommunityPlan:
    """What to write on a revision, which may be a later one than that of the work.

    Facts that have left the search index meanwhile are taken out of their communities; those that were added are in
    none. `now` is when changed communities were made.
    """
    made = _made(corpus, _members(assignment, size_min, snapshot), snapshot, now)
    return CommunityPlan(len(made), list(_changes(made, _Stored.of(snapshot), snapshot.keys, make)))


def plan_without(
    corpus: CorpusId, gone: Collection[FactId], snapshot: BatchedReads, make: CommunityWrites, now: datetime
) -> list[Write]:
    """What to write so that these facts are in no community, and no label is made of their words.

    A community that becomes too small by it stays until communities are found the next time.
    """
    stored = _Stored.of(snapshot)
    before, missing = stored.members(snapshot.keys), np.array([one.bytes for one in gone], ID)
    after = {one: _less(members, missing) for one, members in before.items()}
    touched = {one for one, members in before.items() if after[one] != members}
    others = [stored.label(snapshot.keys.community(one)) for one in before if one not in touched]
    made = _made(corpus, [after[one] for one in sorted(touched) if after[one]], snapshot, now, others)
    return list(_changes(made, stored.only(touched, snapshot.keys), snapshot.keys, make))


@dataclass(frozen=True, slots=True)
class _Made:
    """A community as it is to be stored."""

    community: Community
    members: bytes
    """Packed, the most important first."""
    drawn_from: Sequence[Fact]


@dataclass(frozen=True, slots=True)
class _Stored:
    """Records as a revision has them, by their keys; what was erased is None."""

    records: Mapping[bytes, bytes | None]
    pages: Mapping[bytes, bytes]

    @classmethod
    def of(cls, snapshot: BatchedReads) -> _Stored:
        keys = snapshot.keys
        records = dict.fromkeys((entry.key for entry in snapshot.entries(keys.communities())), None)
        return cls(records | _opened(snapshot, keys.communities()), _opened(snapshot, keys.all_community_pages()))

    def members(self, keys: CorpusKeys) -> dict[CommunityId, bytes]:
        found: dict[CommunityId, list[bytes]] = {}
        for key, page in self.pages.items():
            found.setdefault(keys.parse_community_page(key)[0], []).append(page)
        return {community: b"".join(pages) for community, pages in found.items()}

    def label(self, key: bytes) -> str:
        record = self.records.get(key)
        return "" if record is None else COMMUNITY.decode(record).label

    def only(self, communities: Collection[CommunityId], keys: CorpusKeys) -> _Stored:
        records = {keys.community(one) for one in communities}
        return _Stored(
            {key: record for key, record in self.records.items() if key in records},
            {key: page for key, page in self.pages.items() if keys.parse_community_page(key)[0] in communities},
        )


def _opened(snapshot: BatchedReads, keys: KeyRange) -> dict[bytes, bytes]:
    return {entry.key: entry.value for entry in snapshot.sealed.opened_all(snapshot.entries(keys))}


def _less(members: bytes, missing: np.ndarray[tuple[int], np.dtype[np.bytes_]]) -> bytes:
    ids = np.frombuffer(members, ID)
    return ids[~np.isin(ids, missing)].tobytes()


def _members(assignment: Assignment, size_min: int, snapshot: BatchedReads) -> list[bytes]:
    """Of each community, packed."""
    ids, importances = assignment.facts.ids, assignment.facts.importances
    communities = assignment.found.communities
    if snapshot.revision != assignment.of_revision:
        importances, communities = importances.copy(), communities.copy()
        for place, fact in _changed(assignment, snapshot):
            if fact is None or not fact.is_searched:
                communities[place] = NONE
            else:
                importances[place] = fact.importance
    return [ids[rows].tobytes() for rows in groups(communities, importances, size_min)]


def _changed(assignment: Assignment, snapshot: BatchedReads) -> Iterator[tuple[int, Fact | None]]:
    """The facts of the work that have changed since, as they are now: by their places."""
    ids = assignment.facts.ids
    changed = changed_facts(snapshot, assignment.of_revision)
    wanted = np.array([one.bytes for one in changed], ID)
    at = np.searchsorted(ids, wanted)
    there = [place < len(ids) and ids[place] == one for place, one in zip(at.tolist(), wanted, strict=True)]
    known = [one for one, is_there in zip(changed, there, strict=True) if is_there]
    found = snapshot.find(known, lambda view, one: FactReader(view).fact(one))
    return zip(at[np.array(there, bool)].tolist(), found, strict=True)


def _made(
    corpus: CorpusId, members: Sequence[bytes], snapshot: BatchedReads, now: datetime, others: Sequence[str] = ()
) -> list[_Made]:
    """Communities with their labels; the largest choose first, and not what others are called."""
    found = [(community_id(corpus, unpacked_members(one)), one) for one in members]
    found.sort(key=lambda one: (-len(one[1]), one[0]))
    drawn = [unpacked_members(packed[: LABEL_FACTS * ID_BYTES]) for _, packed in found]
    facts = _facts(drawn, snapshot)
    texts = [[facts[one].content for one in ids] for ids in drawn]
    words = [keywords_of(one) for one in texts]
    named = labels(((keywords, opening_of(said[0])) for keywords, said in zip(words, texts, strict=True)), others)
    return [
        _Made(
            Community(id_, label, keywords, len(packed) // ID_BYTES, tuple(ids), now),
            packed,
            [facts[one] for one in ids],
        )
        for (id_, packed), ids, keywords, label in zip(found, drawn, words, named, strict=True)
    ]


def _facts(drawn: Sequence[Sequence[FactId]], snapshot: BatchedReads) -> Mapping[FactId, Fact]:
    wanted = [one for ids in drawn for one in ids]
    return dict(zip(wanted, snapshot.each(wanted, lambda view, one: FactReader(view).fact(one)), strict=True))


def _changes(made: Sequence[_Made], stored: _Stored, keys: CorpusKeys, make: CommunityWrites) -> Iterator[Write]:
    """From what is stored to what there is to be."""
    gone = {*stored.records, *stored.pages}
    for one in made:
        key = keys.community(one.community.id)
        gone.discard(key)
        if not _is_same(stored.records.get(key), one.community):
            yield make.put(one.community, {fact.source for fact in one.drawn_from})
        for number, page in enumerate(packed_pages(one.members)):
            place = keys.community_page(one.community.id, number)
            gone.discard(place)
            if stored.pages.get(place) != page:
                yield make.put_page(one.community.id, number, page)
    yield from make.remove(sorted(gone))


def _is_same(stored: bytes | None, community: Community) -> bool:
    """But for when it was made."""
    return stored is not None and replace(COMMUNITY.decode(stored), made_at=community.made_at) == community
