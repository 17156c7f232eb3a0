"""The writes of a revision, as data that fits into one transaction or many, and the revision's manifest.

The manifest makes changes in the store itself detectable. Each batch of a revision leaves a list of its entries in the
order they were written, 36 bytes each:

    hash of the logical key (12)  hash of key, revision and stored value (24); zeros for a removal

The signed audit record of the revision contains the root, a hash of these lists. Sealed content is hashed as it is
stored, so the hash reveals nothing once the key is destroyed. Indexes that follow from the nodes have no entries;
`fsck` compares them with the nodes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from uuid import UUID

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.kernel import by_source
from drillcore_server.kernel.errors import Exists
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusNumber, Level, Revision
from drillcore_server.storage.keyring import KeyNumber
from drillcore_server.storage.sealed import SealedRecords
from drillcore_server.storage.versioned import REVISION_BYTES

_KEY_BYTES: Final = 12
_VALUE_BYTES: Final = 24
_ENTRY_BYTES: Final = _KEY_BYTES + _VALUE_BYTES
REMOVAL: Final = bytes(_VALUE_BYTES)
_ROOT: Final = b"drillcore manifest 1\n"


class Entry(NamedTuple):
    key: bytes
    """`key_hash` of the logical key."""
    value: bytes
    """`value_hash`, or `REMOVAL`."""


def key_hash(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()[:_KEY_BYTES]


def value_hash(key: bytes, revision: Revision, stored: bytes | None) -> bytes:
    """The hash of a value as it is stored. None is a removal."""
    if stored is None:
        return REMOVAL
    place = len(key).to_bytes(2, "big") + key + revision.to_bytes(REVISION_BYTES, "big")
    return hashlib.sha256(place + stored).digest()[:_VALUE_BYTES]


def put(tr: Transaction, keys: CorpusKeys, revision: Revision, batch: int, entries: Sequence[Entry]) -> bytes:
    """Stores the list of one batch and returns its hash."""
    listed = b"".join(key + value for key, value in entries)
    codec.write(tr, keys.manifest(revision, batch), listed)
    return hashlib.sha256(listed).digest()


def root(hashes: Iterable[bytes]) -> bytes:
    """The hash of a revision's lists, in the order of its batches."""
    return hashlib.sha256(_ROOT + b"".join(hashes)).digest()


def read(tr: Reader, keys: CorpusKeys, revision: Revision) -> tuple[list[Entry], bytes]:
    """What a revision wrote, in order, and the root that its audit record must contain."""
    entries: list[Entry] = []
    hashes: list[bytes] = []
    for _, listed in codec.scan(tr, *keys.manifests(revision)):
        entries.extend(_entries(listed))
        hashes.append(hashlib.sha256(listed).digest())
    return entries, root(hashes)


def _entries(listed: bytes) -> Iterator[Entry]:
    for start in range(0, len(listed), _ENTRY_BYTES):
        yield Entry(listed[start : start + _KEY_BYTES], listed[start + _KEY_BYTES : start + _ENTRY_BYTES])


_LISTED_BYTES: Final = 60
"""Likewise for a key of the index by source."""
_LISTED_MAX: Final = 5_000
"""How many keys one batch lists a record under. Each of them is a key of the index by source."""
_KEY_OVERHEAD_BYTES: Final = 200
"""A generous estimate of what keys, conflict ranges and sealing add to each write."""
OWN_RAW_IDS: Final = b"\1"
"""Ends the locator of a chunk whose raws have ids of their own, so that none are made from the chunk's id."""
FACT_MARK: Final = b"\4"
"""Takes the place of the level in the locator of a block of facts."""
TURN_MARK: Final = b"\5"
"""Takes the place of the level in the locator of a turn of a conversation."""
LOCATOR_BYTES: Final = 5
"""Level and corpus number."""


@dataclass(frozen=True, slots=True)
class Write:
    """One write of a revision: a record to put, or a removal if there is no value. It is sealed if it names keys.

    With `versioned` False it is a node's locator, a plain key that never changes. With `feed` it is an entry of the
    feed of changes, in which the revision comes first.
    """

    key: bytes
    value: bytes | None
    number: KeyNumber | None = None
    versioned: bool = True
    is_dense: bool = False
    """Compression would not shorten it, as with a vector."""
    block: bytes | None = None
    """For a locator: the locator key of the node from whose id the server may have made this id."""
    feed: bytes = b""
    """For an entry of the feed: what follows the revision in its key."""
    numbers: tuple[KeyNumber, ...] = ()
    """Used instead of `number` for what is made of several sources: sealed under all these keys at once."""
    listed: tuple[KeyNumber, ...] | None = None
    """Those of the numbers that the index by source lists the record under. None: all of them."""
    is_stored: bool = True
    """False for a write that only lists a record, which another write of the revision stores."""

    @property
    def size_bytes(self) -> int:
        own = len(self.value or b"") + 4 * len(self.numbers) if self.is_stored else 0
        return own + _LISTED_BYTES * len(self.to_list) + _KEY_OVERHEAD_BYTES

    @property
    def is_record(self) -> bool:
        """Whether it is of a record or an index entry, and neither a locator nor an entry of a feed."""
        return self.versioned and not self.feed

    @property
    def to_list(self) -> tuple[KeyNumber, ...]:
        return self.numbers if self.listed is None else self.listed

    def parts(self) -> Iterator[Write]:
        """The write, after others that list the record, if it has too many keys to be listed in one transaction."""
        for start in range(_LISTED_MAX, len(self.numbers), _LISTED_MAX):
            some = self.numbers[start : start + _LISTED_MAX]
            yield replace(self, value=b"", listed=some, is_stored=False)
        yield replace(self, listed=self.numbers[:_LISTED_MAX]) if len(self.numbers) > _LISTED_MAX else self

    def apply(self, tr: Transaction, revision: Revision, sealed: SealedRecords) -> bytes | None:
        """Makes the write, which must be one that is stored. Returns the value as it is stored."""
        if not self.versioned or self.feed:
            assert self.value is not None
            tr.set(self.place(revision), self.value)
        elif self.value is None:
            versioned.remove(tr, self.key, revision)
        elif self.number is None and not self.numbers:
            versioned.put(tr, self.key, revision, self.value)
        else:
            under = self.number if self.number is not None else self.numbers
            return sealed.put(tr, self.key, revision, under, self.value, is_dense=self.is_dense)
        return self.value

    def place(self, revision: Revision) -> bytes:
        """The prefix of every key that this write sets."""
        return self.key + revision.to_bytes(REVISION_BYTES, "big") + self.feed if self.versioned else self.key


