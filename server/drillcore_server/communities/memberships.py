"""Which community each fact is in, in memory. Ids only: labels are read from the store, which knows what was erased."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID
from weakref import ref

import numpy as np
import numpy.typing as npt

from drillcore_fdb.engine import Engine
from drillcore_server.communities.store import ID_BYTES, CommunityReader
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
"""16 bytes each; numpy leaves out zeros at the end of one that is taken out alone."""


@dataclass(frozen=True, slots=True)
class Memberships:
    """The facts that are in communities, as arrays: there may be a million.

    A fact that is out of the search index is in no community, until it is back.
    """

    communities: Ids
    """In the order of their ids."""
    facts: Ids
    """In order."""
    places: npt.NDArray[np.int32]
    """Of each fact's community."""
    is_searched: npt.NDArray[np.bool_]
    _known: dict[CommunityId, tuple[ref[VectorIndex[FactId]], Labels]] = field(
        init=False, default_factory=dict, compare=False, repr=False
    )
    """Where members were found last. It keeps no index in memory: that may have what is to be erased."""

    def of(self, wanted: Sequence[FactId]) -> list[CommunityId | None]:
        """The community of each fact; None for those in none."""
        at = self.at(wanted)
        found = {one: int(self.places[place]) for one, place in at.items() if self.is_searched[place]}
        ids = {place: self._community(place) for place in set(found.values())}
        return [ids[found[one]] if one in found else None for one in wanted]

    def members(self, community: CommunityId) -> list[FactId]:
        """In the order of their ids; none if there is no such community."""
        return [FactId(UUID(bytes=one)) for one in self.members_of([community])[0]]

    def members_of(self, wanted: Sequence[CommunityId]) -> list[list[bytes]]:
        """The same of several, by one look at all facts: the bytes of their ids, which are enough to look them up."""
        numbers = [self._number(one) for one in wanted]
        is_wanted = np.zeros(len(self.communities), np.bool_)
        is_wanted[[one for one in numbers if one is not None]] = True
        there = np.flatnonzero(is_wanted[self.places] & self.is_searched)
        of = self.places[there]
        return [[] if one is None else id_bytes(self.facts[there[of == one]]) for one in numbers]

    def labels_in(self, index: VectorIndex[FactId], wanted: Sequence[CommunityId]) -> list[Labels]:
        """Where the members of each are in an index. Looked up once: a community may have thousands."""
        known = {one: self._known.get(one) for one in wanted}
        found = {one: at[1] for one, at in known.items() if at is not None and at[0]() is index}
        missing = [one for one in known if one not in found]
        for one, ids in zip(missing, self.members_of(missing), strict=True):
            found[one] = index.labels(ids)
            self._known[one] = ref(index), found[one]
        return [found[one] for one in wanted]

    def by_size(self) -> list[tuple[CommunityId, int]]:
        """Every community that has facts, with how many; the largest first, of equals the one with the smaller id."""
        sizes = np.bincount(self.places[self.is_searched], minlength=len(self.communities))
        order = np.argsort(-sizes, kind="stable")
        return [(self._community(place), int(sizes[place])) for place in order.tolist() if sizes[place]]

    def at(self, wanted: Sequence[FactId]) -> dict[FactId, int]:
        """Where those of the facts stand that are members, in the search index or not."""
        ids = np.array([one.bytes for one in wanted], ID)
        at = np.searchsorted(self.facts, ids)
        there = at < len(self.facts)
        there[there] = self.facts[at[there]] == ids[there]
        return {
            one: place for one, place, is_there in zip(wanted, at.tolist(), there.tolist(), strict=True) if is_there
        }

    def changed(self, now: Mapping[int, bool]) -> Memberships:
        """With other facts in the search index: by where they stand."""
        if not now:
            return self
        fresh = self.is_searched.copy()
        fresh[list(now)] = list(now.values())
        return replace(self, is_searched=fresh)

    def _number(self, community: CommunityId) -> int | None:
        """Where a community stands; None if there is none."""
        place = int(np.searchsorted(self.communities, np.array(community.bytes, ID)))
        return place if place < len(self.communities) and self._community(place) == community else None

    def _community(self, place: int) -> CommunityId:
        return CommunityId(_uuid(self.communities[place]))


class CommunityCache(Follower[Memberships]):
    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, _load, _follow)

    def label(self, view: CorpusAtRevision, community: CommunityId) -> str | None:
        """None if its words were erased, or it is not there."""
        return CommunityReader(view).label(community)


def _load(snapshot: BatchedReads) -> Memberships:
    """Every member was in the search index when the communities were last found: what changed since is in the feed."""
    found: dict[bytes, list[bytes]] = {}
    revision = Revision(0)
    for entry in snapshot.entries(snapshot.keys.all_community_pages()):
        community, _ = snapshot.keys.parse_community_page(entry.key)
        found.setdefault(community.bytes, []).append(snapshot.sealed.opened(entry).value)
        revision = max(revision, Revision(entry.revision - 1))
    order = sorted(found)
    members = [b"".join(found[one]) for one in order]
    ids = np.frombuffer(b"".join(members), ID)
    places = np.repeat(np.arange(len(order), dtype=np.int32), [len(one) // ID_BYTES for one in members])
    sorting = np.argsort(ids)
    loaded = Memberships(np.array(order, ID), ids[sorting], places[sorting], np.ones(len(ids), np.bool_))
    return _caught_up(loaded, revision, snapshot) if order else loaded


def _follow(kept: Memberships, since: Sequence[RevisionRecord], snapshot: BatchedReads) -> Memberships:
    if any(record.communities for record in since):
        return _load(snapshot)
    return _caught_up(kept, Revision(since[0].revision - 1), snapshot)


def _caught_up(kept: Memberships, revision: Revision, snapshot: BatchedReads) -> Memberships:
    """With what the revisions since then did to members."""
    at = kept.at(changed_facts(snapshot, revision))
    found = snapshot.find(list(at), lambda view, one: FactReader(view).fact_left(one))
    now = (fact is not None and fact.is_searched for fact in found)
    return kept.changed(dict(zip(at.values(), now, strict=True)))


def _uuid(stored: np.bytes_) -> UUID:
    return UUID(bytes=bytes(stored).ljust(ID_BYTES, b"\0"))
