"""Communities in the store: reads at one revision, the writes of a change, and the last run.

The record of a community contains words of a few facts, so it is sealed under the keys of their sources. Its members
are ids, the most important first, in pages that one transaction can write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_server.communities.model import Community, CommunityRun, RunLease
from drillcore_server.kernel.corpus_at_revision import CorpusAtRevision
from drillcore_server.kernel.writes import Write
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CommunityId, CorpusNumber, FactId, Revision, SourceId
from drillcore_server.storage.keyring import CORPUS_SCOPE, Keyring
from drillcore_server.storage.records import RecordKind

COMMUNITY = RecordKind(Community)
RUN = RecordKind(CommunityRun)
LEASE = RecordKind(RunLease)
ID_BYTES: Final = 16
PAGE_MEMBERS: Final = 4_096
"""How many members one record has."""


@dataclass(frozen=True, slots=True)
class CommunityReader:
    """Reads of the communities of one corpus at one revision."""

    view: CorpusAtRevision

    def community(self, community: CommunityId) -> Community | None:
        """The community, or None if it does not exist. Raises `KeyErased` if its words were erased."""
        entry = self.view.sealed.get(self.view.tr, self.view.keys.community(community), self.view.revision)
        return None if entry is None else COMMUNITY.decode(entry.value)

    def communities(self, communities: Sequence[CommunityId]) -> list[Community | None]:
        """Several communities, read together. None for one that does not exist, or whose words were erased."""
        keys = list(map(self.view.keys.community, communities))
        found = self.view.sealed.get_many_unless_erased(self.view.tr, keys, self.view.revision)
        return [None if entry is None else COMMUNITY.decode(entry.value) for entry in found]

    def members(self, community: CommunityId, start: int = 0) -> Iterator[tuple[int, FactId]]:
        """The members from a place on, each with its place. The most important when it was found come first."""
        first = self.view.keys.community_page(community, start // PAGE_MEMBERS)
        end = self.view.keys.community_pages(community).end
        for entry in self.view.sealed.scan(self.view.tr, first, end, self.view.revision):
            _, page = self.view.keys.parse_community_page(entry.key)
            for place, fact in enumerate(unpacked_members(entry.value), page * PAGE_MEMBERS):
                if place >= start:
                    yield place, fact


def unpacked_members(stored: bytes) -> list[FactId]:
    """The members of a page, or of pages put one after the other."""
    return [FactId(UUID(bytes=stored[at : at + ID_BYTES])) for at in range(0, len(stored), ID_BYTES)]


def packed_pages(members: bytes) -> list[bytes]:
    """Cuts packed members into pages as they are stored."""
    size_bytes = PAGE_MEMBERS * ID_BYTES
    return [members[start : start + size_bytes] for start in range(0, len(members), size_bytes)]


class CommunityWrites:
    """Makes the writes of communities."""

    def __init__(self, keys: CorpusKeys, number: CorpusNumber, keyring: Keyring) -> None:
        self._keys = keys
        self._number = number
        self._keyring = keyring
        (self._corpus_key,) = keyring.numbers(number, [CORPUS_SCOPE])

    def put(self, community: Community, sources: Collection[SourceId]) -> Write:
        """Writes a community. `sources` are the sources of the facts that it is drawn from."""
        numbers = self._keyring.numbers(self._number, sorted(sources))
        return Write(self._keys.community(community.id), COMMUNITY.encode(community), numbers=tuple(numbers))

    def put_page(self, community: CommunityId, page: int, members: bytes) -> Write:
        return Write(self._keys.community_page(community, page), members, self._corpus_key, is_dense=True)

    @staticmethod
    def remove(keys: Iterable[bytes]) -> Iterator[Write]:
        return (Write(key, None) for key in keys)


def all_members_searched_at(view: CorpusAtRevision, written: Iterable[Revision]) -> Revision:
    """A revision at which every member of the stored communities was in the search index.

    `written` are the revisions that wrote what is stored of them. An erasure writes only some of the communities anew,
    so that they may be later than others, from which facts have left before.
    """
    run = last_run(view.tr, view.keys)
    if run is not None and run.revision <= view.revision:
        return run.revision
    return min(written, default=view.revision)


def last_run(tr: Reader, keys: CorpusKeys) -> CommunityRun | None:
    return RUN.read(tr, keys.community_run())


def put_run(tr: Transaction, keys: CorpusKeys, run: CommunityRun) -> None:
    RUN.write(tr, keys.community_run(), run)


def take_lease(tr: Transaction, keys: CorpusKeys, lease: RunLease, now: datetime) -> bool:
    """Takes or renews a lease. Returns False while another server holds a lease that has not expired."""
    held = LEASE.read(tr, keys.community_lease())
    if held is not None and held.id != lease.id and held.until >= now:
        return False
    LEASE.write(tr, keys.community_lease(), lease)
    return True


def give_back_lease(tr: Transaction, keys: CorpusKeys, lease: UUID) -> None:
    """Ends a lease, unless another server has taken it over."""
    held = LEASE.read(tr, keys.community_lease())
    if held is not None and held.id == lease:
        codec.clear(tr, keys.community_lease())
