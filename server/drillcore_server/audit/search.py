"""Finds records of a log by their content, also those that are committed but not yet in the log's tree.

The sequencer writes these index entries with each record:

    kind       value                                   leads to
    corpus     the corpus's id                         every record that touched it
    node       a node's or document's id               every record that touched it
    operator   keyed hash of the caller (16 bytes)     all calls of that caller
    action     keyed hash of the action                all records with that action
    request    keyed hash of the request's id          its record, and those of its refusals
    hour       hours since 1970 (8 bytes)              the first and last index of records of that hour

Hashes are keyed with a secret derived from the log's own key, so the keys of the store do not reveal who did what.
A record may be committed hours after its call began, so times do not always grow with the index. The hours only bound
where to look.

A search reads the index with the fewest entries, checks the others without opening records, and opens only records that
it returns. Records that the sequencer has not seen are read where they are stored, at the same version of the store. So
a query finds every record committed before it.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, Final
from uuid import UUID

import orjson

from drillcore_fdb.engine import VERSIONSTAMP_BYTES, Reader, Streaming, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.audit import log_store as audit_log
from drillcore_server.audit.log_store import LogEntry, Place
from drillcore_server.kernel.journal import log_key
from drillcore_server.kernel.pages import read_together
from drillcore_server.storage import audit_records
from drillcore_server.storage.audit_records import RECORD, OpenedRecord, Position, RecordOpener, StoredRecord
from drillcore_server.storage.ids import RecordId, to_microseconds
from drillcore_server.storage.keyring import Keyring
from drillcore_server.storage.keyspace import Keyspace

HASH_BYTES: Final = 16
_HOUR_US: Final = 3_600_000_000
_PURPOSE: Final = b"audit indexes"


class Kind(enum.IntEnum):
    """The numbers are part of keys."""

    CORPUS = 1
    NODE = 2
    OPERATOR = 3
    ACTION = 4
    REQUEST = 5
    HOUR = 6


Term = tuple[Kind, bytes]
"""A kind of index and a value in it."""


class Terms:
    """Makes the terms of records."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring
        self._secrets: dict[UUID, bytes] = {}

    def of_body(self, log: UUID, body: Mapping[str, Any]) -> list[Term]:
        ids = [(Kind.CORPUS, body.get("corpora", ())), (Kind.NODE, body.get("nodes", ()))]
        ids.append((Kind.NODE, body.get("documents", ())))
        found = dict.fromkeys((kind, bytes.fromhex(text.replace("-", ""))) for kind, texts in ids for text in texts)
        for kind, name in ((Kind.OPERATOR, "operator"), (Kind.ACTION, "action"), (Kind.REQUEST, "request_id")):
            if name in body:
                found[self.of_text(log, kind, body[name])] = None
        return list(found)

    def of_text(self, log: UUID, kind: Kind, text: str) -> Term:
        secret = self._secrets.get(log)
        if secret is None:
            secret = self._secrets[log] = self._keyring.derived(log_key(self._keyring, log), _PURPOSE)
        return kind, hashlib.blake2b(text.encode(), key=secret, digest_size=HASH_BYTES).digest()


def at_of(body: Mapping[str, Any]) -> int:
    """The time of the call, in microseconds."""
    return to_microseconds(datetime.fromisoformat(body["at"]))


