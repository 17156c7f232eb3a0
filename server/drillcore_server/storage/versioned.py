"""Records kept by revision: a key, then the corpus revision that wrote it. Nothing is overwritten.

    <logical key> <revision, 6 bytes> <part, 2 bytes>

Part 0 holds the record, or the head of one that is split; further parts follow. A reader at revision R sees for each
logical key the newest entry at or below R; an entry without a record is a tombstone: from there on the key is gone.
Revision and part have fixed sizes, so a scan takes keys apart without decoding them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from drillcore_fdb import codec
from drillcore_fdb.engine import KeyValue, RangeRead, Reader, Streaming, Transaction
from drillcore_server.storage.ids import Revision

REVISION_BYTES: Final = 6
_PART_BYTES: Final = 2
_SUFFIX_BYTES: Final = REVISION_BYTES + _PART_BYTES
_TOMBSTONE: Final = b""
_VERSIONS_MAX: Final = 64
"""How many stored values of a key's history one range asks for. More than one record has."""
_REMOVALS_MAX: Final = 3
"""How many stored values behind a purged one are looked at for removals."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One record as a reader at some revision sees it."""

    key: bytes
    """The logical key."""
    revision: Revision
    """The revision that wrote it."""
    value: bytes


class VersionPlace(NamedTuple):
    """A logical key and a revision that wrote it."""

    key: bytes
    revision: Revision

    @property
    def begin(self) -> bytes:
        """What the stored keys of all its parts begin with."""
        return self.key + self.revision.to_bytes(REVISION_BYTES, "big")


@dataclass(frozen=True, slots=True)
class Value:
    """One entry with its value, whether or not a reader sees it. None is a removal."""

    key: bytes
    revision: Revision
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Stored:
    """One entry as it is stored, whether or not a reader sees it."""

    key: bytes
    """The logical key."""
    revision: Revision
    is_removal: bool
    places: tuple[bytes, ...]
    """The keys of its parts."""
    size_bytes: int


def put(tr: Transaction, key: bytes, revision: Revision, value: bytes, *, checksum: bool = True) -> None:
    """Writes the record of a key from `revision` on. A second write at the same revision replaces the first.

    Only a value that reveals damage by itself, as a sealed one does, may go without a checksum.
    Parts of a larger record that was there before may stay: a reader takes only as many parts as the head says.
    """
    place = key + revision.to_bytes(REVISION_BYTES, "big")
    head, *parts = codec.frame(value, checksum=checksum)
    tr.set(place + b"\0\0", head)
    for number, part in enumerate(parts, 1):
        tr.set(place + number.to_bytes(_PART_BYTES, "big"), part)


def remove(tr: Transaction, key: bytes, revision: Revision) -> None:
    """Removes a key from `revision` on. Readers at earlier revisions still see it."""
    place = key + revision.to_bytes(REVISION_BYTES, "big")
    tr.clear_range(place, place + b"\xff\xff")
    tr.set(place + b"\0\0", _TOMBSTONE)


def purge(tr: Transaction, places: Iterable[VersionPlace], keeps_removals: Callable[[bytes], bool]) -> int:
    """Removes what revisions wrote for keys. Readers then find neither that nor anything earlier. Returns how many.

    Places where nothing is left are skipped. A removal of which nothing earlier is left goes too, unless
    `keeps_removals` says otherwise of its key.
    """
    ordered = sorted(set(places))
    from_there = [(place.begin, behind(place.key)) for place in ordered]
    up_to_before = [(place.key, Revision(place.revision - 1)) for place in ordered]
    first = [RangeRead(*of, limit=1 + _REMOVALS_MAX) for of in from_there]
    tr.snapshot.read_ahead([], [*first, *(RangeRead(*of, 1, reverse=True) for of in _versions_up_to(up_to_before))])
    stored = tr.snapshot.range_many(from_there, limit=1 + _REMOVALS_MAX)
    before = newest_each(tr.snapshot, up_to_before)
    cleared: dict[bytes, Revision] = {}
    count = 0
    for place, entries, earlier in zip(ordered, stored, before, strict=True):
        following = iter([(_revision_of(key), value) for key, value in entries if key[-_PART_BYTES:] == b"\0\0"])
        revision, value = next(following, (None, _TOMBSTONE))
        if revision != place.revision or value == _TOMBSTONE:
            continue
        count += 1
        remove(tr, *place)
        if earlier is not None and earlier != cleared.get(place.key):
            continue
        tr.clear(place.begin + b"\0\0")
        cleared[place.key] = place.revision
        for later, value in following:
            if value != _TOMBSTONE or keeps_removals(place.key):
                break
            tr.clear(VersionPlace(place.key, later).begin + b"\0\0")
            cleared[place.key] = later
    return count


