"""Keys of up to 10 kB in byte order, on LMDB, which takes at most 1978 bytes.

A key of fewer than `PIECE_BYTES` is stored as it is. A longer one is cut: its first `PIECE_BYTES` bytes become a
marker whose value is an eight-byte id, and the rest is stored in the database `tails` below that id, cut again if it
is still too long. Exactly the entries of `PIECE_BYTES` bytes are markers, so nothing needs escaping and order is kept:
all keys behind a marker are neighbours, at the marker's place.

LMDB refuses the empty key. So the empty key and keys that begin with a zero byte get one zero byte in front.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import lmdb

from drillcore_fdb.embedded.values import MARK, LmdbTransaction, Values
from drillcore_fdb.engine import KeyValue

PIECE_BYTES = 1900
_FIRST_READ = 32
"""Entries that a scan reads before it looks whether it is past the end of its range."""
_PAGE_BYTES = 4_096
_MOVED_FROM_BYTES = _PAGE_BYTES // 2
"""The size of new neighbours from which it is worth to move what follows them."""
_MOVED_BYTES_MAX = 4 * _PAGE_BYTES
"""Large values have pages of their own, which moving an entry would write again."""
_NEXT_TAIL = b"next_tail"
_ID = struct.Struct(">Q")


class OrderedStore:
    """The databases of one environment. Every method takes the LMDB transaction to work in."""

    def __init__(self, environment: lmdb.Environment) -> None:
        self.meta = environment.open_db(b"meta")
        self._keys = environment.open_db(b"keys")
        self._tails = environment.open_db(b"tails")
        self._values = Values(environment)

    def databases(self) -> list[Any]:
        return [self.meta, self._keys, self._tails, self._values.database]

    def get(self, txn: LmdbTransaction, key: bytes) -> bytes | None:
        stored = key if key[:1] > b"\0" else b"\0" + key
        if len(stored) < PIECE_BYTES:
            kept: bytes | None = txn.get(stored, None, self._keys)
            return kept if kept is None or kept[:1] != MARK else self._values.read(txn, stored, kept)
        place = self._find(txn, stored)
        return None if place is None else txn.get(place, None, self._tails)

    def put(self, txn: LmdbTransaction, key: bytes, value: bytes) -> None:
        stored = key if key[:1] > b"\0" else b"\0" + key
        if len(stored) < PIECE_BYTES:
            self._drop(txn, stored)
            txn.put(stored, self._values.keep(txn, stored, value), True, True, False, self._keys)
        else:
            txn.put(self._make(txn, stored), value, db=self._tails)

    def put_many(self, txn: LmdbTransaction, entries: Mapping[bytes, bytes]) -> None:
        """Puts entries in the order of their keys, so that new neighbours fill the pages that they go to.

        LMDB fills a page only if entries are added behind the last one of the page. Before an entry that is on the page
        already, it splits the page in two halves and never fills the first. So what follows many new neighbours is
        taken away first, and put back after them.
        """
        kept: list[KeyValue] = []
        for key, value in sorted(entries.items()):
            stored = key if key[:1] > b"\0" else b"\0" + key
            if len(stored) < PIECE_BYTES:
                self._drop(txn, stored)
                kept.append((stored, self._values.keep(txn, stored, value)))
            else:
                self.put(txn, key, value)
        for run in self._runs(txn, kept):
            following = self._following(txn, run) if _size(run) >= _MOVED_FROM_BYTES else []
            for stored, _ in following:
                txn.delete(stored, db=self._keys)
            for stored, value in chain(run, following):
                txn.put(stored, value, True, True, False, self._keys)

    def _runs(self, txn: LmdbTransaction, kept: Sequence[KeyValue]) -> Iterator[Sequence[KeyValue]]:
        """The entries, in parts between which there is a stored entry. Put each part before you take the next one."""
        start = 0
        while start < len(kept):
            with txn.cursor(self._keys) as cursor:
                found = cursor.set_range(kept[start][0])
                end = bisect_left(kept, (cursor.key(), b""), start) if found else len(kept)
            end = max(end, start + 1)
            yield kept[start:end]
            start = end

    def _following(self, txn: LmdbTransaction, run: Sequence[KeyValue]) -> list[KeyValue]:
        """The stored entries behind a run that may be on the same page. None if they are too large to be moved."""
        found: list[KeyValue] = []
        size_bytes = 0
        with txn.cursor(self._keys) as cursor:
            if not cursor.set_range(run[0][0]) or cursor.key() <= run[-1][0]:
                return []
            for entry in cursor.iternext():
                found.append(entry)
                size_bytes += _size([entry])
                if size_bytes >= _PAGE_BYTES:
                    break
        return found if size_bytes <= _MOVED_BYTES_MAX else []

    def delete(self, txn: LmdbTransaction, key: bytes) -> None:
        stored = key if key[:1] > b"\0" else b"\0" + key
        if len(stored) < PIECE_BYTES:
            self._drop(txn, stored)
            txn.delete(stored, db=self._keys)
        else:
            self._delete_long(txn, self._keys, stored)

    def _drop(self, txn: LmdbTransaction, stored: bytes) -> None:
        """Removes the pieces of a key's value, which is about to be replaced or removed."""
        kept = txn.get(stored, None, self._keys)
        if kept is not None and kept[:1] == MARK:
            self._values.drop(txn, kept)

    def delete_range(self, txn: LmdbTransaction, begin: bytes, end: bytes) -> None:
        if self._has_long_keys(txn):
            for key in [key for key, _ in self._walk(txn, self._keys, b"", _stored(begin), _stored(end), False)]:
                self.delete(txn, _logical(key))
            return
        stored_end = _stored(end)
        with txn.cursor(self._keys) as cursor:
            found = cursor.set_range(_stored(begin)[:PIECE_BYTES])
            while found and cursor.key() < stored_end:
                self._values.drop(txn, cursor.value())
                found = cursor.delete() and bool(cursor.key())

    def batch(self, txn: LmdbTransaction, begin: bytes, end: bytes, limit: int, reverse: bool) -> list[KeyValue]:
        """Up to `limit` entries of begin..end, from the start, or with `reverse` from the end."""
        if self._has_long_keys(txn):
            return list(islice(self.iterate(txn, begin, end, reverse), limit))
        begin, end = _stored(begin), _stored(end)
        with txn.cursor(self._keys) as cursor:
            entries = _backward(cursor, begin, end, limit) if reverse else _forward(cursor, begin, end, limit)
            if MARK in {kept[:1] for _, kept in entries}:  # faster than any()
                entries = [(key, self._values.read(txn, key, kept)) for key, kept in entries]
        first = entries[-1 if reverse else 0] if entries else None
        if first is not None and first[0][0] == 0:
            return [(_logical(key), value) for key, value in entries]
        return entries

    def iterate(self, txn: LmdbTransaction, begin: bytes, end: bytes, reverse: bool) -> Iterator[KeyValue]:
        for key, value in self._walk(txn, self._keys, b"", _stored(begin), _stored(end), reverse):
            yield _logical(key), value

    def _has_long_keys(self, txn: LmdbTransaction) -> bool:
        return bool(txn.stat(self._tails)["entries"])

    def _find(self, txn: LmdbTransaction, stored: bytes) -> bytes | None:
        """The key in `tails` of a long key's last piece; None if one of its markers is missing."""
        database = self._keys
        while len(stored) >= PIECE_BYTES:
            tail: bytes | None = txn.get(stored[:PIECE_BYTES], None, database)
            if tail is None:
                return None
            stored, database = tail + stored[PIECE_BYTES:], self._tails
        return stored

    def _make(self, txn: LmdbTransaction, stored: bytes) -> bytes:
        """The key in `tails` for a long key's last piece. Makes the missing markers."""
        database = self._keys
        while len(stored) >= PIECE_BYTES:
            marker = stored[:PIECE_BYTES]
            tail = txn.get(marker, None, database)
            if tail is None:
                tail = self._next_tail(txn)
                txn.put(marker, tail, db=database)
            stored, database = tail + stored[PIECE_BYTES:], self._tails
        return stored

    def _next_tail(self, txn: LmdbTransaction) -> bytes:
        (last,) = _ID.unpack(txn.get(_NEXT_TAIL, _ID.pack(0), self.meta))
        tail = _ID.pack(last + 1)
        txn.put(_NEXT_TAIL, tail, db=self.meta)
        return tail

    def _delete_long(self, txn: LmdbTransaction, database: Any, stored: bytes) -> None:
        if len(stored) < PIECE_BYTES:
            txn.delete(stored, db=database)
            return
        marker = stored[:PIECE_BYTES]
        tail = txn.get(marker, None, database)
        if tail is None:
            return
        self._delete_long(txn, self._tails, tail + stored[PIECE_BYTES:])
        with txn.cursor(self._tails) as cursor:
            empty = not (cursor.set_range(tail) and cursor.key().startswith(tail))
        if empty:
            txn.delete(marker, db=database)

    def _walk(
        self, txn: LmdbTransaction, database: Any, tail: bytes, begin: bytes, end: bytes | None, reverse: bool
    ) -> Iterator[KeyValue]:
        """Entries below `tail` from `begin` up to `end` (None: to the last), long keys put together again."""
        stop = tail + end if end is not None else _ID.pack(_ID.unpack(tail)[0] + 1)
        with txn.cursor(database) as cursor:
            for key, value in _entries(cursor, (tail + begin)[:PIECE_BYTES], stop[:PIECE_BYTES], reverse):
                piece = key[len(tail) :]
                if len(key) == PIECE_BYTES:
                    inner_begin = begin[len(piece) :] if begin.startswith(piece) else b""
                    inner_end = end[len(piece) :] if end is not None and end.startswith(piece) else None
                    for rest, inner_value in self._walk(txn, self._tails, value, inner_begin, inner_end, reverse):
                        yield piece + rest, inner_value
                elif key.startswith(tail) and piece >= begin and (end is None or piece < end):
                    yield piece, value if tail else self._values.read(txn, key, value)


