"""The removal of what is sealed under destroyed keys, and of all that led to it.

    list: walk over everything once -> put the root of the list on the record -> remove: walk once more

Nothing is removed before it is on the record, so that `fsck` can tell a purge from tampering: it accepts as removed
what such a list names, and nothing else. Entries of indexes that follow from nodes and facts, words of facts too, are
not listed, as in manifests; one goes with the record that it led to. Of a record the numbers of its keys stay. What is
sealed under destroyed keys never grows, so the two walks find the same, whatever else is written meanwhile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_server.domain.erasures import Purge
from drillcore_server.domain.ids import NodeId, Revision
from drillcore_server.store import erasures, manifests, versioned
from drillcore_server.store.corpus_keys import CorpusKeys
from drillcore_server.store.facts import fact_id
from drillcore_server.store.hierarchy import node_id
from drillcore_server.store.quads import indexed_place
from drillcore_server.store.records import RecordKind
from drillcore_server.store.sealed import emptied, is_empty, keys_of
from drillcore_server.store.spaces import Space
from drillcore_server.store.turns import turns_of
from drillcore_server.store.versioned import REVISION_BYTES, Value

PURGE: Final = RecordKind(Purge)
_PAGE_KEYS: Final = 500
"""Read in one transaction: records may have 100 kB each."""
_KEY_BYTES: Final = 12
_ENTRY_BYTES: Final = _KEY_BYTES + REVISION_BYTES
_ROOT: Final = b"drillcore purge 1\n"
_LAST: Final = Revision((1 << 8 * REVISION_BYTES) - 2)
"""Beyond every revision."""
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
        Space.TURNS,
        Space.QUADS,
        Space.LIBRARY,
        Space.LIBRARY_BLOBS,
        Space.ENTITY_VECTORS,
        Space.FOREIGN_SIGNATURES,
    }
)
_OF_TWO: Final = frozenset({Space.EDGES, Space.GRAPH_INDEX})
"""An edge leads nowhere without either of its turns."""


class Listed(NamedTuple):
    """A record that a purge removes, as its list names it."""

    key: bytes
    """`manifests.key_hash` of the logical key."""
    revision: Revision


def newest(tr: Reader, keys: CorpusKeys) -> Purge | None:
    """The last purge that was begun."""
    last = next(iter(tr.range(*keys.purges(), limit=1, reverse=True)), None)
    return None if last is None else PURGE.read(tr, keys.purge(keys.parse_purge(last[0])))


def all_of(tr: Reader, keys: CorpusKeys) -> Iterator[Purge]:
    for _, stored in codec.scan(tr, *keys.purges()):
        yield PURGE.decode(stored)


def put(tr: Transaction, keys: CorpusKeys, purge: Purge) -> None:
    PURGE.write(tr, keys.purge(purge.number), purge)


def begin(tr: Transaction, keys: CorpusKeys) -> Purge | None:
    """The purge under way, or a new one of all erasures that have none; None if there is nothing to purge."""
    last = newest(tr, keys)
    if last is not None and not last.finished:
        return last
    left = [one for one in erasures.of_corpus(tr, keys) if one.purged_at is None and one.destroyed_at is not None]
    if not left:
        return None
    numbers = tuple(one.number for one in left)
    destroyed = tuple(sorted({key for one in left for key in one.key_numbers}))
    purge = Purge(1 if last is None else last.number + 1, numbers, destroyed)
    put(tr, keys, purge)
    return purge


def list_page(tr: Transaction, keys: CorpusKeys, purge: Purge) -> Purge:
    """Lists the next page of what is to go; the purge as it is then."""
    page = _Page.read(tr.snapshot, keys, purge)
    found = [Listed(manifests.key_hash(one.key), one.revision) for one in page.doomed if keys.is_committed(one.key)]
    after = replace(purge, cursor=page.following or b"", is_listed=page.following is None)
    if found:
        codec.write(tr, keys.purged(purge.number, purge.batches), b"".join(map(_written, found)))
        after = replace(after, batches=purge.batches + 1, listed=purge.listed + len(found))
    if after.is_listed:
        after = replace(after, root=list_of(tr, keys, purge.number)[1])
    put(tr, keys, after)
    return after


def remove_page(tr: Transaction, keys: CorpusKeys, purge: Purge) -> Purge:
    """Removes the next page of what was listed, which must be on the record; the purge as it is then."""
    assert purge.record is not None
    page = _Page.read(tr.snapshot, keys, purge)
    for one in page.doomed:
        _remove(tr, keys, one)
    after = replace(purge, cursor=page.following or b"", finished=page.following is None)
    after = replace(after, removed=purge.removed + len(page.doomed))
    put(tr, keys, after)
    return after


def _remove(tr: Transaction, keys: CorpusKeys, one: Value) -> None:
    """Of a record stays under which key it was: who asks for it is told that it was erased, as before the purge."""
    if one.value is None:
        versioned.forget_removal(tr, one.key, one.revision)
    elif keys.space_of(one.key) in SEALED:
        versioned.remove(tr, one.key, one.revision)  # with all its parts
        versioned.put(tr, one.key, one.revision, emptied(one.value), checksum=False)
    else:
        versioned.purge(tr, one.key, one.revision)


def list_of(tr: Reader, keys: CorpusKeys, number: int) -> tuple[set[Listed], bytes]:
    """What a purge removes or removed, and the root that its audit record must have."""
    listed: set[Listed] = set()
    digest = hashlib.sha256(_ROOT)
    for _, stored in codec.scan(tr, *keys.all_purged(number)):
        listed.update(_read(stored))
        digest.update(hashlib.sha256(stored).digest())
    return listed, digest.digest()


@dataclass(frozen=True, slots=True)
class _Page:
    """Some of a corpus's entries: those that have to go, and where the next page begins."""

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
        return cls([one for one in values if _is_doomed(tr, keys, one, destroyed)], following)


