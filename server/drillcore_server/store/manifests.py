"""What each revision wrote, entry by entry, as hashes: so that a record which was changed in the store itself is found.

A batch of a revision's writes leaves a list of entries, 36 bytes each, in the order they were written:

    hash of the logical key (12)  hash of key, revision and stored value (24); zeros for a removal

The root, a hash of the lists, is in the revision's audit record, which is signed. What is sealed is hashed as it is
stored: when its key is destroyed, the hash tells nothing. Indexes that follow from the nodes have no entries; `fsck`
compares them with the nodes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_server.domain.ids import Revision
from drillcore_server.store.corpus_keys import CorpusKeys
from drillcore_server.store.versioned import REVISION_BYTES

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
    """Of a value as it is stored; None is a removal."""
    if stored is None:
        return REMOVAL
    place = len(key).to_bytes(2, "big") + key + revision.to_bytes(REVISION_BYTES, "big")
    return hashlib.sha256(place + stored).digest()[:_VALUE_BYTES]


def put(tr: Transaction, keys: CorpusKeys, revision: Revision, batch: int, entries: Sequence[Entry]) -> bytes:
    """Stores the list of one batch; its hash."""
    listed = b"".join(key + value for key, value in entries)
    codec.write(tr, keys.manifest(revision, batch), listed)
    return hashlib.sha256(listed).digest()


def root(hashes: Iterable[bytes]) -> bytes:
    """Of the lists of a revision, in the order of its batches."""
    return hashlib.sha256(_ROOT + b"".join(hashes)).digest()


def read(tr: Reader, keys: CorpusKeys, revision: Revision) -> tuple[list[Entry], bytes]:
    """What a revision wrote, in order, and the root that its audit record must have."""
    entries: list[Entry] = []
    hashes: list[bytes] = []
    for _, listed in codec.scan(tr, *keys.manifests(revision)):
        entries.extend(_entries(listed))
        hashes.append(hashlib.sha256(listed).digest())
    return entries, root(hashes)


def _entries(listed: bytes) -> Iterator[Entry]:
    for start in range(0, len(listed), _ENTRY_BYTES):
        yield Entry(listed[start : start + _KEY_BYTES], listed[start + _KEY_BYTES : start + _ENTRY_BYTES])