def those_there(tr: Reader, places: Sequence[VersionPlace]) -> list[VersionPlace]:
    """Those places that have a record."""
    found = tr.get_many([place.begin + b"\0\0" for place in places])
    return [place for place, head in zip(places, found, strict=True) if head not in {None, _TOMBSTONE}]


def get(tr: Reader, key: bytes, revision: Revision) -> Entry | None:
    """What a reader at `revision` sees at a key."""
    (entry,) = get_many(tr, [key], revision)
    return entry


def get_many(tr: Reader, keys: Sequence[bytes], revision: Revision) -> list[Entry | None]:
    """What a reader at `revision` sees at each of the keys. Takes a round trip, and another if a record is split."""
    return get_each(tr, [(key, revision) for key in keys])


def get_each(tr: Reader, places: Sequence[tuple[bytes, Revision]]) -> list[Entry | None]:
    """Same as `get_many`, at a revision of its own for each key."""
    found = _newest(tr, places)
    split = [place for place, parts in enumerate(found) if parts and parts[0][0][-_PART_BYTES:] != b"\0\0"]
    if split:
        last_parts = [found[place][0][0] for place in split]
        whole = tr.range_many([(last[:-_PART_BYTES] + b"\0\0", last + b"\0") for last in last_parts])
        for place, parts in zip(split, whole, strict=True):
            found[place] = parts
    return [_record(key, parts) for (key, _), parts in zip(places, found, strict=True)]


def read_ahead(
    tr: Reader,
    places: Sequence[tuple[bytes, Revision]],
    ranges: Sequence[RangeRead] = (),
    keys: Sequence[bytes] = (),
) -> None:
    """Reads what `get_each` reads, ranges and plain keys in one round trip, and another if a record is split."""
    if ranges or keys:
        tr.read_ahead(keys, [*ranges, *(RangeRead(*of, limit=1, reverse=True) for of in _versions_up_to(places))])
    get_each(tr, places)


def read_ends_ahead(tr: Reader, keys: Sequence[bytes], revision: Revision) -> None:
    """Same as `read_ahead`, but brings only the last part of a split record: one record may have megabytes."""
    _newest(tr, [(key, revision) for key in keys])


def are_there(tr: Reader, keys: Sequence[bytes], revision: Revision) -> list[bool]:
    """Whether a reader at `revision` sees a record at each of the keys. One round trip, however large they are."""
    found = _newest(tr, [(key, revision) for key in keys])
    return [bool(parts) and parts[0][1] != _TOMBSTONE for parts in found]


def _record(key: bytes, parts: Sequence[KeyValue]) -> Entry | None:
    """The record of a key from all its parts; None if there are none, or it is a removal."""
    if not parts or parts[0][1] == _TOMBSTONE:
        return None
    stored_key, head = parts[0]
    pieces = [value for _, value in parts[1 : 1 + codec.parts_of(key, head)]]
    return Entry(key, _revision_of(stored_key), codec.unframe(key, head, pieces))


def _newest(tr: Reader, places: Sequence[tuple[bytes, Revision]]) -> list[list[KeyValue]]:
    """The last part of the newest record or removal at or below a revision, for each key; empty if there is none."""
    return tr.range_many(_versions_up_to(places), limit=1, reverse=True)


