"""Proves that the communities of a corpus are of its facts, and that their labels are made of what they say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from drillcore_fdb.errors import EngineError
from drillcore_server.communities.labels import LABEL_KEYWORDS, keywords_of
from drillcore_server.derived.state_hashes import changed_facts
from drillcore_server.domain.communities import LABEL_FACTS, Community, community_id
from drillcore_server.domain.facts import Fact
from drillcore_server.domain.ids import CommunityId, CorpusId, FactId, Revision
from drillcore_server.store import revisions, trimming, versioned
from drillcore_server.store.communities import COMMUNITY, unpacked_members
from drillcore_server.store.facts import FACT, FactsView
from drillcore_server.store.hierarchy import CorpusView
from drillcore_server.store.keyring import KeyErased
from drillcore_server.store.sealed import keys_of
from drillcore_server.store.snapshot import Snapshot
from drillcore_server.store.versioned import Entry

_IMPORT: Final = "ImportCore"


@dataclass(slots=True)
class CommunityCheck:
    """One corpus at one revision."""

    snapshot: Snapshot
    corpus: CorpusId
    _records: dict[CommunityId, tuple[Entry, Community]] = field(default_factory=dict)
    _erased: set[CommunityId] = field(default_factory=set)
    _members: dict[CommunityId, list[FactId]] = field(default_factory=dict)
    _last: Revision = field(default=Revision(0))

    def problems(self) -> Iterator[str]:
        yield from self._read_records()
        yield from self._read_members()
        yield from self._sizes()
        yield from self._facts()
        for entry, community in self._records.values():
            yield from self._label(entry, community)

    def _read_records(self) -> Iterator[str]:
        for entry in self.snapshot.entries(self.snapshot.keys.communities()):
            self._last = max(self._last, entry.revision)
            named = CommunityId(UUID(bytes=entry.key[-16:]))
            try:
                self._records[named] = entry, COMMUNITY.decode(self.snapshot.sealed.opened(entry).value)
            except KeyErased:
                self._erased.add(named)
            except EngineError as error:
                yield error.message
                self._erased.add(named)

    def _read_members(self) -> Iterator[str]:
        for entry in self.snapshot.entries(self.snapshot.keys.all_community_pages()):
            self._last = max(self._last, entry.revision)
            named, _ = self.snapshot.keys.parse_community_page(entry.key)
            try:
                members = unpacked_members(self.snapshot.sealed.opened(entry).value)
            except EngineError as error:
                yield error.message
            else:
                self._members.setdefault(named, []).extend(members)

    def _sizes(self) -> Iterator[str]:
        """Every community has its members, as many as it says, and is named by the first of them."""
        there = self._records.keys() | self._erased
        yield from (f"members of a community {one} that is not there" for one in sorted(self._members.keys() - there))
        for one, (_, community) in self._records.items():
            members = self._members.get(one, [])
            if len(members) != community.size:
                yield f"community {one} counts {community.size} facts and has {len(members)}"
            if not members or one != community.id or community_id(self.corpus, members) != one:
                yield f"community {one} is not named by its first fact"

    def _facts(self) -> Iterator[str]:
        """No fact is in two; each is searched, or was until something happened to it that the feed tells of."""
        owner: dict[FactId, CommunityId] = {}
        for one, members in self._members.items():
            for fact in members:
                if fact in owner:
                    yield f"fact {fact} is in community {one} and in {owner[fact]}"
                owner[fact] = one
        told = set(changed_facts(self.snapshot, Revision(max(self._last - 1, 0)))) if owner else set()
        quiet = sorted(owner.keys() - told)
        found = self.snapshot.find(quiet, _is_searched)
        yield from (
            f"community {owner[fact]} has the member {fact}, which is no fact that can be searched"
            for fact, is_searched in zip(quiet, found, strict=True)
            if not is_searched
        )

    def _came_with_a_core(self, revision: Revision) -> bool:
        record = self.snapshot.read(lambda view: revisions.get(view.tr, view.keys, revision))
        return record is not None and record.action == _IMPORT

    def _label(self, entry: Entry, community: Community) -> Iterator[str]:
        """Made of the most important members, as they were then, and sealed under the keys of all of them."""
        if list(community.drawn_from) != self._members.get(community.id, [])[:LABEL_FACTS]:
            yield f"the label of community {community.id} is not made of its most important facts"
            return
        if entry.revision < self.snapshot.read(lambda view: trimming.floor(view.tr, view.keys)):
            return  # what the facts said then is not kept any more
        if self._came_with_a_core(entry.revision):
            return  # nor what they said when it was found, on another server
        then = self.snapshot.at(entry.revision)
        facts = list(then.find(community.drawn_from, _stored))
        if None in facts:
            yield f"the label of community {community.id} is made of a fact that is not there"
            return
        yield from _label_problems(entry, community, [one for one in facts if one is not None])


def _label_problems(entry: Entry, community: Community, facts: Sequence[tuple[Entry, Fact]]) -> Iterator[str]:
    keywords = keywords_of([fact.content for _, fact in facts])
    if community.keywords != keywords or not community.label.startswith(", ".join(keywords[:LABEL_KEYWORDS])):
        yield f"the label of community {community.id} is not made of what its facts say"
    if not {number for stored, _ in facts for number in keys_of(stored.value)} <= set(keys_of(entry.value)):
        yield f"the label of community {community.id} is not sealed under the keys of all its sources"


def _is_searched(view: CorpusView, fact: FactId) -> bool:
    try:
        found = FactsView(view).fact(fact)
    except EngineError:
        return False
    return found is not None and found.is_searched


def _stored(view: CorpusView, fact: FactId) -> tuple[Entry, Fact] | None:
    """A fact's record as it is stored, and opened; None if it is not there, or cannot be read."""
    stored = versioned.get(view.tr, view.keys.fact(fact), view.revision)
    try:
        return None if stored is None else (stored, FACT.decode(view.sealed.opened(stored).value))
    except EngineError:
        return None
