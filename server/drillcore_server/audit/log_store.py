"""Audit logs in the store: the sequencer's lease, entries, tiles, heads and checkpoints, and proofs made from tiles.

A log has the records of one tenant, or the server's own, ordered by (incarnation, versionstamp). Only the sequencer
(`audit/sequencer.py`) writes here, in transactions that read its lease.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final
from uuid import UUID

from drillcore_fdb import codec
from drillcore_fdb.engine import VERSIONSTAMP_BYTES, Reader, Streaming, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_fdb.tuples import KeyRange
from drillcore_formats.audit.merkle import EMPTY_ROOT
from drillcore_proto.reasons import Reason
from drillcore_server.audit.tiles import Tree
from drillcore_server.kernel.errors import Missing
from drillcore_server.storage import audit_records
from drillcore_server.storage.audit_records import BUCKETS, AuditState, Position
from drillcore_server.storage.ids import RecordId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind

_ENTRY_BYTES: Final = 4 + 1 + VERSIONSTAMP_BYTES + 16 + 8
_POSITION_BYTES: Final = 4 + 1 + VERSIONSTAMP_BYTES
_FROM_EACH_BUCKET: Final = 64
"""How many records of each bucket are read together."""

Place = tuple[int, bytes]
"""Incarnation and versionstamp: the place of a record in the order of all commits."""
BEGINNING: Final[Place] = (0, bytes(VERSIONSTAMP_BYTES))


@dataclass(frozen=True, slots=True)
class Lease:
    """Which server puts records in order, until when, and how far it has come. `epoch` grows with every new owner."""

    epoch: int
    owner: UUID
    until: datetime
    incarnation: int = BEGINNING[0]
    versionstamp: bytes = BEGINNING[1]
    problem: str = ""
    """Why all logs have stopped; empty while all is well."""

    @property
    def place(self) -> Place:
        return self.incarnation, self.versionstamp


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a log."""

    size: int = 0
    root: bytes = EMPTY_ROOT
    incarnation: int = BEGINNING[0]
    """With `versionstamp`, the place of the last record that was considered for this log."""
    versionstamp: bytes = BEGINNING[1]
    checkpoint: str = ""
    """The signed note for this size and root."""
    problem: str = ""
    """Why the log has stopped; empty while all is well."""

    @property
    def place(self) -> Place:
        return self.incarnation, self.versionstamp