class Applied(NamedTuple):
    """What one batch of a revision wrote."""

    places: list[bytes]
    """Every key that it set begins with one of these."""
    manifest: bytes
    """The hash of its manifest."""


def apply_all(
    tr: Transaction, keys: CorpusKeys, writes: Iterable[Write], revision: Revision, batch: int, sealed: SealedRecords
) -> Applied:
    """Makes the writes of one batch, stores their manifest, and adds them to the index by source.

    Leaves locators that exist already. Raises `Exists` if another corpus or level has the node. It is read in the
    transaction that writes the locator, so two corpora cannot both get an id.
    """
    wanted = list(writes)
    known = _known_locators(tr, wanted)
    made = [write for write in wanted if write.versioned or _is_new(write, known)]
    lists = by_source.lists_of(tr.snapshot, keys, [write for write in made if write.is_record], revision)
    by_source.put(tr, keys, revision, batch, lists)
    listed: list[Entry] = []
    for write in (write for write in made if write.is_stored):
        stored = write.apply(tr, revision, sealed)
        if keys.is_committed(write.key):
            hashed = value_hash(write.key, revision, stored)
            listed.append(Entry(key_hash(write.key), hashed))
    places = [write.place(revision) for write in made]
    places += [keys.manifest(revision, batch), *(keys.by_source(number, revision, batch) for number in lists)]
    return Applied(places, put(tr, keys, revision, batch, listed))


def locator_of(level: Level, number: CorpusNumber) -> bytes:
    return bytes([level]) + number.to_bytes(LOCATOR_BYTES - 1, "big")


def fact_locator(number: CorpusNumber) -> bytes:
    return FACT_MARK + number.to_bytes(LOCATOR_BYTES - 1, "big")


def turn_locator(number: CorpusNumber) -> bytes:
    return TURN_MARK + number.to_bytes(LOCATOR_BYTES - 1, "big")


def is_ingested_chunk(locator: bytes) -> bool:
    """Whether raws have ids that are made from this node's."""
    return locator[0] == Level.CHUNK and locator[LOCATOR_BYTES:] != OWN_RAW_IDS


def locators_of(writes: Iterable[Write]) -> list[bytes]:
    """The keys of all locators that decide whether the nodes of these writes may have their ids."""
    locators = [write for write in writes if not write.versioned]
    return sorted({key for write in locators for key in (write.key, write.block) if key is not None})


def _known_locators(tr: Transaction, writes: Iterable[Write]) -> Mapping[bytes, bytes | None]:
    wanted = locators_of(writes)
    return dict(zip(wanted, tr.get_many(wanted), strict=True))


def _is_new(write: Write, known: Mapping[bytes, bytes | None]) -> bool:
    """Whether a locator has yet to be written. Raises `Exists` if another node has the id."""
    check_free(write.key, write.value or b"", known[write.key], known[write.block] if write.block else None)
    return known[write.key] is None


def check_free(key: bytes, wanted: bytes, stored: bytes | None, block: bytes | None) -> None:
    """Raises `Exists` unless the locator may be written: the id is new, or already this node's.

    `block` is the locator of the node from whose id the server would make ids like this one: of the raws and facts of a
    chunk, or of the facts of a block.
    """
    if stored is None and block is not None and is_ingested_chunk(block):
        stored = bytes([Level.RAW]) + block[1:LOCATOR_BYTES]
    elif stored is None and block is not None and block[:1] == FACT_MARK:
        stored = block
    if stored is not None and stored[:LOCATOR_BYTES] != wanted[:LOCATOR_BYTES]:
        node = UUID(bytes=key[-16:])
        taken = "another corpus, or another level, has or had a node of this id"
        message = f"node {node}: {taken}; give it a new one, or use another tenant"
        raise Exists(Reason.NODE_EXISTS, message, node=str(node))
