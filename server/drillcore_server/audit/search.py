"""Finds records of a log by what they say, also those that are committed and not yet in its tree.

The records that a filter asks for are taken from the index that has the fewest, checked against the others without
opening them, and opened only if they are to be shown. What the sequencer has not seen is read from where it is, at the
same version of the store, so a query never lacks a record of a call that was answered before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final
from uuid import UUID

import orjson

from drillcore_fdb.engine import VERSIONSTAMP_BYTES, Reader
from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.audit import indexes
from drillcore_server.audit.indexes import Kind, Term, Terms
from drillcore_server.audit.opening import OpenedRecord, RecordOpener
from drillcore_server.domain.ids import RecordId
from drillcore_server.domain.times import to_microseconds
from drillcore_server.store import audit_log, audit_records
from drillcore_server.store.audit_log import Head, LogEntry, Place
from drillcore_server.store.audit_records import RECORD, Position, StoredRecord
from drillcore_server.store.keyspace import Keyspace

_COMPARED: Final = 1_000
"""Entries of each index that are counted to find the one with the fewest."""
_BATCH: Final = 200
_END: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """All that are given must match."""

    corpus: UUID | None = None
    node: UUID | None = None
    """A node, or a document."""
    operator: str = ""
    action: str = ""
    since: datetime | None = None
    until: datetime | None = None
    """Not included."""
    request_id: str = ""
    record: UUID | None = None


@dataclass(frozen=True, slots=True)
class FoundRecord:
    index: int | None
    """In the log; None until the log has it."""
    position: Position
    opened: OpenedRecord

    @property
    def cursor(self) -> bytes:
        """Where to go on after this record, now and when it is in the log."""
        return audit_log.encode_position(self.position) + self.opened.leaf.record.bytes


class LogSearch:
    def __init__(self, keys: Keyspace, opener: RecordOpener, terms: Terms) -> None:
        self._keys = keys
        self._opener = opener
        self._terms = terms

    def find(
        self, tr: Reader, log: UUID, wanted: AuditFilter, *, oldest_first: bool = False, after: bytes | None = None
    ) -> Iterator[FoundRecord]:
        """The records that a filter asks for, in the order of the log; read as they are consumed.

        `after` is the cursor of the last one that was seen. Raises `StoreCorruptError` where one cannot be read.
        """
        head = audit_log.head(tr, self._keys, log)
        start = None if after is None else self._start(tr, after)
        tail = self._tail(tr, log, head, wanted, start, oldest_first)
        in_log = self._in_log(tr, log, head, wanted, start, oldest_first)
        for part in (in_log, tail) if oldest_first else (tail, in_log):
            yield from part

    def get(self, tr: Reader, log: UUID, record: RecordId) -> FoundRecord | None:
        """A record of a log by its id; one that is not in the log yet only if it is near its end."""
        return next(self.find(tr, log, AuditFilter(record=record)), None)

    def at(self, tr: Reader, log: UUID, begin: int, end: int) -> Iterator[FoundRecord]:
        """The records of a log from an index up to another, opened."""
        for index, entry in audit_log.entries(tr, self._keys, log, begin, end):
            yield self._open(tr, index, entry)

    def _start(self, tr: Reader, cursor: bytes) -> tuple[int | None, Place]:
        """The index, if it has one by now, and the place of the record that a cursor is of."""
        position = audit_log.decode_position(cursor[: 5 + VERSIONSTAMP_BYTES])
        placed = audit_log.place_of(tr, self._keys, RecordId(UUID(bytes=cursor[-16:])))
        return None if placed is None else placed.index, (position.incarnation, position.versionstamp)

    def _in_log(
        self,
        tr: Reader,
        log: UUID,
        head: Head,
        wanted: AuditFilter,
        start: tuple[int | None, Place] | None,
        oldest_first: bool,
    ) -> Iterator[FoundRecord]:
        begin, end = 0, head.size
        if wanted.since is not None or wanted.until is not None:
            begin, end = indexes.bounds(tr, self._keys, log, wanted.since, wanted.until)
        if start is not None and start[0] is not None:
            begin, end = (max(begin, start[0] + 1), end) if oldest_first else (begin, min(end, start[0]))
        elif start is not None and oldest_first:
            return
        for index in self._indexes(tr, log, wanted, begin, end, not oldest_first):
            entry = audit_log.entry(tr, self._keys, log, index)
            if entry is not None and _is_within(entry.at, wanted):
                yield self._open(tr, index, entry)

    def _indexes(
        self, tr: Reader, log: UUID, wanted: AuditFilter, begin: int, end: int, reverse: bool
    ) -> Iterator[int]:
        """Of the records that all but the time of a filter matches."""
        if wanted.record is not None:
            placed = audit_log.place_of(tr, self._keys, RecordId(wanted.record))
            mine = placed is not None and placed.log == log and begin <= placed.index < end
            found: Iterator[int] = iter([placed.index] if placed is not None and mine else [])
            first, rest = None, self._wanted_terms(log, wanted)
        else:
            first, rest = self._fewest(tr, log, self._wanted_terms(log, wanted), begin, end, reverse)
            found = iter(range(begin, end)[:: -1 if reverse else 1])
        if first is not None:
            found = indexes.indexed(tr, self._keys, log, first, begin, end, reverse=reverse)
        while batch := list(islice(found, _BATCH)):
            yield from indexes.have(tr, self._keys, log, rest, batch)

    def _fewest(
        self, tr: Reader, log: UUID, terms: list[Term], begin: int, end: int, reverse: bool
    ) -> tuple[Term | None, list[Term]]:
        """The term that leads to the fewest records, and the others."""
        if len(terms) < 2 or begin >= end:
            return (terms[0], []) if terms and begin < end else (None, terms)

        def count(term: Term) -> int:
            there = indexes.indexed(tr, self._keys, log, term, begin, end, reverse=reverse)
            return sum(1 for _ in islice(there, _COMPARED))

        first = min(terms, key=count)
        return first, [term for term in terms if term != first]

    def _wanted_terms(self, log: UUID, wanted: AuditFilter) -> list[Term]:
        ids = [(Kind.CORPUS, wanted.corpus), (Kind.NODE, wanted.node)]
        texts = [(Kind.REQUEST, wanted.request_id), (Kind.OPERATOR, wanted.operator), (Kind.ACTION, wanted.action)]
        found: list[Term] = [(kind, one.bytes) for kind, one in ids if one is not None]
        return found + [self._terms.of_text(log, kind, text) for kind, text in texts if text]

    def _tail(
        self,
        tr: Reader,
        log: UUID,
        head: Head,
        wanted: AuditFilter,
        start: tuple[int | None, Place] | None,
        oldest_first: bool,
    ) -> Iterator[FoundRecord]:
        """What is committed and not in the log yet."""
        if start is not None and start[0] is not None and not oldest_first:
            return
        state = audit_records.state(tr, self._keys)
        bound = None if start is None or start[0] is not None else start[1]
        for position, value in audit_log.records_after(
            tr, self._keys, self._seen(tr, head), state.incarnation, reverse=not oldest_first
        ):
            place = position.incarnation, position.versionstamp
            if bound is not None and (place <= bound if oldest_first else place >= bound):
                continue
            stored = _of_log(value, log)
            if stored is not None and self._matches(log, stored, wanted):
                yield FoundRecord(None, position, self._opener.open(stored, position))

    def _seen(self, tr: Reader, head: Head) -> Place:
        """Up to where the log has everything: that of the sequencer, or of the log itself if it stopped."""
        lease = audit_log.lease(tr, self._keys)
        return head.place if head.problem or lease is None else lease.place

    def _matches(self, log: UUID, stored: StoredRecord, wanted: AuditFilter) -> bool:
        if wanted.record not in {None, stored.id}:
            return False
        body = orjson.loads(self._opener.body(stored)[1])
        terms = set(self._terms.of_body(log, body))
        return terms.issuperset(self._wanted_terms(log, wanted)) and _is_within(indexes.at_of(body), wanted)

    def _open(self, tr: Reader, index: int, entry: LogEntry) -> FoundRecord:
        stored = audit_records.get(tr, self._keys, entry.position)
        if stored is None:
            raise StoreCorruptError(f"the audit record {entry.record} is gone; VerifyAudit finds what else is")
        return FoundRecord(index, entry.position, self._opener.open(stored, entry.position))


def _of_log(value: bytes, log: UUID) -> StoredRecord | None:
    """The record, if it is of this log. One that is damaged is nobody's: the sequencer tells of it."""
    try:
        stored = RECORD.decode(value)
    except StoreCorruptError:
        return None
    return stored if stored.log == log else None


def _is_within(at: int, wanted: AuditFilter) -> bool:
    since = 0 if wanted.since is None else to_microseconds(wanted.since)
    return since <= at < (_END if wanted.until is None else to_microseconds(wanted.until))