def _size(entries: Iterable[KeyValue]) -> int:
    return sum(len(key) + len(value) for key, value in entries)


def _stored(key: bytes) -> bytes:
    return key if key[:1] > b"\0" else b"\0" + key


def _logical(stored: bytes) -> bytes:
    return stored[1:] if stored[0] == 0 else stored


def _forward(cursor: Any, begin: bytes, end: bytes, limit: int) -> list[KeyValue]:
    if not cursor.set_range(begin[:PIECE_BYTES]):
        return []
    entries = _read(cursor.iternext(), limit, lambda key: key >= end)
    del entries[bisect_left(entries, (end, b"")) :]
    return entries


def _backward(cursor: Any, begin: bytes, end: bytes, limit: int) -> list[KeyValue]:
    found = cursor.prev() if cursor.set_range(end[:PIECE_BYTES]) else cursor.last()
    if not found:
        return []
    entries = _read(cursor.iterprev(), limit, lambda key: key < begin)
    while entries and entries[-1][0] < begin:
        entries.pop()
    return entries


def _read(found: Iterator[KeyValue], limit: int, is_outside: Callable[[bytes], bool]) -> list[KeyValue]:
    """Up to `limit` entries, in parts that grow: what lies behind a small range is not read in vain."""
    entries: list[KeyValue] = []
    size = _FIRST_READ
    while len(entries) < limit:
        wanted = min(size, limit - len(entries))
        part = list(islice(found, wanted))
        entries += part
        if len(part) < wanted or is_outside(part[-1][0]):
            break
        size *= 4
    return entries


def _entries(cursor: Any, first: bytes, last: bytes, reverse: bool) -> Iterator[KeyValue]:
    """Raw entries from `first` to `last`, both included, either way."""
    if not reverse:
        if cursor.set_range(first):
            for key, value in cursor.iternext():
                if key > last:
                    return
                yield key, value
        return
    found = (cursor.key() == last or cursor.prev()) if cursor.set_range(last) else cursor.last()
    if found:
        for key, value in cursor.iterprev():
            if key < first:
                return
            yield key, value