def _is_doomed(tr: Reader, keys: CorpusKeys, one: Value, destroyed: frozenset[int]) -> bool:
    """Whether a record is sealed under a destroyed key, or all that an entry leads its readers to is, or was."""
    space = keys.space_of(one.key)
    if space in SEALED:
        return one.value is not None and not is_empty(one.value) and not destroyed.isdisjoint(keys_of(one.value))
    if space is Space.EMBEDDINGS or (one.value is None and keys.is_committed(one.key)):
        return False  # removals hold nothing, and manifests list those of these
    owners, readers = list(_owners(tr, keys, space, one)), _readers(tr, space, one)
    left = (_is_left(tr, owner, *readers, destroyed) for owner in owners)
    return bool(owners) and not (all(left) if space in _OF_TWO else any(left))


def _readers(tr: Reader, space: Space, one: Value) -> tuple[Revision, Revision]:
    """The first and the last revision whose readers an entry matters to. One may outlive the record it was made with:
    a section that is made anew stays in its lists."""
    if one.value is None:
        return Revision(0), _LAST
    if space is Space.CITING:  # goes with the record of its own revision
        return one.revision, one.revision
    following = versioned.following(tr, one.key, one.revision)
    return one.revision, _LAST if following is None else Revision(following - 1)


def _owners(tr: Reader, keys: CorpusKeys, space: Space, one: Value) -> Iterator[bytes]:
    """The keys of the record that an entry of an index leads to: the entry goes if none of them has one any more.

    Of an edge those of both turns: it goes if one of them is gone.
    """
    last = node_id(one.key[-16:])
    if space in {Space.CATEGORIES, Space.SECTION_LIST}:
        yield keys.section(last)
    elif space is Space.CITING:
        yield keys.section(last)
        yield keys.master()
    elif space in {Space.FACTS_BY_CHUNK, Space.FACTS_BY_SOURCE, Space.FACT_EXPIRIES, Space.FACT_WORDS}:
        yield keys.fact(fact_id(one.key))
    elif space in _OF_TWO:
        yield from map(keys.turn, turns_of(keys, one.key))
    elif space is Space.QUAD_INDEX:
        yield keys.quad(indexed_place(keys, one.key))
    elif space is Space.PARENTS:
        yield keys.chunk(_chunk_of(tr, keys, last, one))
    else:
        yield keys.chunk(last)


def _chunk_of(tr: Reader, keys: CorpusKeys, node: NodeId, one: Value) -> NodeId:
    """Of an entry among the parents: the chunk itself, or that of a raw which has an id of its own."""
    is_chunk = any(True for _ in tr.range(keys.chunk(node), versioned.behind(keys.chunk(node)), limit=1))
    return node if is_chunk or one.value is None else node_id(one.value)


def _is_left(tr: Reader, key: bytes, first: Revision, last: Revision, destroyed: frozenset[int]) -> bool:
    """Whether a reader at one of these revisions has a record there that can be opened. The newest is looked at first,
    which mostly can."""
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
