"""The index by source: from the number of an encryption key to the keys of all that was written under it.

Each batch of a revision leaves one list for each encryption key, so that erasing and purging a source read what holds
the source, and nothing else:

    record under one key         listed in each revision that writes it
    record under several keys    listed under a key in the revision in which that key joins: the version before was
                                 not sealed under it. It is among the keys of all versions from there on, until one
                                 lacks it
    entry that follows           listed in each revision that writes it (see `storage/followers.py`)

A list is sorted; of each key it has what differs from the key before it. Removals are not listed, because what they
remove is.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_fdb.tuples import KeyRange
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.followers import SEALED, followed
from drillcore_server.storage.ids import Revision
from drillcore_server.storage.keyring import KeyNumber
from drillcore_server.storage.sealed import is_of_several, keys_of
from drillcore_server.storage.versioned import Value, VersionPlace

_PAGE_KEYS: Final = 1_000
"""Lists, and keys on them, that one transaction looks at when it trims."""
Lists = Mapping[KeyNumber, Collection[bytes]]
"""The keys to list under the number of each encryption key."""


class Written(Protocol):
    """One write of a revision: `writes.Write`."""

    @property
    def key(self) -> bytes: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def number(self) -> KeyNumber | None: ...
    @property
    def to_list(self) -> Sequence[KeyNumber]: ...


class Listing(NamedTuple):
    """One list of the index."""

    number: KeyNumber
    revision: Revision
    batch: int
    keys: list[bytes]
    """Sorted."""


def lists_of(tr: Reader, keys: CorpusKeys, writes: Iterable[Written], revision: Revision) -> Lists:
    """What a batch of a revision adds to the index. Call it before the batch is written.

    Takes at most one round trip: for earlier versions of records under several keys, and for records that entries of
    the batch follow but that it does not write.
    """
    one: dict[bytes, set[KeyNumber]] = {}
    several: dict[bytes, set[KeyNumber]] = {}
    follows: dict[bytes, list[tuple[bytes, ...]]] = {}
    for write in writes:
        if write.value is None:
            for known in (one, several, follows):
                known.pop(write.key, None)
        elif write.number is not None:
            one[write.key] = {write.number}
        elif write.to_list:
            several.setdefault(write.key, set()).update(write.to_list)
        else:
            follows[write.key] = followed(keys, write.key, write.value)
    numbers = one | several
    followed_keys = {key for records in follows.values() for record in records for key in record}
    elsewhere = sorted(followed_keys - numbers.keys())
    joined, others = _numbers_stored(tr, [(several, revision - 1), (elsewhere, revision)])
    lists: dict[KeyNumber, set[bytes]] = {}
    for key, own in numbers.items():
        _add(lists, own - joined.get(key, set()), key)
    known = numbers | others
    for key, records in follows.items():
        for record in records:
            there = [place for place in record if place in known]
            assert there, f"the entry {key.hex()} follows no record"
            _add(lists, known[there[0]], key)
    return lists


def _add(lists: dict[KeyNumber, set[bytes]], numbers: Iterable[KeyNumber], key: bytes) -> None:
    for number in numbers:
        lists.setdefault(number, set()).add(key)


def _numbers_stored(tr: Reader, wanted: Sequence[tuple[Iterable[bytes], int]]) -> list[dict[bytes, set[KeyNumber]]]:
    """For groups of keys, each as of a revision: the encryption keys of the records that are there. One round trip."""
    places = [(key, Revision(revision)) for group, revision in wanted for key in group]
    found = iter(versioned.get_each(tr, places) if places else ())
    entries = [[next(found) for _ in group] for group, _ in wanted]
    return [{entry.key: set(keys_of(entry.value)) for entry in group if entry is not None} for group in entries]


def put(tr: Transaction, keys: CorpusKeys, revision: Revision, batch: int, lists: Lists) -> None:
    for number, listed in lists.items():
        codec.write(tr, keys.by_source(number, revision, batch), packed(sorted(listed)))


def scan(tr: Reader, keys: CorpusKeys, within: KeyRange, limit: int = 0) -> Iterator[Listing]:
    """The lists in a range of the index, in order."""
    return (_listing(keys, *found) for found in codec.scan(tr, *within, limit=limit))


def page(tr: Reader, keys: CorpusKeys, begin: bytes, end: bytes, values_max: int) -> tuple[list[Listing], bytes | None]:
    """The lists among the first stored values of a range, and where to go on (None at the end)."""
    ((listings, following),) = pages(tr, keys, [KeyRange(begin, end)], values_max)
    return listings, following


def pages(
    tr: Reader, keys: CorpusKeys, ranges: Sequence[KeyRange], values_max: int
) -> Iterator[tuple[list[Listing], bytes | None]]:
    """Same as `page` for each of several ranges, read together."""
    for entries in tr.range_many(ranges, limit=values_max):
        cut = codec.last_head(entries) if len(entries) == values_max else None
        assert cut != 0, "what one transaction has written fits into fewer values"
        listings = [_listing(keys, *found) for found in codec.joined(entries[:cut])]
        yield listings, None if cut is None else entries[cut][0]


def _listing(keys: CorpusKeys, key: bytes, stored: bytes) -> Listing:
    number, revision, batch = keys.parse_by_source(key)
    return Listing(KeyNumber(number), revision, batch, unpacked(stored))


def trim_page(tr: Transaction, keys: CorpusKeys, floor: Revision, begin: bytes) -> bytes | None:
    """Takes trimmed entries off the next lists of revisions up to a floor. Returns where to go on; None at the end."""
    count = 0
    for listing in scan(tr.snapshot, keys, keys.all_by_source()._replace(begin=begin)):
        place = keys.by_source(*listing[:3])
        if count >= _PAGE_KEYS:
            return place
        count += 1
        if listing.revision <= floor:
            count += len(listing.keys)
            _trim(tr, keys, place, listing)
    return None


def _trim(tr: Transaction, keys: CorpusKeys, place: bytes, listing: Listing) -> None:
    left = [key for key, is_left in zip(listing.keys, leads_to(tr.snapshot, keys, listing), strict=True) if is_left]
    if left == listing.keys:
        return
    tr.add_read_conflict_key(place)  # a purge that has removed the list meanwhile wins
    codec.clear(tr, place)
    if left:
        codec.write(tr, place, packed(left))


def leads_to(tr: Reader, keys: CorpusKeys, listing: Listing) -> list[bool]:
    """For each key on a list, whether anything is left that the list leads to.

    That is what the list's own revision wrote. For a record under several keys, it may also be a later version.
    """
    ranges = [(VersionPlace(key, listing.revision).begin, versioned.behind(key)) for key in listing.keys]
    found = [versioned.heads(tr, entries) for entries in tr.range_many(ranges, limit=1)]
    return [any(_is_led_to(keys, listing, version) for version in versions) for versions in found]


def _is_led_to(keys: CorpusKeys, listing: Listing, version: Value) -> bool:
    if version.value is None or version.revision == listing.revision:
        return version.value is not None
    is_sealed = keys.space_of(version.key) in SEALED
    return is_sealed and is_of_several(version.value) and listing.number in keys_of(version.value)


def packed(keys: Sequence[bytes]) -> bytes:
    """Sorted keys, each as the number of bytes that the key before it shares, the number of the others, and these."""
    parts: list[bytes] = []
    before = b""
    for key in keys:
        shared = _shared(before, key)
        parts += [bytes([shared, len(key) - shared]), key[shared:]]
        before = key
    return zlib.compress(b"".join(parts))


def _shared(first: bytes, second: bytes) -> int:
    """How many bytes two keys begin with alike."""
    shorter = min(len(first), len(second))
    return next((place for place in range(shorter) if first[place] != second[place]), shorter)


def unpacked(stored: bytes) -> list[bytes]:
    parts = zlib.decompress(stored)
    keys: list[bytes] = []
    at, before = 0, b""
    while at < len(parts):
        shared, size = parts[at], parts[at + 1]
        before = before[:shared] + parts[at + 2 : at + 2 + size]
        keys.append(before)
        at += 2 + size
    return keys
