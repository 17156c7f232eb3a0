"""Appends the next records, in the order of their commits, to the trees of their logs. One transaction at a time.

A record is appended only if its leaf is what was signed: its unsealed body matches the commitment or, if it cannot be
unsealed, the signature is right. A damaged record cannot be skipped, because the log would then deny that it existed.
It cannot be appended either, because the tree would vouch for something that nobody signed. So its log stops before it.
The head says why, VerifyAudit shows it, and the log continues once the record is restored from a backup (`catch_up`).
Other logs continue, unless nobody can tell to which log the damaged record belongs: then all logs wait. Calls are
answered and recorded all the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

import orjson

from drillcore_fdb.engine import Reader, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_formats.audit.findings import VerificationFailed
from drillcore_formats.audit.leaves import SERVER_LOG, Leaf, commit_to
from drillcore_formats.audit.merkle import leaf_hash
from drillcore_server.audit import log_store as audit_log
from drillcore_server.audit import search as indexes
from drillcore_server.audit.log_store import Head, Lease, LogEntry, Place
from drillcore_server.audit.search import Hours, Term, Terms
from drillcore_server.audit.tiles import GrowingTree, edge
from drillcore_server.kernel.journal import SigningKeys
from drillcore_server.storage import audit_records
from drillcore_server.storage.audit_records import RECORD, Position, RecordOpener, StoredRecord
from drillcore_server.storage.ids import RecordId, TenantId
from drillcore_server.storage.keyspace import Keyspace

RECORDS_MAX: Final = 500
BYTES_MAX: Final = 1_000_000
"""About how much one transaction reads and writes. The last record may exceed it."""
SCANNED_MAX: Final = 5_000
"""Records that catching up reads in one transaction. Most of them belong to other logs."""
_BYTES_PER_KEY: Final = 80
_LOG_PLACE: Final = slice(3, 19)
_LOG_MARK: Final = b"\x97\xc4\x10"
"""The beginning of a stored record: an array of seven values, the first being the 16 bytes of the log's id."""


@dataclass(frozen=True, slots=True)
class Sound:
    """A record that can go into its log."""

    position: Position
    log: UUID
    record: RecordId
    leaf: bytes
    """The hash of the leaf."""
    at: int
    terms: list[Term]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Damaged:
    position: Position
    log: UUID | None
    """None if nobody can tell."""
    problem: str
    size_bytes: int


Found = Sound | Damaged


@dataclass(slots=True)
class Appended:
    """The result of a transaction."""

    records: int = 0
    sizes: dict[UUID, int] = field(default_factory=dict)
    """The new sizes of the logs that grew."""
    problems: dict[UUID | None, str] = field(default_factory=dict)
    """Why logs have stopped. The key None says why all have."""
    more: bool = False
    """Whether there may be more to do right now."""


