"""Removes records that are sealed under destroyed keys, and all index entries that lead to them.

    list: walk over everything -> put the root of the list into an audit record -> remove: walk again

Nothing is removed before it is recorded, so that `fsck` can tell a purge from tampering: it accepts only removals that
such a list names. Index entries that follow from nodes and facts are not listed, as in manifests; they are removed with
the record that they lead to. A removed record leaves a stub with its key numbers. Nothing new is ever sealed under a
destroyed key, so both walks find the same records, whatever else is written in between.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from uuid import UUID

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_server.facts.store import fact_id
from drillcore_server.graphs.quad_store import indexed_place
from drillcore_server.graphs.turn_store import turns_of
from drillcore_server.kernel import erasures
from drillcore_server.kernel import writes as manifests
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import NodeId, PrincipalId, RequestId, Revision, node_id
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed import emptied, is_empty, keys_of
from drillcore_server.storage.spaces import Space
from drillcore_server.storage.versioned import REVISION_BYTES, Value


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
    cursor: bytes = b""
    """Where the current walk continues. The first walk lists, the second removes."""
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


PURGE: Final = RecordKind(Purge)
_PAGE_KEYS: Final = 500
"""Keys read in one transaction. Records may have 100 kB each."""
_KEY_BYTES: Final = 12
_ENTRY_BYTES: Final = _KEY_BYTES + REVISION_BYTES
_ROOT: Final = b"drillcore purge 1\n"
_LAST: Final = Revision((1 << 8 * REVISION_BYTES) - 2)
"""Greater than every revision."""
SEALED: Final = frozenset(
    {
        Space.MASTERS,
        Space.SECTIONS,
        Space.CHUNKS,
        Space.VECTORS,
        Space.DOCUMENTS,
        Space.SOURCES,
        Space.FACTS,
        Space.FACT_VECTORS,
        Space.COMMUNITIES,
        Space.QUADS,
        Space.TURNS,
        Space.LIBRARY,
        Space.LIBRARY_BLOBS,
        Space.ENTITY_VECTORS,
        Space.FOREIGN_SIGNATURES,
    }
)
_EDGE_SPACES: Final = frozenset({Space.EDGES, Space.GRAPH_INDEX})
"""Spaces of edges, which need both of their turns."""


class Listed(NamedTuple):
    """A record on the list of a purge."""

    key: bytes
    """`manifests.key_hash` of the logical key."""
    revision: Revision


def newest(tr: Reader, keys: CorpusKeys) -> Purge | None:
    """The purge that was begun last."""
    last = next(iter(tr.range(*keys.purges(), limit=1, reverse=True)), None)
    return None if last is None else PURGE.read(tr, keys.purge(keys.parse_purge(last[0])))


def all_of(tr: Reader, keys: CorpusKeys) -> Iterator[Purge]:
    for _, stored in codec.scan(tr, *keys.purges()):
        yield PURGE.decode(stored)


def put(tr: Transaction, keys: CorpusKeys, purge: Purge) -> None:
    PURGE.write(tr, keys.purge(purge.number), purge)


def begin(tr: Transaction, keys: CorpusKeys) -> Purge | None:
    """The unfinished purge, or a new one for all erasures without one. None if there is nothing to purge."""
    last = newest(tr, keys)
    if last is not None and not last.finished:
        return last
    found = erasures.of_corpus(tr, keys)
    left = [erasure for erasure in found if erasure.purged_at is None and erasure.destroyed_at is not None]
    if not left:
        return None
    numbers = tuple(erasure.number for erasure in left)
    destroyed = tuple(sorted({key for erasure in left for key in erasure.key_numbers}))
    purge = Purge(1 if last is None else last.number + 1, numbers, destroyed)
    put(tr, keys, purge)
    return purge


def list_page(tr: Transaction, keys: CorpusKeys, purge: Purge) -> Purge:
    """Lists the next page of records to remove, and returns the updated purge."""
    page = _Page.read(tr.snapshot, keys, purge)
    committed = (value for value in page.doomed if keys.is_committed(value.key))
    found = [Listed(manifests.key_hash(value.key), value.revision) for value in committed]
    after = replace(purge, cursor=page.following or b"", is_listed=page.following is None)
    if found:
        codec.write(tr, keys.purged(purge.number, purge.batches), b"".join(map(_written, found)))
        after = replace(after, batches=purge.batches + 1, listed=purge.listed + len(found))
    if after.is_listed:
        after = replace(after, root=list_of(tr, keys, purge.number)[1])
    put(tr, keys, after)
    return after


def remove_page(tr: Transaction, keys: CorpusKeys, purge: Purge) -> Purge:
    """Removes the next page of listed records, and returns the updated purge. The list must be in an audit record."""
    assert purge.record is not None
    page = _Page.read(tr.snapshot, keys, purge)
    for value in page.doomed:
        _remove(tr, keys, value)
    after = replace(purge, cursor=page.following or b"", finished=page.following is None)
    after = replace(after, removed=purge.removed + len(page.doomed))
    put(tr, keys, after)
    return after


def _remove(tr: Transaction, keys: CorpusKeys, entry: Value) -> None:
    """Leaves a stub with the key numbers of a sealed record, so that reads still report ERASED."""
    if entry.value is None:
        versioned.forget_removal(tr, entry.key, entry.revision)
    elif keys.space_of(entry.key) in SEALED:
        versioned.remove(tr, entry.key, entry.revision)  # with all its parts
        versioned.put(tr, entry.key, entry.revision, emptied(entry.value), checksum=False)
    else:
        versioned.purge(tr, entry.key, entry.revision)


def list_of(tr: Reader, keys: CorpusKeys, number: int) -> tuple[set[Listed], bytes]:
    """The records on the list of a purge, and the root that its audit record must have."""
    listed: set[Listed] = set()
    digest = hashlib.sha256(_ROOT)
    for _, stored in codec.scan(tr, *keys.all_purged(number)):
        listed.update(_read(stored))
        digest.update(hashlib.sha256(stored).digest())
    return listed, digest.digest()


@dataclass(frozen=True, slots=True)
class _Page:
    """The entries of one page that must be removed, and where the next page begins."""

    doomed: Sequence[Value]
    following: bytes | None

    @classmethod
    def read(cls, tr: Reader, keys: CorpusKeys, purge: Purge) -> _Page:
        spaces = keys.by_revision()
        number = next(place for place, space in enumerate(spaces) if purge.cursor < space.end)
        space = spaces[number]
        values, following = versioned.values_page(tr, max(purge.cursor, space.begin), space.end, _PAGE_KEYS)
        if following is None and number + 1 < len(spaces):
            following = spaces[number + 1].begin
        destroyed = frozenset(purge.keys)
        return cls([entry for entry in values if _is_doomed(tr, keys, entry, destroyed)], following)


def _is_doomed(tr: Reader, keys: CorpusKeys, entry: Value, destroyed: frozenset[int]) -> bool:
    """Whether a record is sealed under a destroyed key, or an index entry leads only to such records."""
    space = keys.space_of(entry.key)
    if space in SEALED:
        return entry.value is not None and not is_empty(entry.value) and not destroyed.isdisjoint(keys_of(entry.value))
    if space is Space.EMBEDDINGS or (entry.value is None and keys.is_committed(entry.key)):
        return False  # a removal holds no content, and manifests list it
    owners, readers = list(_owners(tr, keys, space, entry)), _readers(tr, entry)
    left = (_is_left(tr, owner, *readers, destroyed) for owner in owners)
    return bool(owners) and not (all(left) if space in _EDGE_SPACES else any(left))


def _readers(tr: Reader, entry: Value) -> tuple[Revision, Revision]:
    """The first and the last revision at which readers see the entry.

    An entry may outlive the record it was made with: a section that is written anew stays in its lists.
    """
    if entry.value is None:
        return Revision(0), _LAST
    following = versioned.following(tr, entry.key, entry.revision)
    return entry.revision, _LAST if following is None else Revision(following - 1)


def _owners(tr: Reader, keys: CorpusKeys, space: Space, entry: Value) -> Iterator[bytes]:
    """The keys of the records that an index entry leads to. The entry is removed when none of them is left.

    For an edge, the keys of both turns: it is removed when one of them is gone.
    """
    last = node_id(entry.key[-16:])
    if space in {Space.CATEGORIES, Space.SECTION_LIST}:
        yield keys.section(last)
    elif space in {Space.FACTS_BY_CHUNK, Space.FACTS_BY_SOURCE, Space.FACT_EXPIRIES, Space.FACT_WORDS}:
        yield keys.fact(fact_id(entry.key))
    elif space is Space.QUAD_INDEX:
        yield keys.quad(indexed_place(keys, entry.key))
    elif space in _EDGE_SPACES:
        yield from map(keys.turn, turns_of(keys, entry.key))
    elif space is Space.PARENTS:
        yield keys.chunk(_chunk_of(tr, keys, last, entry))
    else:
        yield keys.chunk(last)


def _chunk_of(tr: Reader, keys: CorpusKeys, node: NodeId, entry: Value) -> NodeId:
    """The chunk that an entry of a parent is about: the node itself, or for a raw with an id of its own, its chunk."""
    is_chunk = any(True for _ in tr.range(keys.chunk(node), versioned.behind(keys.chunk(node)), limit=1))
    return node if is_chunk or entry.value is None else node_id(entry.value)


def _is_left(tr: Reader, key: bytes, first: Revision, last: Revision, destroyed: frozenset[int]) -> bool:
    """Whether a reader at one of these revisions finds a record that can be opened. Most often it is the newest."""
    at = versioned.newest(tr, key, last)
    while at is not None:
        found = versioned.get(tr, key, at)
        if found is not None and not is_empty(found.value) and destroyed.isdisjoint(keys_of(found.value)):
            return True
        at = versioned.newest(tr, key, Revision(at - 1)) if at > first else None
    return False


def _written(listed: Listed) -> bytes:
    return listed.key + listed.revision.to_bytes(REVISION_BYTES, "big")


def _read(stored: bytes) -> Iterable[Listed]:
    for start in range(0, len(stored), _ENTRY_BYTES):
        entry = stored[start : start + _ENTRY_BYTES]
        yield Listed(entry[:_KEY_BYTES], Revision(int.from_bytes(entry[_KEY_BYTES:], "big")))