def _versions_up_to(places: Sequence[tuple[bytes, Revision]]) -> list[tuple[bytes, bytes]]:
    """For each key, the range of what was written for it up to a revision."""
    return [
        (key + bytes(_SUFFIX_BYTES), key + (revision + 1).to_bytes(REVISION_BYTES, "big")) for key, revision in places
    ]


def scan(
    tr: Reader, begin: bytes, end: bytes, revision: Revision, streaming: Streaming = Streaming.ITERATOR
) -> Iterator[Entry]:
    """What a reader at `revision` sees of the logical keys from `begin` up to `end`, in order."""
    return _visible(tr.range(begin, end, streaming=streaming), revision)


def scan_many(tr: Reader, ranges: Sequence[tuple[bytes, bytes]], revision: Revision) -> list[list[Entry]]:
    """What `scan` finds in each of several small ranges, read together."""
    return [list(_visible(stored, revision)) for stored in tr.range_many(ranges)]


def page(tr: Reader, begin: bytes, end: bytes, revision: Revision, keys_max: int) -> tuple[list[Entry], bytes | None]:
    """Same as `scan` for the first `keys_max` stored keys, and where to go on (None at the end).

    Keys that the reader does not see count too, so the work for a page is bounded.
    """
    (found,) = pages(tr, [(begin, end)], revision, keys_max)
    return found


def pages(
    tr: Reader, ranges: Sequence[tuple[bytes, bytes]], revision: Revision, keys_max: int
) -> list[tuple[list[Entry], bytes | None]]:
    """What `page` gives for each of several ranges, read together."""
    return [_page(tr, stored, revision, keys_max) for stored in tr.range_many(ranges, limit=keys_max)]


def _page(
    tr: Reader, stored: Sequence[KeyValue], revision: Revision, keys_max: int
) -> tuple[list[Entry], bytes | None]:
    if len(stored) < keys_max:
        return list(_visible(stored, revision)), None
    last = stored[-1][0][:-_SUFFIX_BYTES]
    found = list(_visible((pair for pair in stored if pair[0][:-_SUFFIX_BYTES] != last), revision))
    cut_off = get(tr, last, revision)
    return found if cut_off is None else [*found, cut_off], behind(last)


@dataclass(slots=True)
class ScanOfPart:
    """Same as `scan` for the first stored keys: at most so many, of about so many bytes. Read as they are consumed."""

    tr: Reader
    begin: bytes
    end: bytes
    revision: Revision
    keys_max: int
    bytes_max: int
    cut_at: bytes | None = None
    """The last logical key that was looked at, if there may be more. Read it once the entries are consumed."""

    def entries(self) -> Iterator[Entry]:
        held: Entry | None = None
        for entry in _visible(self._stored(), self.revision):
            if held is not None:
                yield held
            held = entry
        if held is not None and held.key != self.cut_at:
            yield held
        cut_off = None if self.cut_at is None else get(self.tr, self.cut_at, self.revision)
        yield from () if cut_off is None else (cut_off,)

    def _stored(self) -> Iterator[KeyValue]:
        """The stored keys. Sets `cut_at` if it stops early: of that logical key it may not give everything."""
        stored = self.tr.range(self.begin, self.end, limit=self.keys_max, streaming=Streaming.WANT_ALL)
        size_bytes = 0
        for count, (key, value) in enumerate(stored, 1):
            size_bytes += len(key) + len(value)
            yield key, value
            if count == self.keys_max or size_bytes >= self.bytes_max:
                self.cut_at = key[:-_SUFFIX_BYTES]
                return