class LogWriter:
    def __init__(self, keys: Keyspace, opener: RecordOpener, terms: Terms, signing: SigningKeys) -> None:
        self._keys = keys
        self._opener = opener
        self._terms = terms
        self._signing = signing

    def append(self, tr: Transaction, lease: Lease) -> tuple[Lease, Appended]:
        """Appends the records after the lease's place, and returns the updated lease, which the caller must write.

        May be re-run: it continues from the place of the lease.
        """
        state = audit_records.state(tr, self._keys)
        done = Appended()
        batch, unknown = self._gather(tr, lease.place, state.incarnation, done)
        self._extend(tr, batch, state.key_number, done)
        if unknown is not None and not batch:
            done.problems = {} if lease.problem == unknown.problem else {None: unknown.problem}
            return replace(lease, problem=unknown.problem), done
        if not batch:
            return replace(lease, problem=""), done
        last = batch[-1].position
        return replace(lease, incarnation=last.incarnation, versionstamp=last.versionstamp, problem=""), done

    def catch_up(self, tr: Transaction, lease: Lease, log: UUID) -> Appended:
        """Continues a log that stopped, if the damage is repaired, up to where the other logs are."""
        head, done = audit_log.head(tr, self._keys, log), Appended()
        state = audit_records.state(tr, self._keys)
        batch: list[Found] = []
        scanned, size_bytes, place = 0, 0, head.place
        for position, value in audit_log.records_after(tr.snapshot, self._keys, head.place, state.incarnation):
            if (position.incarnation, position.versionstamp) > lease.place:
                break
            scanned, place = scanned + 1, (position.incarnation, position.versionstamp)
            if _marked_log(value) in {log, None}:
                batch.append(self._read(tr, position, value))
                size_bytes += batch[-1].size_bytes
            if scanned == SCANNED_MAX or len(batch) == RECORDS_MAX or size_bytes > BYTES_MAX:
                done.more = True
                break
        mine = [found for found in batch if found.log in {log, None}]
        new = self._extended(tr, log, replace(head, problem=""), mine, state.key_number, done)
        if not new.problem:
            new = replace(new, incarnation=place[0], versionstamp=place[1], problem=head.problem if done.more else "")
        elif new.problem == head.problem:
            done.problems, done.more = {}, False
        if new != head:
            audit_log.set_head(tr, self._keys, log, new)
        return done

    def _gather(
        self, tr: Transaction, after: Place, incarnation: int, done: Appended
    ) -> tuple[list[Found], Damaged | None]:
        """The next records, up to the limits or to a damaged record of an unknown log."""
        batch: list[Found] = []
        size_bytes = 0
        for position, value in audit_log.records_after(tr.snapshot, self._keys, after, incarnation):
            found = self._read(tr, position, value)
            if found.log is None:
                assert isinstance(found, Damaged)
                return batch, found
            batch.append(found)
            size_bytes += found.size_bytes
            if len(batch) == RECORDS_MAX or size_bytes > BYTES_MAX:
                done.more = True
                break
        return batch, None

    def _extend(self, tr: Transaction, batch: list[Found], key_number: int, done: Appended) -> None:
        by_log: dict[UUID, list[Found]] = {}
        for found in batch:
            assert found.log is not None
            by_log.setdefault(found.log, []).append(found)
        heads = audit_log.heads_of(tr, self._keys, list(by_log))
        going = {log: head for log, head in heads.items() if not head.problem}
        tr.snapshot.get_many([key for log, head in going.items() for key in self._expected(log, head, by_log[log])])
        for log, head in going.items():
            audit_log.set_head(tr, self._keys, log, self._extended(tr, log, head, by_log[log], key_number, done))

    def _expected(self, log: UUID, head: Head, batch: Iterable[Found]) -> Iterator[bytes]:
        """The keys that appending these records to their log will get, for reading ahead."""
        sound = [found for found in batch if isinstance(found, Sound)]
        yield from (self._keys.audit_tile(log, level, index) for level, index in edge(head.size))
        yield from (self._keys.audit_place(found.record) for found in sound)
        yield from indexes.hour_keys(self._keys, log, (found.at for found in sound))

    def _extended(
        self, tr: Transaction, log: UUID, head: Head, batch: Iterable[Found], key_number: int, done: Appended
    ) -> Head:
        """Appends records to one log up to the first damaged one, and returns the log's new head."""
        try:
            tree = GrowingTree(head.size, audit_log.tiles(tr.snapshot, self._keys, log, edge(head.size)))
        except StoreCorruptError as error:
            return self._stopped(log, head, error.message, done)
        if tree.root() != head.root:
            return self._stopped(
                log, head, "the log's tiles do not lead to the root of its checkpoint; restore them from a backup", done
            )
        last, problem, hours = head.place, "", Hours()
        for found in self._checked(tr, batch, head.place):
            if isinstance(found, Damaged):
                problem = found.problem
                break
            self._put(tr, log, tree, found, hours)
            last = found.position.incarnation, found.position.versionstamp
        grown = self._grown(tr, log, head, tree, last, key_number, hours, done)
        return self._stopped(log, grown, problem, done) if problem else grown

    def _put(self, tr: Transaction, log: UUID, tree: GrowingTree, found: Sound, hours: Hours) -> None:
        index = tree.size
        audit_log.put_entry(tr, self._keys, log, index, LogEntry(found.position, found.record, found.at))
        indexes.put(tr, self._keys, log, index, found.terms)
        hours.note(found.at, index)
        tree.append(found.leaf)

    def _grown(
        self,
        tr: Transaction,
        log: UUID,
        head: Head,
        tree: GrowingTree,
        last: Place,
        key_number: int,
        hours: Hours,
        done: Appended,
    ) -> Head:
        if tree.size == head.size:
            return head
        for (level, index), tile in tree.tiles().items():
            tr.set(self._keys.audit_tile(log, level, index), tile)
        hours.write(tr, self._keys, log)
        done.records += tree.size - head.size
        done.sizes[log] = tree.size
        root = tree.root()
        note = self._signing.checkpoint(key_number, log, tree.size, root)
        return Head(tree.size, root, last[0], last[1], note.encode())

    def _checked(self, tr: Transaction, batch: Iterable[Found], after: Place) -> Iterator[Found]:
        """Finds records that the log already has, or that belong before its end."""
        batch = list(batch)
        seen: set[UUID] = set()
        sound = [found.record for found in batch if isinstance(found, Sound)]
        placed = dict(
            zip(sound, tr.snapshot.get_many([self._keys.audit_place(record) for record in sound]), strict=True)
        )
        for found in batch:
            place = found.position.incarnation, found.position.versionstamp
            if isinstance(found, Sound) and (found.record in seen or placed[found.record] is not None):
                yield Damaged(found.position, found.log, f"the record {found.record} is stored twice", 0)
            elif isinstance(found, Sound) and place <= after:
                yield Damaged(found.position, found.log, f"the record {found.record} is behind the log's end", 0)
            else:
                yield found
            if isinstance(found, Sound):
                seen.add(found.record)

    def _stopped(self, log: UUID, head: Head, problem: str, done: Appended) -> Head:
        done.problems[log] = problem
        return replace(head, problem=problem)

    def _read(self, tr: Transaction, position: Position, value: bytes) -> Found:
        try:
            stored = RECORD.decode(value)
        except StoreCorruptError:
            return self._damaged(tr, position, _marked_log(value), len(value))
        leaf = self._opener.leaf(stored, position)
        body = self._body(stored)
        if body is None and not self._is_signed(tr, leaf):
            return self._damaged(tr, position, stored.log, len(value))
        terms = [] if body is None else self._terms.of_body(stored.log, body)
        at = _made_at(stored.id) if body is None else indexes.at_of(body)
        size_bytes = len(value) + _BYTES_PER_KEY * (len(terms) + 2)
        return Sound(position, stored.log, RecordId(stored.id), leaf_hash(leaf.encode()), at, terms, size_bytes)

    def _body(self, stored: StoredRecord) -> dict[str, Any] | None:
        """The body, if it matches the commitment and names this record. None otherwise."""
        try:
            salt, written = self._opener.body(stored)
            body = orjson.loads(written)
        except (StoreCorruptError, ValueError):
            return None
        agrees = commit_to(salt, written) == stored.commitment
        same = agrees and (body["id"], body["log"]) == (str(stored.id), str(stored.log))
        return body if same else None

    def _is_signed(self, tr: Reader, leaf: Leaf) -> bool:
        try:
            key = self._signing.trusted(tr).key(leaf.key_hash, "the record")
            key.check(leaf.signature, leaf.signed, "the record")
        except VerificationFailed:
            return False
        return True

    def _damaged(self, tr: Reader, position: Position, log: UUID | None, size_bytes: int) -> Damaged:
        """A damaged record. Its log is only believed if such a log exists."""
        known = log is not None and (
            log == SERVER_LOG
            or tr.get(self._keys.audit_head(log)) is not None
            or tr.get(self._keys.tenant(TenantId(log))) is not None
        )
        problem = (
            f"the record at incarnation {position.incarnation}, bucket {position.bucket}, versionstamp "
            f"{position.versionstamp.hex()} was changed or damaged; restore it from a backup"
        )
        return Damaged(position, log if known else None, problem, size_bytes)


def _marked_log(value: bytes) -> UUID | None:
    """The log that a stored record names. None if its beginning cannot be read."""
    return UUID(bytes=value[_LOG_PLACE]) if value.startswith(_LOG_MARK) and len(value) >= _LOG_PLACE.stop else None


def _made_at(record: UUID) -> int:
    """The time in an id of version 7, in microseconds since 1970."""
    return (record.int >> 80) * 1_000
