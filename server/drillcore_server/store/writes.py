"""What a revision writes, as data: so that it can go into one transaction or into many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import Exists
from drillcore_server.domain.ids import CorpusNumber, Revision
from drillcore_server.domain.nodes import Level
from drillcore_server.store import manifests, versioned
from drillcore_server.store.corpus_keys import CorpusKeys
from drillcore_server.store.keyring import KeyNumber
from drillcore_server.store.sealed import SealedRecords
from drillcore_server.store.versioned import REVISION_BYTES

_KEY_OVERHEAD_BYTES: Final = 200
"""Of keys, conflict ranges and sealing, for each write: a generous guess."""
OWN_RAW_IDS: Final = b"\1"
"""Ends the locator of a chunk whose raws have ids of their own, so that none are made from the chunk's."""
FACT_MARK: Final = b"\4"
"""In the locator of a fact, where a node's has its level."""
TURN_MARK: Final = b"\5"
"""Likewise, in the locator of a turn of a conversation."""
LOCATOR_BYTES: Final = 5
"""Level and corpus number."""


@dataclass(frozen=True, slots=True)
class Write:
    """One record of a revision: put under a key, sealed if it says under which keys, or removed if there is no value.

    With `versioned` False it is a node's locator: a plain key that stays as it is. With `feed` it is an entry of the
    feed of changes, where the revision comes first.
    """

    key: bytes
    value: bytes | None
    number: KeyNumber | None = None
    versioned: bool = True
    is_dense: bool = False
    """Does not get shorter, as a vector: to be stored without trying."""
    block: bytes | None = None
    """Of a locator: where that chunk would be located from whose id an ingested raw would have this one."""
    feed: bytes = b""
    """What follows the revision in the key of an entry of the feed."""
    numbers: tuple[KeyNumber, ...] = ()
    """Of what is made of several sources, instead of `number`: sealed under all of these keys at once."""

    @property
    def size_bytes(self) -> int:
        return len(self.value or b"") + 4 * len(self.numbers) + _KEY_OVERHEAD_BYTES

    def apply(self, tr: Transaction, revision: Revision, sealed: SealedRecords) -> bytes | None:
        """Makes the write; the value as it is stored."""
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
        """The prefix of every key that it writes."""
        return self.key + revision.to_bytes(REVISION_BYTES, "big") + self.feed if self.versioned else self.key


def apply_all(
    tr: Transaction, keys: CorpusKeys, writes: Iterable[Write], revision: Revision, batch: int, sealed: SealedRecords
) -> tuple[list[Write], bytes]:
    """Makes the writes of one batch of a revision, with their manifest: which were made, and the manifest's hash.

    Locators that are there already are left as they are. Raises `Exists` for a node that another corpus or level has:
    read here, in the transaction that writes the locator, so two corpora cannot both get an id.
    """
    wanted = list(writes)
    known = _known_locators(tr, wanted)
    made = [write for write in wanted if write.versioned or _is_new(write, known)]
    listed: list[manifests.Entry] = []
    for write in made:
        stored = write.apply(tr, revision, sealed)
        if keys.is_committed(write.key):
            hashed = manifests.value_hash(write.key, revision, stored)
            listed.append(manifests.Entry(manifests.key_hash(write.key), hashed))
    return made, manifests.put(tr, keys, revision, batch, listed)


def locator_of(level: Level, number: CorpusNumber) -> bytes:
    return bytes([level]) + number.to_bytes(LOCATOR_BYTES - 1, "big")


def fact_locator(number: CorpusNumber) -> bytes:
    return FACT_MARK + number.to_bytes(LOCATOR_BYTES - 1, "big")


def turn_locator(number: CorpusNumber) -> bytes:
    return TURN_MARK + number.to_bytes(LOCATOR_BYTES - 1, "big")


def is_ingested_chunk(locator: bytes) -> bool:
    """Whether raws have ids that are made from this node's."""
    return locator[0] == Level.CHUNK and locator[LOCATOR_BYTES:] != OWN_RAW_IDS


def _known_locators(tr: Transaction, writes: Iterable[Write]) -> Mapping[bytes, bytes | None]:
    locators = [write for write in writes if not write.versioned]
    keys = {key for write in locators for key in (write.key, write.block) if key is not None}
    wanted = sorted(keys)
    return dict(zip(wanted, tr.get_many(wanted), strict=True))


def _is_new(write: Write, known: Mapping[bytes, bytes | None]) -> bool:
    """Whether a locator has yet to be written. Raises `Exists` if the id is another node's."""
    check_free(write.key, write.value or b"", known[write.key], known[write.block] if write.block else None)
    return known[write.key] is None


def check_free(key: bytes, wanted: bytes, stored: bytes | None, block: bytes | None) -> None:
    """Raises `Exists` unless a locator may be written: the id is new, or this very node's.

    `block` is the locator of the chunk whose raws' ids would be made from it. An ingested one's are its own.
    """
    if stored is None and block is not None and is_ingested_chunk(block):
        stored = bytes([Level.RAW]) + block[1:LOCATOR_BYTES]
    if stored is not None and stored[:LOCATOR_BYTES] != wanted[:LOCATOR_BYTES]:
        node = UUID(bytes=key[-16:])
        taken = "another corpus, or another level, has or had a node of this id"
        message = f"node {node}: {taken}; give it a new one, or use another tenant"
        raise Exists(Reason.NODE_EXISTS, message, node=str(node))
