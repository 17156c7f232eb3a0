"""Audit records in the store, in the order of their commits. They are spread over buckets, so that no key is hot.

`RecordOpener` decrypts a stored record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import orjson

from drillcore_fdb.engine import VERSIONSTAMP_BYTES, Reader, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_formats.audit.encoding import to_base64
from drillcore_formats.audit.leaves import SALT_BYTES, Leaf
from drillcore_server.storage.ids import PrincipalId, RecordId, RequestId, Revision
from drillcore_server.storage.keyring import KeyErased, KeyLostError
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind
from drillcore_server.storage.sealed import SealedRecords
from drillcore_server.storage.versioned import Entry

BUCKETS: Final = 8
_STATE_BYTES: Final = 8
_HASH_BYTES: Final = 32
_FINGERPRINT_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class AuditState:
    """The incarnation and the signing key of new records.

    Every record reads it with a conflict. So a restore or a new signing key, which change it, conflict with records
    under way.
    """

    incarnation: int
    key_number: int


@dataclass(frozen=True, slots=True)
class StoredRecord:
    log: UUID
    id: UUID
    key_hash: bytes
    commitment: bytes
    """The hash of salt and body."""
    signature: bytes
    body: bytes
    """Sealed: salt, then canonical JSON."""
    private: bytes | None
    """Sealed in the same way, under the key of the source that the call was about."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a record is stored."""

    incarnation: int
    bucket: int
    versionstamp: bytes


@dataclass(frozen=True, slots=True)
class Recorded:
    """Where the record of a request is, and hashes of the request and of what it did."""

    position: Position
    log: UUID
    id: RecordId
    fingerprint: bytes
    """The hash of the request."""
    effects: bytes
    """The hash of what the call touched."""


RECORD = RecordKind(StoredRecord)


def state(tr: Reader, keys: Keyspace) -> AuditState:
    stored = tr.get(keys.audit_state())
    if stored is None or len(stored) != _STATE_BYTES:
        raise StoreCorruptError("the state of the audit log is missing; restore the store from a backup")
    return AuditState(int.from_bytes(stored[:4], "big"), int.from_bytes(stored[4:], "big"))


def set_state(tr: Transaction, keys: Keyspace, new: AuditState) -> None:
    tr.set(keys.audit_state(), new.incarnation.to_bytes(4, "big") + new.key_number.to_bytes(4, "big"))


def bucket_of(record: UUID) -> int:
    return record.bytes[-1] % BUCKETS


def append(tr: Transaction, keys: Keyspace, incarnation: int, record: StoredRecord) -> None:
    """Adds the record at the end of its bucket. Its versionstamp is the commit's: one record a transaction."""
    tr.set_versionstamped_key(keys.audit_record_template(incarnation, bucket_of(record.id)), RECORD.encode(record))


def key_of(keys: Keyspace, position: Position) -> bytes:
    return keys.audit_record(position.incarnation, position.bucket, position.versionstamp)


def get(tr: Reader, keys: Keyspace, position: Position) -> StoredRecord | None:
    (stored,) = get_many(tr, keys, [position])
    return None if stored is None else RECORD.decode(stored)


def get_many(tr: Reader, keys: Keyspace, positions: Sequence[Position]) -> list[bytes | None]:
    """The stored records at these positions, in one round trip; `RECORD` decodes them. None for a missing one."""
    return tr.get_many([key_of(keys, position) for position in positions])


def note_request(
    tr: Transaction, key: bytes, incarnation: int, record: StoredRecord, fingerprint: bytes, effects: bytes
) -> None:
    """Notes which record a request has. `key` is from `keys.audit_request`."""
    fixed = incarnation.to_bytes(4, "big") + bytes([bucket_of(record.id)]) + record.log.bytes + record.id.bytes
    value = bytes(VERSIONSTAMP_BYTES) + fixed + fingerprint[:_FINGERPRINT_BYTES] + effects
    tr.set_versionstamped_value(key, value + bytes(4))


def find_request(
    tr: Reader, keys: Keyspace, principal: PrincipalId, request: RequestId, refused: str = ""
) -> Recorded | None:
    stored = tr.get(keys.audit_request(principal, request, refused))
    if stored is None:
        return None
    stamp, rest = stored[:VERSIONSTAMP_BYTES], stored[VERSIONSTAMP_BYTES:]
    return Recorded(
        Position(int.from_bytes(rest[:4], "big"), rest[4], stamp),
        UUID(bytes=rest[5:21]),
        RecordId(UUID(bytes=rest[21:37])),
        rest[37 : 37 + _FINGERPRINT_BYTES],
        rest[37 + _FINGERPRINT_BYTES :],
    )


def is_of(recorded: Recorded, fingerprint: bytes) -> bool:
    """Whether this record belongs to the request with this fingerprint."""
    return recorded.fingerprint == fingerprint[:_FINGERPRINT_BYTES]


PRIVATE: Final = b"private"
"""The private part of a record is sealed bound to the record's id followed by this."""


@dataclass(frozen=True, slots=True)
class OpenedRecord:
    leaf: Leaf
    salt: bytes
    body: bytes
    """Canonical JSON."""
    private_salt: bytes = b""
    private: bytes | None = None
    """Canonical JSON. None if there is no private part, it was erased, or its key is lost."""
    erased: bool = False
    """Whether there was a private part whose key was destroyed."""

    @property
    def size_bytes(self) -> int:
        return len(self.body) + len(self.private or b"")

    def document(self, *, with_content: bool = True) -> dict[str, Any]:
        """The record as in proofs and exports. Without content, only the leaf, which reveals nothing."""
        shown: dict[str, Any] = {"leaf": to_base64(self.leaf.encode())}
        if with_content:
            shown |= {"salt": to_base64(self.salt), "body": orjson.loads(self.body)}
        if with_content and self.private is not None:
            shown |= {"private_salt": to_base64(self.private_salt), "private": orjson.loads(self.private)}
        return shown


class RecordOpener:
    def __init__(self, store: UUID, sealed: SealedRecords) -> None:
        self._store = store
        self._sealed = sealed

    def leaf(self, stored: StoredRecord, position: Position) -> Leaf:
        return Leaf(
            self._store,
            stored.log,
            position.incarnation,
            position.versionstamp,
            stored.id,
            stored.commitment,
            stored.key_hash,
            stored.signature,
        )

    def body(self, stored: StoredRecord) -> tuple[bytes, bytes]:
        """Salt and body. Raises `StoreCorruptError` if they were changed or cannot be unsealed."""
        return self._opened(stored.id.bytes, stored.body)

    def open(self, stored: StoredRecord, position: Position) -> OpenedRecord:
        """The opened record. Raises `StoreCorruptError` if it was changed or its body cannot be unsealed."""
        leaf, (salt, body) = self.leaf(stored, position), self.body(stored)
        if stored.private is None:
            return OpenedRecord(leaf, salt, body)
        try:
            private_salt, private = self._opened(stored.id.bytes + PRIVATE, stored.private)
        except KeyErased:
            return OpenedRecord(leaf, salt, body, erased=True)
        except KeyLostError:
            return OpenedRecord(leaf, salt, body)  # a check reports a private part that is missing without an erasure
        return OpenedRecord(leaf, salt, body, private_salt, private)

    def _opened(self, bound_to: bytes, sealed: bytes) -> tuple[bytes, bytes]:
        opened = self._sealed.opened(Entry(bound_to, Revision(0), sealed)).value
        return opened[:SALT_BYTES], opened[SALT_BYTES:]