@dataclass(frozen=True, slots=True)
class LogEntry:
    """What a log has at an index: a record, its position in the store, and the time of its call in microseconds."""

    position: Position
    record: RecordId
    at: int


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Where a record is in its log."""

    log: UUID
    index: int


LEASE: Final = RecordKind(Lease)
HEAD: Final = RecordKind(Head)


def lease(tr: Reader, keys: Keyspace) -> Lease | None:
    return LEASE.read(tr, keys.audit_sequencer())


def set_lease(tr: Transaction, keys: Keyspace, new: Lease) -> None:
    LEASE.write(tr, keys.audit_sequencer(), new)


def head(tr: Reader, keys: Keyspace, log: UUID) -> Head:
    """The head of a log. It is empty if the log has no record yet."""
    return HEAD.read(tr, keys.audit_head(log)) or Head()


def ends_of(keys: Keyspace, log: UUID) -> list[bytes]:
    """The keys that say up to where a log has every record, for reading ahead."""
    return [keys.audit_head(log), keys.audit_sequencer(), keys.audit_state()]


def heads_of(tr: Reader, keys: Keyspace, logs: Sequence[UUID]) -> dict[UUID, Head]:
    """Heads of several logs, in one round trip."""
    places = [keys.audit_head(log) for log in logs]
    stored = zip(logs, places, tr.get_many(places), strict=True)
    return {log: Head() if value is None else HEAD.decode(codec.unframe(key, value, [])) for log, key, value in stored}


def set_head(tr: Transaction, keys: Keyspace, log: UUID, new: Head) -> None:
    HEAD.write(tr, keys.audit_head(log), new)


def heads(tr: Reader, keys: Keyspace) -> Iterator[tuple[UUID, Head]]:
    """All logs that have a head, with their heads."""
    for key, stored in codec.scan(tr, *keys.audit_heads()):
        yield UUID(bytes=key[-16:]), HEAD.decode(stored)


def put_entry(tr: Transaction, keys: Keyspace, log: UUID, index: int, entry: LogEntry) -> None:
    """Stores which record a log has at an index, and at which index the record is."""
    value = encode_position(entry.position) + entry.record.bytes + entry.at.to_bytes(8, "big", signed=True)
    tr.set(keys.audit_entry(log, index), value)
    tr.set(keys.audit_place(entry.record), log.bytes + index.to_bytes(8, "big"))


def entry(tr: Reader, keys: Keyspace, log: UUID, index: int) -> LogEntry | None:
    return entries(tr, keys, log, [index])[0]


def entries(tr: Reader, keys: Keyspace, log: UUID, indexes: Sequence[int]) -> list[LogEntry | None]:
    """The entries at these indexes, in one round trip. None for a missing one."""
    stored = tr.get_many([keys.audit_entry(log, index) for index in indexes])
    return [None if value is None else decode_entry(value) for value in stored]


def decode_entry(stored: bytes) -> LogEntry:
    if len(stored) != _ENTRY_BYTES:
        raise StoreCorruptError("an entry of an audit log cannot be read")
    rest = stored[_POSITION_BYTES:]
    record = RecordId(UUID(bytes=rest[:16]))
    return LogEntry(decode_position(stored[:_POSITION_BYTES]), record, int.from_bytes(rest[16:], "big", signed=True))


def encode_position(position: Position) -> bytes:
    return position.incarnation.to_bytes(4, "big") + bytes([position.bucket]) + position.versionstamp


def decode_position(stored: bytes) -> Position:
    return Position(int.from_bytes(stored[:4], "big"), stored[4], stored[5:])


def place_of(tr: Reader, keys: Keyspace, record: RecordId) -> RecordPlace | None:
    """Where a record is in its log. None until the log has it."""
    stored = tr.get(keys.audit_place(record))
    return None if stored is None else decode_place(stored)


def decode_place(stored: bytes) -> RecordPlace:
    return RecordPlace(UUID(bytes=stored[:16]), int.from_bytes(stored[16:], "big"))


def put_checkpoint(tr: Transaction, keys: Keyspace, log: UUID, size: int, note: str) -> None:
    codec.write(tr, keys.audit_checkpoint(log, size), note.encode())


def checkpoint(tr: Reader, keys: Keyspace, log: UUID, size: int) -> str | None:
    """The published checkpoint of a size, if it was kept."""
    stored = codec.read(tr, keys.audit_checkpoint(log, size))
    return None if stored is None else stored.decode()


def last_checkpoint(tr: Reader, keys: Keyspace, log: UUID) -> tuple[int, str] | None:
    """The newest kept checkpoint, with its size."""
    begin, end = keys.audit_checkpoints(log)
    for key, stored in tr.range(begin, end, limit=1, reverse=True):
        return int.from_bytes(key[-8:], "big"), codec.unframe(key, stored, []).decode()
    return None


def checkpoints_after(
    tr: Reader, keys: Keyspace, log: UUID, size: int, limit: int, up_to: int | None = None
) -> list[tuple[int, str]]:
    """The kept checkpoints of larger sizes, in order, up to a size if one is given."""
    end = keys.audit_checkpoints(log).end if up_to is None else keys.audit_checkpoint(log, up_to + 1)
    entries = tr.range(keys.audit_checkpoint(log, size + 1), end, limit=limit, streaming=Streaming.WANT_ALL)
    return [(int.from_bytes(key[-8:], "big"), codec.unframe(key, value, []).decode()) for key, value in entries]


def published_size(tr: Reader, keys: Keyspace, log: UUID) -> int:
    """The size of the last checkpoint that was written to the sink."""
    return int.from_bytes(tr.get(keys.audit_published(log)) or b"", "big")


def set_published_size(tr: Transaction, keys: Keyspace, log: UUID, size: int) -> None:
    tr.set(keys.audit_published(log), size.to_bytes(8, "big"))


def tiles(tr: Reader, keys: Keyspace, log: UUID, which: Sequence[tuple[int, int]]) -> list[bytes | None]:
    """Tiles by level and index, in one round trip."""
    return tr.get_many([keys.audit_tile(log, level, index) for level, index in which])


def records_after(
    tr: Reader, keys: Keyspace, after: Place, incarnation: int, *, before: Place | None = None, reverse: bool = False
) -> Iterator[tuple[Position, bytes]]:
    """The stored records of all logs after a place, in the order of their commits, up to the present incarnation.

    `before` ends them before a place.

    A transaction that sees a record also sees every record with a lower versionstamp, so none can appear in between
    later.
    """
    if before is not None and before <= after:
        return
    incarnations = range(after[0], (incarnation if before is None else before[0]) + 1)
    for number in reversed(incarnations) if reverse else incarnations:
        first = after[1] if number == after[0] else None
        end = before[1] if before is not None and number == before[0] else None
        yield from _in_order(tr, _spans(keys, number, first, end), number, keys, reverse)


def _spans(keys: Keyspace, incarnation: int, after: bytes | None, before: bytes | None) -> list[KeyRange]:
    """The records of each bucket between two versionstamps."""
    spans = [keys.audit_records(incarnation, bucket, after) for bucket in range(BUCKETS)]
    if before is None:
        return spans
    return [KeyRange(span.begin, keys.audit_record(incarnation, bucket, before)) for bucket, span in enumerate(spans)]


def _in_order(
    tr: Reader, spans: list[KeyRange], incarnation: int, keys: Keyspace, reverse: bool
) -> Iterator[tuple[Position, bytes]]:
    """The records of an incarnation by versionstamp. A page of every bucket is read in one round trip."""
    while True:
        pages = tr.range_many(spans, limit=_FROM_EACH_BUCKET, reverse=reverse)
        found = [(_stamp(key), bucket, value) for bucket, page in enumerate(pages) for key, value in page]
        # A full page may have more behind it. The order is known up to the end of the full page that ends first.
        ends = [_stamp(page[-1][0]) for page in pages if len(page) == _FROM_EACH_BUCKET]
        end = (max if reverse else min)(ends, default=None)
        for stamp, bucket, value in sorted(found, reverse=reverse):
            yield Position(incarnation, bucket, stamp), value
            if stamp == end:
                break
        if end is None:
            return
        spans = [
            KeyRange(span.begin, keys.audit_record(incarnation, bucket, end))
            if reverse
            else KeyRange(keys.audit_records(incarnation, bucket, end).begin, span.end)
            for bucket, span in enumerate(spans)
        ]


def _stamp(key: bytes) -> bytes:
    return key[-VERSIONSTAMP_BYTES:]


def begin_incarnation(tr: Transaction, keys: Keyspace) -> AuditState:
    """Begins a new incarnation of a restored store, so that new records come after all that it has."""
    old = audit_records.state(tr, keys)
    new = AuditState(old.incarnation + 1, old.key_number)
    audit_records.set_state(tr, keys, new)
    return new


def is_restored(tr: Reader, keys: Keyspace) -> bool:
    """Whether the log has records with a later version than the store's own: then its versions have started again."""
    version = tr.read_version()
    held = lease(tr, keys)
    now = audit_records.state(tr, keys).incarnation
    buckets = [keys.audit_records(now, bucket) for bucket in range(BUCKETS)]
    stamps = [_stamp(key) for page in tr.range_many(buckets, limit=1, reverse=True) for key, _ in page]
    if held is not None and held.incarnation == now:
        stamps.append(held.versionstamp)
    return any(int.from_bytes(stamp[:8], "big") > version for stamp in stamps)


