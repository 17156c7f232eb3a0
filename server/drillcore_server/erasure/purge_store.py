"""Removes records that are sealed under destroyed keys, and all index entries that lead to them.

    list: walk over the index by source -> put the root of the list into an audit record -> remove: walk again

Nothing is removed before it is recorded, so that `fsck` can tell a purge from tampering: it accepts only removals that
such a list names. Index entries that follow from nodes and facts are not listed, as in manifests; they are removed with
the record that they lead to. A removed record leaves a stub with its key numbers. Nothing new is ever sealed under a
destroyed key, so both walks find the same records, whatever else is written in between. The lists of the destroyed
keys go last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from uuid import UUID

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_server.erasure.purge_walk import Place, entries_of_sections, read_page
from drillcore_server.kernel import erasures
from drillcore_server.kernel import writes as manifests
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import PrincipalId, RequestId, Revision
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed import emptied
from drillcore_server.storage.versioned import REVISION_BYTES, Value, VersionPlace


@dataclass(frozen=True, slots=True)
class Purge:
    """Removes the bytes that erased sources left in a corpus: first lists, then records, then removes them."""

    number: int
    """Counts the purges of the corpus from 1."""
    erasures: tuple[int, ...]
    """The numbers of the purged erasures."""
    keys: tuple[int, ...]
    """The destroyed keys. Whatever is sealed under any of them is removed."""
    batches: int = 0
    """Number of batches of the list."""
    listed: int = 0
    """Number of records on the list."""
    at: Place | None = None
    """Where the current walk continues. None: at the beginning. The first walk lists, the second removes."""
    is_listed: bool = False
    root: bytes = b""
    """The root of the list, as the audit record has it."""
    record: UUID | None = None
    """The audit record of the list. Nothing is removed before there is one."""
    by: PrincipalId | None = None
    request_id: RequestId | None = None
    """With `by`, the key to that audit record."""
    removed: int = 0
    finished: bool = False
    settled: int = 0
    """Once it has finished, no erasure up to this number is left to purge."""


PURGE: Final = RecordKind(Purge)
_PAGE_KEYS: Final = 500
"""Listed keys that one transaction looks at. Records may have 100 kB each."""
_KEY_BYTES: Final = 12
_ENTRY_BYTES: Final = _KEY_BYTES + REVISION_BYTES
_ROOT_MARK: Final = b"drillcore purge 1\n"


class Listed(NamedTuple):
    """A record on the list of a purge."""

    key: bytes
    """`manifests.key_hash` of the logical key."""
    revision: Revision


def newest(tr: Reader, keys: CorpusKeys) -> Purge | None:
    """The purge that was begun last."""
    last = next(iter(tr.range(*keys.purges(), limit=1, reverse=True)), None)
    if last is None:
        return None
    key = keys.purge(keys.parse_purge(last[0]))
    is_whole = last[0] == key and not codec.parts_of(*last)
    return PURGE.decode(codec.unframe(*last, [])) if is_whole else PURGE.read(tr, key)


def all_of(tr: Reader, keys: CorpusKeys) -> Iterator[Purge]:
    for _, stored in codec.scan(tr, *keys.purges()):
        yield PURGE.decode(stored)


def put(tr: Transaction, keys: CorpusKeys, purge: Purge) -> None:
    PURGE.write(tr, keys.purge(purge.number), purge)


def begin(tr: Reader, keys: CorpusKeys) -> Purge | None:
    """The unfinished purge, or a new one for all erasures without one. None if there is nothing to purge.

    A new one is not stored: its first page is to be listed in the same transaction.
    """
    last = newest(tr, keys)
    if last is not None and not last.finished:
        return last
    found = list(erasures.of_corpus(tr, keys, 0 if last is None else last.settled))
    left = [erasure for erasure in found if erasure.purged_at is None and erasure.destroyed_at is not None]
    if not left:
        return None
    waiting = [erasure.number for erasure in found if erasure.destroyed_at is None]
    settled = min([found[-1].number, *(number - 1 for number in waiting)])
    numbers = tuple(erasure.number for erasure in left)
    destroyed = tuple(sorted({key for erasure in left for key in erasure.key_numbers}))
    return Purge(1 if last is None else last.number + 1, numbers, destroyed, settled=settled)


def list_page(tr: Transaction, keys: CorpusKeys, purge: Purge) -> Purge:
    """Lists the next page of records to remove, and returns the updated purge."""
    page = read_page(tr.snapshot, keys, purge.keys, purge.at, _PAGE_KEYS)
    committed = [place for place in page.entries if keys.is_committed(place.key)]
    entries = versioned.those_there(tr.snapshot, committed) if committed else []
    places = [*(VersionPlace(version.key, version.revision) for version in page.records), *entries]
    found = [Listed(manifests.key_hash(place.key), place.revision) for place in places]
    after = replace(purge, at=page.following, is_listed=page.following is None)
    batch = b"".join(map(_written, found))
    if found:
        codec.write(tr, keys.purged(purge.number, purge.batches), batch)
        after = replace(after, batches=purge.batches + 1, listed=purge.listed + len(found))
    if after.is_listed:
        is_whole = purge.batches == 0
        after = replace(after, root=_root([batch] if found else []) if is_whole else list_of(tr, keys, purge.number)[1])
    put(tr, keys, after)
    return after


def remove_page(tr: Transaction, keys: CorpusKeys, purge: Purge) -> Purge:
    """Removes the next page of listed records, and returns the updated purge. The list must be in an audit record."""
    assert purge.record is not None
    page = read_page(tr.snapshot, keys, purge.keys, purge.at, _PAGE_KEYS)
    for version in page.records:
        _empty(tr, version)
    entries = [*page.entries, *entries_of_sections(tr.snapshot, keys, page.sections, frozenset(purge.keys))]
    removed = len(page.records) + versioned.purge(tr, entries, keys.is_committed)
    after = replace(purge, at=page.following, finished=page.following is None, removed=purge.removed + removed)
    if after.finished:
        for number in purge.keys:
            tr.clear_range(*keys.all_by_source(number))
    put(tr, keys, after)
    return after


def _empty(tr: Transaction, version: Value) -> None:
    """Leaves a stub with the key numbers of a sealed record, so that reads still report ERASED."""
    assert version.value is not None
    versioned.remove(tr, version.key, version.revision)  # with all its parts
    versioned.put(tr, version.key, version.revision, emptied(version.value), checksum=False)


def list_of(tr: Reader, keys: CorpusKeys, number: int) -> tuple[set[Listed], bytes]:
    """The records on the list of a purge, and the root that its audit record must have."""
    batches = [stored for _, stored in codec.scan(tr, *keys.all_purged(number))]
    return {listed for batch in batches for listed in _read(batch)}, _root(batches)


def _root(batches: Iterable[bytes]) -> bytes:
    return hashlib.sha256(_ROOT_MARK + b"".join(hashlib.sha256(batch).digest() for batch in batches)).digest()


def _written(listed: Listed) -> bytes:
    return listed.key + listed.revision.to_bytes(REVISION_BYTES, "big")


def _read(stored: bytes) -> Iterable[Listed]:
    for start in range(0, len(stored), _ENTRY_BYTES):
        entry = stored[start : start + _ENTRY_BYTES]
        yield Listed(entry[:_KEY_BYTES], Revision(int.from_bytes(entry[_KEY_BYTES:], "big")))
