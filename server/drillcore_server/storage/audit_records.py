"""Audit records as they are stored: in the order of their commits, spread over buckets so that no key is hot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import VERSIONSTAMP_BYTES, Reader, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.storage.ids import PrincipalId, RecordId, RequestId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind

BUCKETS: Final = 8
_STATE_BYTES: Final = 8
_HASH_BYTES: Final = 32
_FINGERPRINT_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class AuditState:
    """What every record is made under.

    A restore or a new signing key changes it, which conflicts with records under way.
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
        raise StoreCorruptError("the state of the audit log is not there")
    return AuditState(int.from_bytes(stored[:4], "big"), int.from_bytes(stored[4:], "big"))


def set_state(tr: Transaction, keys: Keyspace, new: AuditState) -> None:
    tr.set(keys.audit_state(), new.incarnation.to_bytes(4, "big") + new.key_number.to_bytes(4, "big"))


def bucket_of(record: UUID) -> int:
    return record.bytes[-1] % BUCKETS


def append(tr: Transaction, keys: Keyspace, incarnation: int, record: StoredRecord) -> None:
    """Adds the record at the end of its bucket. Its versionstamp is the commit's: one record a transaction."""
    tr.set_versionstamped_key(keys.audit_record_template(incarnation, bucket_of(record.id)), RECORD.encode(record))


def get(tr: Reader, keys: Keyspace, position: Position) -> StoredRecord | None:
    stored = tr.get(keys.audit_record(position.incarnation, position.bucket, position.versionstamp))
    return None if stored is None else RECORD.decode(stored)


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
