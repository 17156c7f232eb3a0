"""Checks communities: their members must be facts of the corpus, and their labels must be made from those facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from drillcore_fdb.errors import EngineError
from drillcore_server.communities.community_plan import LABEL_KEYWORDS, keywords_of
from drillcore_server.communities.model import LABEL_FACTS, Community, community_id
from drillcore_server.communities.store import COMMUNITY, all_members_searched_at, unpacked_members
from drillcore_server.facts.blocks import block_of
from drillcore_server.facts.model import Fact
from drillcore_server.facts.state_hash import changed_facts
from drillcore_server.facts.store import FactReader
from drillcore_server.kernel import retention, revisions
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CommunityId, CorpusId, FactId, Revision
from drillcore_server.storage.keyring import KeyErased
from drillcore_server.storage.sealed import keys_of
from drillcore_server.storage.versioned import Entry

_IMPORT: Final = "ImportCore"


@dataclass(slots=True)
class CommunityCheck:
    """Checks the communities of one corpus at one revision."""

    snapshot: BatchedReads
    corpus: CorpusId
    _records: dict[CommunityId, tuple[Entry, Community]] = field(default_factory=dict)
    _erased: set[CommunityId] = field(default_factory=set)
    _members: dict[CommunityId, list[FactId]] = field(default_factory=dict)
    _written: set[Revision] = field(default_factory=set)

    def problems(self) -> Iterator[str]:
        yield from self._read_records()
        yield from self._read_members()
        yield from self._sizes()
        yield from self._facts()
        for entry, community in self._records.values():
            yield from self._label(entry, community)

    def _read_records(self) -> Iterator[str]:
        for entry in self.snapshot.entries(self.snapshot.keys.communities()):
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
            self._written.add(entry.revision)
            named, _ = self.snapshot.keys.parse_community_page(entry.key)
            try:
                members = unpacked_members(self.snapshot.sealed.opened(entry).value)
            except EngineError as error:
                yield error.message
            else:
                self._members.setdefault(named, []).extend(members)

    def _sizes(self) -> Iterator[str]:
        """Every community must have as many members as it counts, and be named after the first of them."""
        there = self._records.keys() | self._erased
        yield from (f"the missing community {name} has members" for name in sorted(self._members.keys() - there))
        for name, (_, community) in self._records.items():
            members = self._members.get(name, [])
            if len(members) != community.size:
                yield f"community {name} counts {community.size} facts but has {len(members)}"
            if not members or name != community.id or community_id(self.corpus, members) != name:
                yield f"community {name} is not named after its first fact"

    def _facts(self) -> Iterator[str]:
        """No fact may be in two communities. Each must be searched, or the feed of changes says why it no longer is."""
        owner: dict[FactId, CommunityId] = {}
        for community, members in self._members.items():
            for fact in members:
                if fact in owner:
                    yield f"fact {fact} is in community {community} and in {owner[fact]}"
                owner[fact] = community
        searched_at = self.snapshot.read(lambda view: all_members_searched_at(view, self._written))
        changed = set(changed_facts(self.snapshot, Revision(max(searched_at - 1, 0)))) if owner else set()
        unchanged = sorted(owner.keys() - changed)
        found = self.snapshot.find(unchanged, _is_searched, _home)
        yield from (
            f"community {owner[fact]} has the member {fact}, which is not a fact that is searched"
            for fact, is_searched in zip(unchanged, found, strict=True)
            if not is_searched
        )

    def _came_with_a_core(self, revision: Revision) -> bool:
        record = self.snapshot.read(lambda view: revisions.get(view.tr, view.keys, revision))
        return record is not None and record.action == _IMPORT

    def _label(self, entry: Entry, community: Community) -> Iterator[str]:
        """The label must be made from the most important members as they were then, and sealed under all their keys."""
        if list(community.drawn_from) != self._members.get(community.id, [])[:LABEL_FACTS]:
            yield f"the label of community {community.id} is not made from its most important facts"
            return
        if entry.revision < self.snapshot.read(lambda view: retention.floor(view.tr, view.keys)):
            return  # the facts as they were then are trimmed
        if self._came_with_a_core(entry.revision):
            return  # the label was made on another server, from facts that this one does not have
        then = self.snapshot.at(entry.revision)
        facts = list(then.find(community.drawn_from, _stored, _home))
        if None in facts:
            yield f"the label of community {community.id} is made from a missing fact"
            return
        yield from _label_problems(entry, community, [fact for fact in facts if fact is not None])


def _label_problems(entry: Entry, community: Community, facts: Sequence[tuple[Entry, Fact]]) -> Iterator[str]:
    keywords = keywords_of([fact.content for _, fact in facts])
    if community.keywords != keywords or not community.label.startswith(", ".join(keywords[:LABEL_KEYWORDS])):
        yield f"the label of community {community.id} is not made from the content of its facts"
    if not {number for stored, _ in facts for number in keys_of(stored.value)} <= set(keys_of(entry.value)):
        yield f"the label of community {community.id} is not sealed under the keys of all its sources"


def _home(keys: CorpusKeys, fact: FactId) -> bytes:
    """The key that a fact is read from, unless its id only looks made from a block's."""
    return keys.fact_block(block_of(fact))


def _is_searched(view: CorpusAtRevision, fact: FactId) -> bool:
    try:
        found = FactReader(view).fact(fact)
    except EngineError:
        return False
    return found is not None and found.is_searched


def _stored(view: CorpusAtRevision, fact: FactId) -> tuple[Entry, Fact] | None:
    """A fact's record as stored and as opened. None if it is missing or cannot be read."""
    try:
        return FactReader(view).stored(fact)
    except EngineError:
        return None