@dataclass(frozen=True, slots=True)
class LogCheckpoint:
    """The signed state of a log at one size."""

    size: int
    note: str


@dataclass(frozen=True, slots=True)
class Inclusion:
    """The proof that a record is at an index of a checkpoint's tree."""

    index: int
    hashes: list[bytes]
    checkpoint: LogCheckpoint


def tree_of(tr: Reader, keys: Keyspace, log: UUID, size: int) -> Tree:
    return Tree(size, partial(tiles, tr, keys, log))


def newest_checkpoint(tr: Reader, keys: Keyspace, log: UUID) -> LogCheckpoint:
    """The checkpoint of the head, with the signatures of witnesses if it was published.

    Raises `Missing` if the log has no record yet.
    """
    newest = _grown_head(tr, keys, log)
    return LogCheckpoint(newest.size, checkpoint(tr, keys, log, newest.size) or newest.checkpoint)


def checkpoint_of(tr: Reader, keys: Keyspace, log: UUID, size: int) -> LogCheckpoint:
    """The checkpoint of a size. Raises `Missing` unless it was kept or is the newest."""
    kept = checkpoint(tr, keys, log, size)
    if kept is not None:
        return LogCheckpoint(size, kept)
    newest = head(tr, keys, log)
    if size == 0 or size != newest.size:
        message = f"no checkpoint of {size} records was kept; the log has {newest.size} records"
        raise Missing(Reason.CHECKPOINT_NOT_FOUND, message)
    return LogCheckpoint(size, newest.checkpoint)


def checkpoint_with(tr: Reader, keys: Keyspace, log: UUID, index: int) -> LogCheckpoint:
    """A checkpoint whose tree has this index: preferably the newest published one, else the head's."""
    kept = last_checkpoint(tr, keys, log)
    if kept is not None and kept[0] > index:
        return LogCheckpoint(*kept)
    newest = _grown_head(tr, keys, log)
    return LogCheckpoint(newest.size, newest.checkpoint)


def inclusion(tr: Reader, keys: Keyspace, log: UUID, index: int) -> Inclusion:
    """The inclusion proof of a record. Raises `Missing` if the log has no record yet."""
    found = checkpoint_with(tr, keys, log, index)
    return Inclusion(index, tree_of(tr, keys, log, found.size).inclusion(index, found.size), found)


def consistency(tr: Reader, keys: Keyspace, log: UUID, first: int, second: int) -> list[bytes]:
    """The consistency proof. Raises `Missing` unless first <= second <= size of the log."""
    size = head(tr, keys, log).size
    if not first <= second <= size:
        message = f"first_size {first} must not exceed second_size {second}, nor that the log's size {size}"
        raise Missing(Reason.CHECKPOINT_NOT_FOUND, message)
    return tree_of(tr, keys, log, size).consistency(first, second)


def _grown_head(tr: Reader, keys: Keyspace, log: UUID) -> Head:
    newest = head(tr, keys, log)
    if newest.size == 0:
        raise Missing(Reason.CHECKPOINT_NOT_FOUND, "the log has no record yet")
    return newest
