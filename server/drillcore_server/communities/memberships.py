"""Which community each fact is in, kept in memory.

Only ids are kept. Labels are read from the store, which knows what was erased.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID
from weakref import ref

import numpy as np
import numpy.typing as npt

from drillcore_fdb.engine import Engine
from drillcore_server.communities.store import ID_BYTES, CommunityReader, all_members_searched_at
from drillcore_server.facts.lexical.segments import id_bytes
from drillcore_server.facts.state_hash import changed_facts
from drillcore_server.facts.store import FactReader
from drillcore_server.kernel.corpus_at_revision import BatchedReads, CorpusAtRevision
from drillcore_server.kernel.revisions import RevisionRecord
from drillcore_server.storage.ids import CommunityId, FactId, Revision
from drillcore_server.vectors.corpus_follower import Follower
from drillcore_server.vectors.vector_index import VectorIndex
from drillcore_server.vectors.vector_log import Labels

Ids = npt.NDArray[np.bytes_]
ID: Final = np.dtype(f"S{ID_BYTES}")
"""16 bytes each. Numpy drops zeros at the end of an id that is read alone: see `_uuid`."""


@dataclass(frozen=True, slots=True)
class Memberships:
    """The facts that are in communities, as arrays, since there may be a million.

    A fact outside the search index is in no community until it is back in the index.
    """

    communities: Ids
    """In the order of their ids."""
    facts: Ids
    """In the order of their ids."""
    places: npt.NDArray[np.int32]
    """For each fact, the place of its community in `communities`."""
    is_searched: npt.NDArray[np.bool_]
    """For each fact, whether it is in the search index."""
    _known: dict[CommunityId, tuple[ref[VectorIndex[FactId]], Labels]] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )
    """Where members were found last. Holds its index weakly, because an index may contain data that is to be erased."""

    def communities_of(self, wanted: Sequence[FactId]) -> list[CommunityId | None]:
        """The community of each fact, in order; None for a fact in no community."""
        at = self.at(wanted)
        found = {fact: int(self.places[place]) for fact, place in at.items() if self.is_searched[place]}
        ids = {place: self._community(place) for place in set(found.values())}
        return [ids[found[fact]] if fact in found else None for fact in wanted]

    def members(self, community: CommunityId) -> list[FactId]:
        """The members of a community in the order of ids. Empty if there is no such community."""
        return [FactId(UUID(bytes=id_)) for id_ in self.members_of([community])[0]]

    def members_of(self, wanted: Sequence[CommunityId]) -> list[list[bytes]]:
        """The members of several communities, found in one pass over all facts. Ids are given as bytes."""
        numbers = [self._number(community) for community in wanted]
        is_wanted = np.zeros(len(self.communities), np.bool_)
        is_wanted[[number for number in numbers if number is not None]] = True
        there = np.flatnonzero(is_wanted[self.places] & self.is_searched)
        places = self.places[there]
        return [[] if number is None else id_bytes(self.facts[there[places == number]]) for number in numbers]

    def labels_in(self, index: VectorIndex[FactId], wanted: Sequence[CommunityId]) -> list[Labels]:
        """The labels of the members of each community in an index. Remembers them: a community may have thousands."""
        known = {community: self._known.get(community) for community in wanted}
        found = {community: at[1] for community, at in known.items() if at is not None and at[0]() is index}
        missing = [community for community in known if community not in found]
        for community, ids in zip(missing, self.members_of(missing), strict=True):
            found[community] = index.labels(ids)
            self._known[community] = ref(index), found[community]
        return [found[community] for community in wanted]

    def by_size(self) -> list[tuple[CommunityId, int]]:
        """Every community that has facts, with their number. The largest first; ties go to the smaller id."""
        sizes = np.bincount(self.places[self.is_searched], minlength=len(self.communities))
        order = np.argsort(-sizes, kind="stable")
        return [(self._community(place), int(sizes[place])) for place in order.tolist() if sizes[place]]

    def at(self, wanted: Sequence[FactId]) -> dict[FactId, int]:
        """The places in `facts` of those facts that are members, whether they are searched or not."""
        ids = np.array([fact.bytes for fact in wanted], ID)
        at = np.searchsorted(self.facts, ids)
        there = at < len(self.facts)
        there[there] = self.facts[at[there]] == ids[there]
        return {
            fact: place for fact, place, is_there in zip(wanted, at.tolist(), there.tolist(), strict=True) if is_there
        }

    def changed(self, now: Mapping[int, bool]) -> Memberships:
        """The memberships after facts have entered or left the search index, given by their places in `facts`."""
        if not now:
            return self
        fresh = self.is_searched.copy()
        fresh[list(now)] = list(now.values())
        return replace(self, is_searched=fresh)

    def _number(self, community: CommunityId) -> int | None:
        """The place of a community in `communities`. None if it does not exist."""
        place = int(np.searchsorted(self.communities, np.array(community.bytes, ID)))
        return place if place < len(self.communities) and self._community(place) == community else None

    def _community(self, place: int) -> CommunityId:
        return CommunityId(_uuid(self.communities[place]))


class CommunityCache(Follower[Memberships]):
    """The memberships of corpora at the revisions last asked for."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, _load, _follow)

    def labels(self, view: CorpusAtRevision, communities: Sequence[CommunityId]) -> list[str | None]:
        """The label of each community. None if the community does not exist, or its label was erased."""
        return [None if found is None else found.label for found in CommunityReader(view).communities(communities)]


def _load(snapshot: BatchedReads) -> Memberships:
    """Reads all memberships.

    Every member was in the search index when the communities were last found. The feed has what changed since.
    """
    found: dict[bytes, list[bytes]] = {}
    written: set[Revision] = set()
    for entry in snapshot.entries(snapshot.keys.all_community_pages()):
        community, _ = snapshot.keys.parse_community_page(entry.key)
        found.setdefault(community.bytes, []).append(snapshot.sealed.opened(entry).value)
        written.add(entry.revision)
    order = sorted(found)
    members = [b"".join(found[community]) for community in order]
    ids = np.frombuffer(b"".join(members), ID)
    places = np.repeat(np.arange(len(order), dtype=np.int32), [len(packed) // ID_BYTES for packed in members])
    sorting = np.argsort(ids)
    loaded = Memberships(np.array(order, ID), ids[sorting], places[sorting], np.ones(len(ids), np.bool_))
    searched_at = snapshot.read(lambda view: all_members_searched_at(view, written))
    return _caught_up(loaded, Revision(searched_at - 1), snapshot) if order else loaded


def _follow(kept: Memberships, since: Sequence[RevisionRecord], snapshot: BatchedReads) -> Memberships:
    if any(record.communities for record in since):
        return _load(snapshot)
    return _caught_up(kept, Revision(since[0].revision - 1), snapshot)


def _caught_up(kept: Memberships, revision: Revision, snapshot: BatchedReads) -> Memberships:
    """Applies what the revisions behind `revision` did to members."""
    at = kept.at(changed_facts(snapshot, revision))
    found = snapshot.together(list(at), lambda view, facts: FactReader(view).facts_unless_erased(facts))
    now = (fact is not None and fact.is_searched for fact in found)
    return kept.changed(dict(zip(at.values(), now, strict=True)))


def _uuid(stored: np.bytes_) -> UUID:
    return UUID(bytes=bytes(stored).ljust(ID_BYTES, b"\0"))
