"""The part of fsck for the index by source: it must lead to all that a key has sealed, and nowhere else.

What the index must have is worked out from the stored records and entries alone, with every version of them. A place is
a hash of 12 bytes of an encryption key's number, a logical key and a revision, so that a large index fits into memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple

from drillcore_fdb.engine import Engine, Reader, Transaction
from drillcore_server.erasure import purge_store as purging
from drillcore_server.kernel import by_source, retention, revisions
from drillcore_server.kernel.by_source import Listing
from drillcore_server.kernel.corpus_model import TrimState
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.followers import SEALED, followed
from drillcore_server.storage.ids import Revision
from drillcore_server.storage.keyring import KeyNumber
from drillcore_server.storage.sealed import is_empty, is_of_several, keys_of
from drillcore_server.storage.spaces import Space
from drillcore_server.storage.versioned import Value

_KEYS_MAX: Final = 2_000
"""Keys that a scan reads in one transaction."""
_LISTS_MAX: Final = 100
"""Lists that a scan reads in one transaction."""
_FOLLOWED: Final = frozenset({Space.CHUNKS, Space.FACTS, Space.TURNS})
"""The spaces of records that index entries follow."""
_PLACE_BYTES: Final = 12
_NONE: Final = Revision(0)


class _State(NamedTuple):
    """What must not change during the check. Otherwise it says nothing, rather than something wrong."""

    trim: TrimState
    purges: tuple[tuple[int, bool], ...]
    """The number of each purge, and whether it has finished."""


class _Version(NamedTuple):
    """A version of a record that entries follow. It has no number if it is a removal."""

    revision: Revision
    number: KeyNumber | None


@dataclass(slots=True)
class SourceIndexCheck:
    """Compares the index by source of one corpus with what is stored."""

    engine: Engine
    keys: CorpusKeys
    _head: Revision = _NONE
    _floor: Revision = _NONE
    _destroyed: dict[KeyNumber, bool] = field(default_factory=dict)
    """The keys of purges, and whether their purge has finished."""
    _listed: set[bytes] = field(default_factory=set)
    """The places that are listed."""
    _right: set[bytes] = field(default_factory=set)
    """Those of them that lead to something."""
    _joins: dict[bytes, list[Revision]] = field(default_factory=dict)
    """For a record under several keys and each of them: the revisions whose lists have it."""
    _records: dict[bytes, list[_Version]] = field(default_factory=dict)
    """The versions of records that entries follow."""

    def problems(self) -> list[str]:
        before = self._begin()
        found = [*self._missing(), *self._stale(is_trimmed=before.trim.finished)]
        return found if self.engine.run(self._state) == before else []

    def _begin(self) -> _State:
        state, self._head = self.engine.run(lambda tr: (self._state(tr), revisions.head(tr, self.keys)))
        self._floor = state.trim.floor
        for purge in self.engine.run(lambda tr: list(purging.all_of(tr.snapshot, self.keys))):
            self._destroyed |= {KeyNumber(number): purge.finished for number in purge.keys}
        for listing in self._listings():
            for key in listing.keys:
                self._listed.add(_place(listing.number, key, listing.revision))
                if self.keys.space_of(key) in SEALED:
                    self._joins.setdefault(_place(listing.number, key), []).append(listing.revision)
        return state

    def _state(self, tr: Reader) -> _State:
        purges = purging.all_of(tr, self.keys)
        return _State(retention.state(tr, self.keys), tuple((purge.number, purge.finished) for purge in purges))

    def _missing(self) -> Iterator[str]:
        """What is stored and not listed. Records come first: entries follow them."""
        for is_record in (True, False):
            for space in self.keys.by_revision():
                if (self.keys.space_of(space.begin) in SEALED) is is_record:
                    check = self._check_record if is_record else self._check_entry
                    yield from self._missing_in(self._values(space.begin, space.end), check)

    def _missing_in(
        self, values: Iterator[Value], check: Callable[[bytes, list[Value]], Iterator[tuple[KeyNumber, Revision]]]
    ) -> Iterator[str]:
        for key, versions in groupby(values, lambda version: version.key):
            for number, revision in check(key, list(versions)):
                yield f"{key.hex()} of revision {revision} is not in the index by source under the key {number}"

    def _check_record(self, key: bytes, versions: list[Value]) -> Iterator[tuple[KeyNumber, Revision]]:
        """The keys of a record that are not listed where they join it."""
        before: frozenset[KeyNumber] = frozenset()
        for version in versions:
            numbers = frozenset() if version.value is None else frozenset(keys_of(version.value))
            for number in numbers - before:
                listed = self._joined(number, key, version, is_first=version is versions[0])
                if not listed and not (version.value is not None and is_empty(version.value)):
                    yield number, version.revision
            before = numbers if version.value is not None and is_of_several(version.value) else frozenset()
        if self.keys.space_of(key) in _FOLLOWED:
            self._records[_hashed(key)] = [
                _Version(version.revision, None if version.value is None else keys_of(version.value)[0])
                for version in versions
            ]

    def _joined(self, number: KeyNumber, key: bytes, version: Value, *, is_first: bool) -> bool:
        """Whether a list leads to the version. An earlier one that it joined may be trimmed."""
        revisions_listed = self._joins.get(_place(number, key), [])
        is_trimmed = is_first and version.revision <= self._floor and is_of_several(version.value or b"")
        led = [at for at in revisions_listed if at == version.revision or (is_trimmed and at < version.revision)]
        self._right.update(_place(number, key, at) for at in led)
        return bool(led)

    def _check_entry(self, key: bytes, versions: list[Value]) -> Iterator[tuple[KeyNumber, Revision]]:
        """The keys of the records that an entry follows, unless it is listed under them."""
        for version in versions:
            if version.value is None:
                continue
            for record in followed(self.keys, key, version.value):
                number = next(filter(None, (self._number(place, version.revision) for place in record)), None)
                if number is None:
                    continue  # the checks of nodes and facts find entries that lead nowhere
                place = _place(number, key, version.revision)
                self._right.add(place)
                if place not in self._listed:
                    yield number, version.revision

    def _number(self, key: bytes, revision: Revision) -> KeyNumber | None:
        """The encryption key of a record as a reader finds it at a revision, or after it if that is trimmed."""
        versions = self._records.get(_hashed(key), [])
        seen = [version for version in versions if version.revision <= revision]
        later = [version for version in versions if revision < version.revision and revision <= self._floor]
        found = seen[-1:] or later[:1]
        return found[0].number if found else None

    def _stale(self, *, is_trimmed: bool) -> Iterator[str]:
        """What is listed and leads nowhere."""
        for listing in self._listings():
            if self._destroyed.get(listing.number) is False or (listing.revision <= self._floor and not is_trimmed):
                continue  # its purge, or the trim, is under way
            for key in listing.keys:
                is_right = _place(listing.number, key, listing.revision) in self._right
                if not is_right and not self._went_with_another(key, listing.revision):
                    yield (
                        f"the index by source has {key.hex()} of revision {listing.revision} "
                        f"under the key {listing.number}, which leads to nothing"
                    )

    def _went_with_another(self, key: bytes, revision: Revision) -> bool:
        """Whether an edge was purged with one of its ends. The list of its other end still has it."""
        if self.keys.space_of(key) is not Space.EDGES:
            return False
        ends = (self._number(turn, revision) for record in followed(self.keys, key, b"") for turn in record)
        return any(number in self._destroyed for number in ends)

    def _listings(self) -> Iterator[Listing]:
        """All lists up to the head. Later ones belong to a revision that is being written."""
        begin: bytes | None = self.keys.all_by_source().begin
        while begin is not None:
            page, begin = self.engine.run(lambda tr, b=begin: self._page(tr, b))  # type: ignore[misc]
            yield from (listing for listing in page if listing.revision <= self._head)

    def _page(self, tr: Transaction, begin: bytes) -> tuple[list[Listing], bytes | None]:
        listings: list[Listing] = []
        for listing in by_source.scan(tr.snapshot, self.keys, self.keys.all_by_source()._replace(begin=begin)):
            if len(listings) == _LISTS_MAX:
                return listings, self.keys.by_source(*listing[:3])
            listings.append(listing)
        return listings, None

    def _values(self, begin: bytes, end: bytes) -> Iterator[Value]:
        following: bytes | None = begin
        while following is not None:
            page, following = self.engine.run(
                lambda tr, b=following: versioned.values_page(tr.snapshot, b, end, _KEYS_MAX)  # type: ignore[misc]
            )
            yield from (value for value in page if value.revision <= self._head)


def _place(number: KeyNumber, key: bytes, revision: Revision | None = None) -> bytes:
    at = b"" if revision is None else revision.to_bytes(6, "big")
    return _hashed(number.to_bytes(4, "big") + at + key)


def _hashed(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_PLACE_BYTES).digest()
