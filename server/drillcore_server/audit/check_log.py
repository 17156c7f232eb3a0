"""Checks a stored log: every record against what was signed, and the tree made of the records.

    verified    leaf, signature, body and private part agree, and the tree has the leaf at its index
    erased      the same, except that the key of the private part was destroyed and a record of the log says so
    a problem   anything else, with the index and what is wrong

This finds damage, and edits of the database that bypassed the server. Whoever does not trust the server itself uses
exports, proofs and the offline verifier instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Reader, Streaming
from drillcore_fdb.errors import StoreCorruptError
from drillcore_formats.audit.checkpoints import Checkpoint, log_origin
from drillcore_formats.audit.findings import Mismatch, VerificationFailed
from drillcore_formats.audit.keys import TrustedKeys
from drillcore_formats.audit.merkle import leaf_hash
from drillcore_formats.audit.notes import Note
from drillcore_formats.audit.records import NOT_ERASED, PrivatePart, Sequence, check_content, check_leaf
from drillcore_server.audit import log_store as audit_log
from drillcore_server.audit.log_store import Head, LogEntry, Place, RecordPlace, tree_of
from drillcore_server.audit.search import AuditFilter, LogSearch, until_enough
from drillcore_server.audit.tiles import TILE_HASHES, Tree, full_tiles
from drillcore_server.kernel.trail import Action
from drillcore_server.storage import audit_records
from drillcore_server.storage.audit_records import RECORD, OpenedRecord, RecordOpener
from drillcore_server.storage.keyspace import Keyspace

RECORDS_MAX: Final = 10_000
PROBLEMS_MAX: Final = 100
"""Problems in one answer. Checking stops there."""


@dataclass(frozen=True, slots=True)
class Problem:
    index: int
    record: UUID | None
    problem: str


@dataclass(slots=True)
class Checked:
    """What was found from `start` up to `next_start`."""

    start: int
    next_start: int
    size: int
    checkpoint: str
    verified: int = 0
    erased: int = 0
    problems: list[Problem] = field(default_factory=list)

    def blame(self, index: int, record: UUID | None, problem: str) -> None:
        self.problems.append(Problem(index, record, problem))


class LogChecker:
    def __init__(
        self, keys: Keyspace, opener: RecordOpener, search: LogSearch, trusted: Callable[[Reader], TrustedKeys]
    ) -> None:
        """`trusted` returns the keys that the store may have signed with; see `SigningKeys.trusted`."""
        self._keys = keys
        self._opener = opener
        self._search = search
        self._trusted = trusted

    def check(self, tr: Reader, log: UUID, start: int, records_max: int, time_s: float) -> Checked:
        """Checks records from `start` on, up to `records_max` or until the time is over, but at least one batch.

        The log's head, keys and newest checkpoint are checked every time; the upper levels of the tree at its end.
        """
        done = Checked(start, start, 0, "")
        try:
            head = audit_log.head(tr, self._keys, log)
            done.size, done.checkpoint = head.size, head.checkpoint
            _Page(self, tr, log, head, self._trusted(tr), done).check(records_max, time_s)
        except StoreCorruptError as error:
            done.blame(start, None, f"the head of the log, or the chain of signing keys: {error.message}")
            done.next_start = done.size
        except VerificationFailed as failure:
            done.blame(start, None, f"the chain of signing keys: {failure}")
            done.next_start = done.size
        return done


class _Page:
    """The part of a log that one call checks."""

    def __init__(
        self, checker: LogChecker, tr: Reader, log: UUID, head: Head, trusted: TrustedKeys, done: Checked
    ) -> None:
        self._keys, self._opener, self._search = checker._keys, checker._opener, checker._search
        self._tr = tr
        self._log = log
        self._head = head
        self._trusted = trusted
        self._done = done
        self._tree = tree_of(tr, self._keys, log, head.size)
        self._before: Place | None = None
        """The place of the record before the first."""
        self._sequence = Sequence(done.start, head.size, gaps=True)
        self._erased_keys: frozenset[int] | None = None

    def check(self, records_max: int, time_s: float) -> None:
        done, deadline_s = self._done, time.monotonic() + time_s
        end = min(self._head.size, done.start + records_max)
        self._check_head()
        self._begin()
        while done.next_start < end:
            # A batch ends with a tile, because the hashes of a tile are read together.
            batch_end = min(end, (done.next_start // TILE_HASHES + 1) * TILE_HASHES)
            self._check_batch(done.next_start, batch_end)
            done.next_start = batch_end
            if time.monotonic() > deadline_s or len(done.problems) >= PROBLEMS_MAX:
                break
        self._check_kept()
        if done.next_start >= self._head.size:
            self._check_tree()

    def _begin(self) -> None:
        before = audit_log.entry(self._tr, self._keys, self._log, self._done.start - 1) if self._done.start else None
        if before is not None:
            self._before = before.position.incarnation, before.position.versionstamp

    def _check_head(self) -> None:
        head, size = self._head, self._head.size
        lease = audit_log.lease(self._tr, self._keys)
        stopped = head.problem or (lease.problem if lease is not None else "")
        if stopped:
            self._done.blame(size, None, f"the log has stopped: {stopped}")
        if size:
            self._check_note(size, head.checkpoint, head.root)

    def _check_note(self, size: int, note: str, root: bytes) -> None:
        try:
            parsed = Note.parse(note)
            self._trusted.check_note(parsed, "the checkpoint")
            if Checkpoint.parse(parsed.text) != Checkpoint(log_origin(self._trusted.store, self._log), size, root):
                raise Mismatch("the checkpoint is not of this log at this size")
        except VerificationFailed as failure:
            self._done.blame(size, None, f"the checkpoint of {size} records: {failure}")

    def _check_batch(self, begin: int, end: int) -> None:
        try:
            leaves = self._tree.leaves(begin, end)
            self._check_tile(begin, end)
        except StoreCorruptError as error:
            self._done.blame(begin, None, error.message)
            return
        found = self._found(begin, end)
        for index, leaf in zip(range(begin, end), leaves, strict=True):
            entry, *stored = found.get(index, (None, None, None))
            try:
                if entry is None:
                    raise Mismatch("it is missing: the log has no entry here")
                self._check_record(index, entry, leaf, *stored)
            except VerificationFailed as failure:
                self._done.blame(index, None if entry is None else entry.record, str(failure))
            except StoreCorruptError as error:
                self._done.blame(index, None if entry is None else entry.record, error.message)

    def _found(self, begin: int, end: int) -> dict[int, tuple[LogEntry, bytes | None, bytes | None]]:
        """The entries of some indexes, each with the record as it is stored, and the place that its id leads to."""
        entries = dict(self._entries(begin, end))
        records = [audit_records.key_of(self._keys, entry.position) for entry in entries.values()]
        places = [self._keys.audit_place(entry.record) for entry in entries.values()]
        stored = self._tr.get_many([*records, *places])
        found = zip(entries.items(), stored[: len(records)], stored[len(records) :], strict=True)
        return {index: (entry, record, place) for (index, entry), record, place in found}

    def _entries(self, begin: int, end: int) -> Iterator[tuple[int, LogEntry]]:
        span = self._keys.audit_entries(self._log, begin, end)
        for key, value in self._tr.range(*span, streaming=Streaming.WANT_ALL):
            index = int.from_bytes(key[-8:], "big")
            try:
                yield index, audit_log.decode_entry(value)
            except StoreCorruptError as error:
                self._done.blame(index, None, error.message)

    def _check_tile(self, begin: int, end: int) -> None:
        tile = begin // TILE_HASHES
        if end == (tile + 1) * TILE_HASHES and self._tree.check_tiles([(0, tile)]):
            self._done.blame(begin, None, f"the tile {tile} does not match the tree above it")

    def _check_record(
        self, index: int, entry: LogEntry, leaf: bytes, record: bytes | None, place: bytes | None
    ) -> None:
        opened = self._opened(entry, record)
        if leaf_hash(opened.leaf.encode()) != leaf:
            raise Mismatch("it does not match its leaf in the tree")
        self._check_order(index, opened, None if place is None else audit_log.decode_place(place))
        self._sequence.check_key(check_leaf(opened.leaf, self._log, self._trusted))
        content = check_content(opened.document(), opened.leaf)
        if content.private is not PrivatePart.MISSING:
            self._done.verified += 1
        elif content.private_key in self._erasures():
            self._done.erased += 1
        else:
            raise Mismatch(NOT_ERASED)

    def _opened(self, entry: LogEntry, value: bytes | None) -> OpenedRecord:
        if value is None:
            raise Mismatch("it is missing: the log has an entry, but the store does not have the record")
        stored = RECORD.decode(value)
        if stored.id != entry.record:
            raise Mismatch(f"another record is in its place: {stored.id}")
        return self._opener.open(stored, entry.position)

    def _check_order(self, index: int, opened: OpenedRecord, placed: RecordPlace | None) -> None:
        self._sequence.check(index, opened.leaf)
        if self._before is not None and opened.leaf.place <= self._before:
            raise Mismatch("it is out of order: it was committed before the record that stands before it")
        if placed != RecordPlace(self._log, index):
            raise Mismatch("its id leads elsewhere in the log, or nowhere")

    def _erasures(self) -> frozenset[int]:
        """The keys that verified records of the log say were destroyed."""
        if self._erased_keys is None:
            found: set[int] = set()
            # A damaged record is reported at its own index; here it explains nothing.
            with suppress(StoreCorruptError):
                erasures = self._search.find(
                    self._tr, self._log, AuditFilter(action=Action.ERASE.value), oldest_first=True
                )
                for record in until_enough(erasures, []):
                    with suppress(VerificationFailed):
                        check_leaf(record.opened.leaf, self._log, self._trusted)
                        found |= check_content(record.opened.document(), record.opened.leaf).erased_keys
            self._erased_keys = frozenset(found)
        return self._erased_keys

    def _check_kept(self) -> None:
        """Checks the published checkpoints of the sizes that this part covers."""
        kept = audit_log.checkpoints_after(
            self._tr, self._keys, self._log, self._done.start, RECORDS_MAX, up_to=self._done.next_start
        )
        self._tree.expect_roots([size for size, _ in kept])
        for size, note in kept:
            try:
                self._check_note(size, note, self._tree.root(size))
            except StoreCorruptError as error:
                self._done.blame(size, None, error.message)

    def _check_tree(self) -> None:
        """Checks the levels above the leaves, and the root."""
        size = self._head.size
        try:
            for level, count in _upper_levels(size):
                for tile in _damaged(self._tree, level, count):
                    self._done.blame(size, None, f"the tile {tile} of level {level} does not match the tree")
            if self._tree.root() != self._head.root:
                self._done.blame(size, None, "the tree does not lead to the root of the checkpoint")
        except StoreCorruptError as error:
            self._done.blame(size, None, error.message)
        state = audit_records.state(self._tr, self._keys)
        if state.key_number not in self._trusted.numbers.values():
            self._done.blame(size, None, f"the key in use, {state.key_number}, is not in the chain of keys")


def _upper_levels(size: int) -> Iterator[tuple[int, int]]:
    level = 1
    while count := full_tiles(size, level):
        yield level, count
        level += 1


def _damaged(tree: Tree, level: int, count: int) -> list[int]:
    return [index for _, index in tree.check_tiles((level, index) for index in range(count))]