def last_there(tr: Reader, key: bytes, revision: Revision) -> Revision | None:
    """The last revision up to this one that wrote a record of a key, whether it was removed since or not."""
    end = (revision + 1).to_bytes(REVISION_BYTES, "big")
    for stored_key, value in tr.range(key + bytes(_SUFFIX_BYTES), key + end, reverse=True):
        if stored_key[-_PART_BYTES:] == b"\0\0" and value != _TOMBSTONE:
            return _revision_of(stored_key)
    return None


def last_key(tr: Reader, begin: bytes, end: bytes, revision: Revision, keys_max: int) -> bytes | None:
    """The last logical key of a range that a reader at `revision` sees, if it is among the last `keys_max` stored."""
    decided: set[bytes] = set()
    for stored_key, value in tr.range(begin, end, limit=keys_max, reverse=True):
        key = stored_key[:-_SUFFIX_BYTES]
        if _revision_of(stored_key) > revision or stored_key[-_PART_BYTES:] != b"\0\0" or key in decided:
            continue
        if value != _TOMBSTONE:
            return key
        decided.add(key)
    return None


def _visible(stored: Iterable[tuple[bytes, bytes]], revision: Revision) -> Iterator[Entry]:
    current: bytes | None = None
    pieces: list[bytes] = []
    written = Revision(0)
    for stored_key, value in stored:
        key, at = stored_key[:-_SUFFIX_BYTES], _revision_of(stored_key)
        if at > revision:
            continue
        if stored_key[-_PART_BYTES:] != b"\0\0":
            pieces.append(value)
            continue
        if key != current:
            yield from _entry(current, written, pieces)
        current, written, pieces = key, at, [value]
    yield from _entry(current, written, pieces)


def behind(key: bytes) -> bytes:
    """The key from which a scan continues after a logical key."""
    return key + b"\xff" * _SUFFIX_BYTES


def before(place: bytes) -> bytes:
    """The logical key that `behind` was given."""
    return place[:-_SUFFIX_BYTES]


def versions(tr: Reader, key: bytes, last: Revision | None = None) -> Iterator[Value]:
    """All that revisions wrote for a key, newest first, up to a revision if one is given. Read in pages."""
    (begin, end), limit = _versions_of(key, last), _VERSIONS_MAX
    while True:
        (found,) = tr.range_many([(begin, end)], limit=limit, reverse=True)
        yield from reversed(heads(tr, found[::-1]))
        if len(found) < limit:
            return
        end = found[-1][0]


def versions_ahead(key: bytes, last: Revision | None = None) -> RangeRead:
    """What `versions` reads first, to be read ahead."""
    return RangeRead(*_versions_of(key, last), limit=_VERSIONS_MAX, reverse=True)


def _versions_of(key: bytes, last: Revision | None) -> tuple[bytes, bytes]:
    end = behind(key) if last is None else key + (last + 1).to_bytes(REVISION_BYTES, "big")
    return key + bytes(_SUFFIX_BYTES), end


def entries(tr: Reader, begin: bytes, end: bytes) -> Iterator[Stored]:
    """Every entry of the logical keys from `begin` up to `end`, in the order of keys and revisions."""
    places: list[bytes] = []
    is_removal, size_bytes = False, 0
    for stored_key, value in tr.range(begin, end):
        if stored_key[-_PART_BYTES:] == b"\0\0":
            if places:
                yield _stored(places, is_removal, size_bytes)
            places, is_removal, size_bytes = [], value == _TOMBSTONE, 0
        places.append(stored_key)
        size_bytes += len(stored_key) + len(value)
    if places:
        yield _stored(places, is_removal, size_bytes)


def values_page(tr: Reader, begin: bytes, end: bytes, keys_max: int) -> tuple[list[Value], bytes | None]:
    """Every entry of the first `keys_max` stored keys with its value, visible or not, and where to go on."""
    stored = list(tr.range(begin, end, limit=keys_max, streaming=Streaming.WANT_ALL))
    heads = [place for place, (key, _) in enumerate(stored) if key[-_PART_BYTES:] == b"\0\0"]
    following = None
    if len(stored) == keys_max:
        following = stored[heads[-1]][0]  # the last one may be cut off
        assert len(heads) > 1, "a page holds more than one record"
        stored = stored[: heads.pop()]
    places = pairwise([*heads, len(stored)])
    return [_value(stored[first:last]) for first, last in places], following