@dataclass(slots=True)
class Hours:
    """The first and last index of the records of each hour, for some records of one log."""

    spans: dict[int, tuple[int, int]] = field(default_factory=dict)

    def note(self, at: int, index: int) -> None:
        first, last = self.spans.get(at // _HOUR_US, (index, index))
        self.spans[at // _HOUR_US] = min(first, index), max(last, index)

    def write(self, tr: Transaction, keys: Keyspace, log: UUID) -> None:
        """Widens the stored spans by these."""
        places = {_hour_key(keys, log, hour): span for hour, span in self.spans.items()}
        stored = tr.get_many(list(places))
        for (key, (first, last)), old in zip(places.items(), stored, strict=True):
            before = (first, last) if old is None else _span(old)
            tr.set(key, min(first, before[0]).to_bytes(8, "big") + max(last, before[1]).to_bytes(8, "big"))


def hour_keys(keys: Keyspace, log: UUID, times: Iterable[int]) -> set[bytes]:
    """The keys that `Hours.write` gets for records of these times."""
    return {_hour_key(keys, log, at // _HOUR_US) for at in times}


def put(tr: Transaction, keys: Keyspace, log: UUID, index: int, terms: Iterable[Term]) -> None:
    for key in keys.audit_index_of(log, terms, index):
        tr.set(key, b"")


def indexed(tr: Reader, keys: Keyspace, log: UUID, term: Term, begin: int, end: int, *, reverse: bool) -> Iterator[int]:
    """The indexes from `begin` up to `end` of the records with a term."""
    span = _span_of(keys, log, term, begin, end)
    for key, _ in tr.range(*span, reverse=reverse, streaming=Streaming.WANT_ALL):
        yield int.from_bytes(key[-8:], "big")


def _span_of(keys: Keyspace, log: UUID, term: Term, begin: int, end: int) -> tuple[bytes, bytes]:
    return keys.audit_index(log, *term, begin), keys.audit_index(log, *term, end)


def have(tr: Reader, keys: Keyspace, log: UUID, terms: Iterable[Term], indexes: list[int]) -> list[int]:
    """The indexes whose records have all of the terms."""
    for kind, value in terms:
        there = tr.get_many([keys.audit_index(log, kind, value, index) for index in indexes])
        indexes = [index for index, found in zip(indexes, there, strict=True) if found is not None]
    return indexes


def bounds(tr: Reader, keys: Keyspace, log: UUID, since: datetime | None, until: datetime | None) -> tuple[int, int]:
    """Where records of a time can be in the log: from the first index up to, not including, the second."""
    whole = keys.audit_indexed(log, Kind.HOUR, b"")
    begin = whole.begin if since is None else _hour_key(keys, log, to_microseconds(since) // _HOUR_US)
    end = whole.end if until is None else _hour_key(keys, log, (to_microseconds(until) - 1) // _HOUR_US) + b"\0"
    stored = tr.range(begin, end, streaming=Streaming.WANT_ALL) if begin < end else ()
    spans = [_span(value) for _, value in stored]
    return min((first for first, _ in spans), default=0), max((last + 1 for _, last in spans), default=0)


def _hour_key(keys: Keyspace, log: UUID, hour: int) -> bytes:
    return keys.audit_indexed(log, Kind.HOUR, max(hour, 0).to_bytes(8, "big")).begin


def _span(stored: bytes) -> tuple[int, int]:
    return int.from_bytes(stored[:8], "big"), int.from_bytes(stored[8:], "big")


_COMPARED: Final = 1_000
"""How many entries of each index are counted to find the one with the fewest."""
_TRIED_TOGETHER: Final = 1_000
"""How many records are tried in one round trip if some of them may not match."""
TRIED_MAX: Final = 20_000
TRIED_BYTES_MAX: Final = 1 << 25
"""How many records that do not match a search reads before it stops, and how many bytes of them.

Reading so many takes a fraction of the five seconds that a transaction may take. Records that are not in a log yet are
stored together, whatever log they belong to. So those of other logs count too.
"""
_NO_RECORD: Final = UUID(int=0)
TOGETHER: Final = 200
"""How many records are read in one round trip, unless the caller wants fewer."""
_END: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """A record must match every field that is set."""

    corpus: UUID | None = None
    node: UUID | None = None
    """The id of a node or a document."""
    operator: str = ""
    action: str = ""
    since: datetime | None = None
    until: datetime | None = None
    """Records at this time are not included."""
    request_id: str = ""
    record: UUID | None = None


EVERYTHING: Final = AuditFilter()


@dataclass(frozen=True, slots=True)
class FoundRecord:
    index: int | None
    """The index in the log. None until the log has the record."""
    position: Position
    opened: OpenedRecord

    @property
    def cursor(self) -> bytes:
        """The cursor to continue after this record."""
        return cursor_of(self.position, self.opened.leaf.record)


def cursor_of(position: Position, record: UUID) -> bytes:
    """The cursor to continue after a record. It stays valid when the record gets its place in the log.

    The position may also be that of another log's record, if between it and the record this log has none.
    """
    return audit_log.encode_position(position) + record.bytes


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a search continues."""

    index: int | None
    """The index of the cursor's record, if it is in the log by now."""
    place: Place
    record: UUID
    """The last record of this log before the place, in the direction of the search, or `_NO_RECORD`."""


class TriedEnough(Exception):  # noqa: N818 - a signal, not an error
    """A search tried `TRIED_MAX` records in vain. Another one may continue from the cursor."""

    def __init__(self, cursor: bytes) -> None:
        super().__init__()
        self.cursor = cursor


def until_enough(found: Iterator[FoundRecord], stopped_at: list[bytes]) -> Iterator[FoundRecord]:
    """The records up to where the search ends, or has tried enough. Then `stopped_at` gets the cursor."""
    try:
        yield from found
    except TriedEnough as tried:
        stopped_at.append(tried.cursor)


class LogSearch:
    def __init__(self, keys: Keyspace, opener: RecordOpener, terms: Terms) -> None:
        self._keys = keys
        self._opener = opener
        self._terms = terms

    def find(
        self,
        tr: Reader,
        log: UUID,
        wanted: AuditFilter,
        *,
        oldest_first: bool = False,
        after: bytes | None = None,
        together: int = TOGETHER,
    ) -> Iterator[FoundRecord]:
        """The matching records in the order of the log, read as they are consumed, up to `together` at a time.

        `after` is the cursor of the last record seen. Raises `StoreCorruptError` for a record that cannot be read, and
        `TriedEnough` if few records match.
        """
        self._read_ahead(tr, log, wanted, after)
        start = None if after is None else self._start(tr, after)
        tail = self._tail(tr, log, wanted, start, oldest_first)
        in_log = self._in_log(tr, log, wanted, start, oldest_first, together)
        for part in (in_log, tail) if oldest_first else (tail, in_log):
            yield from part

    def in_log(
        self, tr: Reader, log: UUID, wanted: AuditFilter, *, after: bytes | None = None, together: int = TOGETHER
    ) -> Iterator[FoundRecord]:
        """Same as `find`, oldest first, for the records that already have their place in the log."""
        self._read_ahead(tr, log, wanted, after)
        start = None if after is None else self._start(tr, after)
        return self._in_log(tr, log, wanted, start, True, together)

    def get(self, tr: Reader, log: UUID, record: RecordId) -> FoundRecord | None:
        """A record of a log by its id, also if it is committed but not yet in the log. Raises `TriedEnough`."""
        return next(self.find(tr, log, AuditFilter(record=record)), None)

    def may_be_waiting(self, tr: Reader, log: UUID, record: RecordId) -> bool:
        """Whether a record is committed but not in the log yet. Also true if too many records wait to look at all."""
        try:
            return self.get(tr, log, record) is not None
        except TriedEnough:
            return True

    def newest_waiting(self, tr: Reader, log: UUID) -> RecordId | None:
        """The newest record that is committed but not in the log yet. None if the log has every record.

        Raises `TriedEnough` if so many records of other logs wait that this cannot be told.
        """
        self._read_ahead(tr, log, EVERYTHING, None)
        found = next(self._tail(tr, log, EVERYTHING, None, False), None)
        return None if found is None else RecordId(found.opened.leaf.record)

    def at(self, tr: Reader, log: UUID, indexes: Sequence[int]) -> Iterator[FoundRecord]:
        """The opened records at these indexes of a log, read together. Leaves out missing entries."""
        there = zip(indexes, audit_log.entries(tr, self._keys, log, indexes), strict=True)
        return self._open_all(tr, [(index, entry) for index, entry in there if entry is not None])

    def _read_ahead(self, tr: Reader, log: UUID, wanted: AuditFilter, after: bytes | None) -> None:
        records = [UUID(bytes=after[-16:])] if after is not None else []
        records += [wanted.record] if wanted.record is not None else []
        places = [self._keys.audit_place(RecordId(record)) for record in records]
        tr.get_many([*audit_log.ends_of(self._keys, log), *places])

    def _start(self, tr: Reader, cursor: bytes) -> _Start:
        position = audit_log.decode_position(cursor[: 5 + VERSIONSTAMP_BYTES])
        record = UUID(bytes=cursor[-16:])
        placed = audit_log.place_of(tr, self._keys, RecordId(record))
        return _Start(None if placed is None else placed.index, (position.incarnation, position.versionstamp), record)

    def _in_log(
        self,
        tr: Reader,
        log: UUID,
        wanted: AuditFilter,
        start: _Start | None,
        oldest_first: bool,
        together: int,
    ) -> Iterator[FoundRecord]:
        begin, end = 0, audit_log.head(tr, self._keys, log).size
        if wanted.since is not None or wanted.until is not None:
            begin, end = bounds(tr, self._keys, log, wanted.since, wanted.until)
        if start is not None and start.index is not None:
            begin, end = (max(begin, start.index + 1), end) if oldest_first else (begin, min(end, start.index))
        elif start is not None and oldest_first and start.record != _NO_RECORD:
            return
        candidates, rest = self._candidates(tr, log, wanted, begin, end, not oldest_first)
        some_are_in_vain = rest or wanted.since is not None or wanted.until is not None
        size = _TRIED_TOGETHER if some_are_in_vain else together
        in_vain = 0
        while batch := list(islice(candidates, size)):
            matching = list(self._entries(tr, log, have(tr, self._keys, log, rest, batch), wanted))
            yield from read_together(matching, together, lambda entries: self._open_all(tr, entries))
            in_vain += len(batch) - len(matching)
            if in_vain >= TRIED_MAX:
                raise TriedEnough(self._cursor_at(tr, log, batch[-1]))

    def _cursor_at(self, tr: Reader, log: UUID, index: int) -> bytes:
        entry = audit_log.entry(tr, self._keys, log, index)
        if entry is None:
            raise StoreCorruptError(f"the entry {index} of an audit log is missing; run VerifyAudit")
        return cursor_of(entry.position, entry.record)

    def _entries(
        self, tr: Reader, log: UUID, indexes: Sequence[int], wanted: AuditFilter
    ) -> Iterator[tuple[int, LogEntry]]:
        """The entries at these indexes whose times are wanted."""
        for index, entry in zip(indexes, audit_log.entries(tr, self._keys, log, indexes), strict=True):
            if entry is not None and _is_within(entry.at, wanted):
                yield index, entry

    def _candidates(
        self, tr: Reader, log: UUID, wanted: AuditFilter, begin: int, end: int, reverse: bool
    ) -> tuple[Iterator[int], list[Term]]:
        """The indexes of records that may match, and the terms that those that match still must have."""
        if wanted.record is not None:
            placed = audit_log.place_of(tr, self._keys, RecordId(wanted.record))
            mine = placed is not None and placed.log == log and begin <= placed.index < end
            found: Iterator[int] = iter([placed.index] if placed is not None and mine else [])
            first, rest = None, self._wanted_terms(log, wanted)
        else:
            first, rest = self._fewest(tr, log, self._wanted_terms(log, wanted), begin, end, reverse)
            found = iter(range(begin, end)[:: -1 if reverse else 1])
        if first is not None:
            found = indexed(tr, self._keys, log, first, begin, end, reverse=reverse)
        return found, rest

    def _fewest(
        self, tr: Reader, log: UUID, terms: list[Term], begin: int, end: int, reverse: bool
    ) -> tuple[Term | None, list[Term]]:
        """The term that leads to the fewest records, and the others."""
        if len(terms) < 2 or begin >= end:
            return (terms[0], []) if terms and begin < end else (None, terms)
        spans = [_span_of(self._keys, log, term, begin, end) for term in terms]
        counts = map(len, tr.range_many(spans, limit=_COMPARED, reverse=reverse))
        _, first = min(zip(counts, terms, strict=True), key=lambda counted: counted[0])
        return first, [term for term in terms if term != first]

    def _wanted_terms(self, log: UUID, wanted: AuditFilter) -> list[Term]:
        ids = [(Kind.CORPUS, wanted.corpus), (Kind.NODE, wanted.node)]
        texts = [(Kind.REQUEST, wanted.request_id), (Kind.OPERATOR, wanted.operator), (Kind.ACTION, wanted.action)]
        found: list[Term] = [(kind, wanted_id.bytes) for kind, wanted_id in ids if wanted_id is not None]
        return found + [self._terms.of_text(log, kind, text) for kind, text in texts if text]

    def _tail(
        self,
        tr: Reader,
        log: UUID,
        wanted: AuditFilter,
        start: _Start | None,
        oldest_first: bool,
    ) -> Iterator[FoundRecord]:
        """Matching records that are committed but not in the log yet."""
        if start is not None and start.index is not None and not oldest_first:
            return
        if wanted.record is not None and audit_log.place_of(tr, self._keys, RecordId(wanted.record)) is not None:
            return
        own = self._last(tr, log) if start is None and oldest_first else _NO_RECORD if start is None else start.record
        in_vain = size_bytes = 0
        for position, value in self._waiting(tr, log, start, oldest_first):
            stored = _record_of_log(value, log)
            own = own if stored is None else stored.id
            if stored is not None and self._matches(log, stored, wanted):
                yield FoundRecord(None, position, self._opener.open(stored, position))
                continue
            in_vain, size_bytes = in_vain + 1, size_bytes + len(value)
            if in_vain >= TRIED_MAX or size_bytes >= TRIED_BYTES_MAX:
                raise TriedEnough(cursor_of(position, own))

    def _waiting(
        self, tr: Reader, log: UUID, start: _Start | None, oldest_first: bool
    ) -> Iterator[tuple[Position, bytes]]:
        """The records of all logs that are committed but not in the log yet, from where the search continues."""
        seen, state = self._seen(tr, log), audit_records.state(tr, self._keys)
        if start is None:
            return audit_log.records_after(tr, self._keys, seen, state.incarnation, reverse=not oldest_first)
        if oldest_first:
            return audit_log.records_after(tr, self._keys, max(seen, start.place), state.incarnation)
        return audit_log.records_after(tr, self._keys, seen, state.incarnation, before=start.place, reverse=True)

    def _last(self, tr: Reader, log: UUID) -> UUID:
        """The last record that the log has."""
        size = audit_log.head(tr, self._keys, log).size
        last = audit_log.entry(tr, self._keys, log, size - 1) if size else None
        return _NO_RECORD if last is None else last.record

    def _seen(self, tr: Reader, log: UUID) -> Place:
        """The place up to which the log has every record: the sequencer's, or the log's own if it has stopped."""
        head, lease = audit_log.head(tr, self._keys, log), audit_log.lease(tr, self._keys)
        return head.place if head.problem or lease is None else lease.place

    def _matches(self, log: UUID, stored: StoredRecord, wanted: AuditFilter) -> bool:
        if wanted.record not in {None, stored.id}:
            return False
        body = orjson.loads(self._opener.body(stored)[1])
        terms = set(self._terms.of_body(log, body))
        return terms.issuperset(self._wanted_terms(log, wanted)) and _is_within(at_of(body), wanted)

    def _open_all(self, tr: Reader, entries: Sequence[tuple[int, LogEntry]]) -> Iterator[FoundRecord]:
        stored = audit_records.get_many(tr, self._keys, [entry.position for _, entry in entries])
        for (index, entry), value in zip(entries, stored, strict=True):
            if value is None:
                raise StoreCorruptError(
                    f"the audit record {entry.record} is missing; run VerifyAudit to find out what else is"
                )
            yield FoundRecord(index, entry.position, self._opener.open(RECORD.decode(value), entry.position))


def _record_of_log(value: bytes, log: UUID) -> StoredRecord | None:
    """The record, if it belongs to this log. None for a damaged record, which the sequencer reports."""
    try:
        stored = RECORD.decode(value)
    except StoreCorruptError:
        return None
    return stored if stored.log == log else None


def _is_within(at: int, wanted: AuditFilter) -> bool:
    since = 0 if wanted.since is None else to_microseconds(wanted.since)
    return since <= at < (_END if wanted.until is None else to_microseconds(wanted.until))
