"""A record's leaf: what a server signs when it makes the record, and what the log's Merkle tree is made of.

    format (1 byte, 1)  store (16)  log (16)  incarnation (4)  versionstamp (10)  record id (16)
    commitment (32)  key hash (4)  signature (64)

The signature covers store, log, record id and commitment, so neither a record nor its signature can be moved elsewhere.
Incarnation and versionstamp give the place in the order of commits. They are known only after signing; the tree covers
them. The commitment is a salted hash of the record's body, so a leaf reveals nothing about the body.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from drillcore_formats.audit.findings import Malformed

LEAF_FORMAT: Final = 1
SALT_BYTES: Final = 16
SERVER_LOG: Final = UUID(int=0)
"""The log of calls that belong to no tenant."""

_UUIDS_AT_HAND: Final = 100
_LEAF: Final = struct.Struct(">B16s16sI10s16s32s4s64s")
_SIGNED: Final = b"drillcore audit record 1\n"
_COMMITTED: Final = b"drillcore audit body 1\n"


@dataclass(frozen=True, slots=True)
class Leaf:
    store: UUID
    log: UUID
    """The tenant's id, or `SERVER_LOG`."""
    incarnation: int
    """How often the store was restored from a backup. Versionstamps are ordered only within one incarnation."""
    versionstamp: bytes
    record: UUID
    commitment: bytes
    key_hash: bytes
    """Names the key that signed; see `notes.key_hash`."""
    signature: bytes

    @property
    def place(self) -> tuple[int, bytes]:
        """The place in the order of commits. It grows from leaf to leaf of a log."""
        return self.incarnation, self.versionstamp

    def encode(self) -> bytes:
        return _LEAF.pack(
            LEAF_FORMAT,
            self.store.bytes,
            self.log.bytes,
            self.incarnation,
            self.versionstamp,
            self.record.bytes,
            self.commitment,
            self.key_hash,
            self.signature,
        )

    @classmethod
    def decode(cls, data: bytes) -> Leaf:
        if len(data) != _LEAF.size or data[0] != LEAF_FORMAT:
            raise Malformed("it is not a leaf of an audit log, or of an unknown format")
        _, store, log, incarnation, versionstamp, record, commitment, key_hash, signature = _LEAF.unpack(data)
        return cls(
            _known_uuid(store),
            _known_uuid(log),
            incarnation,
            versionstamp,
            UUID(bytes=record),
            commitment,
            key_hash,
            signature,
        )

    @property
    def signed(self) -> bytes:
        return signed_message(self.store, self.log, self.record, self.commitment)


@functools.lru_cache(maxsize=_UUIDS_AT_HAND)
def _known_uuid(data: bytes) -> UUID:
    """Ids of stores and logs are cached, because the same few are in all leaves."""
    return UUID(bytes=data)


def signed_message(store: UUID, log: UUID, record: UUID, commitment: bytes) -> bytes:
    """The bytes that the server's key signs for a record."""
    return _SIGNED + store.bytes + log.bytes + record.bytes + commitment


def commit_to(salt: bytes, body: bytes) -> bytes:
    """The commitment to a record's body or private part. It reveals nothing without the salt."""
    return hashlib.sha256(_COMMITTED + salt + body).digest()