def _value(stored: list[tuple[bytes, bytes]]) -> Value:
    (first, head), *parts = stored
    key = first[:-_SUFFIX_BYTES]
    if head == _TOMBSTONE:
        return Value(key, _revision_of(first), None)
    pieces = [value for _, value in parts][: codec.parts_of(key, head)]
    return Value(key, _revision_of(first), codec.unframe(key, head, pieces))


def heads(tr: Reader, entries: Sequence[KeyValue]) -> list[Value]:
    """The versions that begin among the entries of a range. Reads the others of their parts, if some are split."""
    found = [(place, head) for place, head in entries if place[-_PART_BYTES:] == b"\0\0"]
    split = [place for place, head in found if head != _TOMBSTONE and codec.parts_of(place, head)]
    ranges = [(place, place[:-_PART_BYTES] + b"\xff\xff") for place in split]
    whole = dict(zip(split, tr.range_many(ranges), strict=True)) if split else {}
    return [_value(whole.get(place, [(place, head)])) for place, head in found]


def histories(tr: Reader, keys: Sequence[bytes]) -> list[list[Value]]:
    """All that revisions wrote for each of the keys, in order. For records that are small and seldom written."""
    found = tr.range_many([(key + bytes(_SUFFIX_BYTES), behind(key)) for key in keys])
    return [heads(tr, entries) for entries in found]


def any_version(tr: Reader, key: bytes, first: Revision, last: Revision, is_wanted: Callable[[bytes], bool]) -> bool:
    """Whether a reader at one of these revisions finds a record with a wanted value. Looks at the newest first."""
    at: int = last
    while True:
        end = key + (at + 1).to_bytes(REVISION_BYTES, "big")
        entries = list(tr.range(key + bytes(_SUFFIX_BYTES), end, limit=_VERSIONS_MAX, reverse=True))
        versions = heads(tr, entries[::-1])
        for version in reversed(versions):
            if version.value is not None and is_wanted(version.value):
                return True
            if version.revision <= first:
                return False
        if len(entries) < _VERSIONS_MAX:
            return False
        at = versions[0].revision - 1


def newest(tr: Reader, key: bytes, revision: Revision) -> Revision | None:
    """The revision at or before this one that last wrote a key, or removed it."""
    (found,) = newest_each(tr, [(key, revision)])
    return found


def newest_each(tr: Reader, places: Sequence[tuple[bytes, Revision]]) -> list[Revision | None]:
    """For each key, the revision up to a revision that last wrote it, or removed it. Takes one round trip."""
    return [_revision_of(found[0][0]) if found else None for found in _newest(tr, places)]


def following(tr: Reader, key: bytes, revision: Revision) -> Revision | None:
    """The revision after this one that next wrote a key, or removed it."""
    begin = key + (revision + 1).to_bytes(REVISION_BYTES, "big")
    found = next(iter(tr.range(begin, behind(key), limit=1)), None)
    return None if found is None else _revision_of(found[0])


def _stored(places: list[bytes], is_removal: bool, size_bytes: int) -> Stored:
    first = places[0]
    return Stored(first[:-_SUFFIX_BYTES], _revision_of(first), is_removal, tuple(places), size_bytes)


def _entry(key: bytes | None, revision: Revision, pieces: list[bytes]) -> Iterator[Entry]:
    if key is not None and pieces and pieces[0] != _TOMBSTONE:
        parts = pieces[1 : 1 + codec.parts_of(key, pieces[0])]
        yield Entry(key, revision, codec.unframe(key, pieces[0], parts))


def _revision_of(stored_key: bytes) -> Revision:
    return Revision(int.from_bytes(stored_key[-_SUFFIX_BYTES:-_PART_BYTES], "big"))
