"""Values: encodes records as bytes, and splits bytes beyond FoundationDB's limit of 100 kB into several values.

A record is msgpack. The first byte of a stored value says how it is stored:

    0x00 crc32 record                 whole, at the record's own key
    0x01 crc32 parts length           split: `parts` values follow at the key's own tuple extended by 1, 2, 3 ...
    0xfe record                       whole, without a checksum: empty, or of a kind that shows damage by itself

The checksum covers the record, so a damaged value is found when it is read, on either engine. The kinds are far enough
apart that no single flipped bit takes a checked value for an unchecked one.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from drillcore_fdb.engine import KeyValue, Reader, Streaming, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_fdb.tuples import pack

PART_BYTES: Final = 90_000
"""The size of a part. It is well below FoundationDB's limit for a value."""

_WHOLE, _SPLIT = 0, 1
_UNCHECKED: Final = b"\xfe"
_KINDS_WHOLE: Final = (b"\0", _UNCHECKED)
_WHOLE_HEADER = struct.Struct(">BI")
_SPLIT_HEADER = struct.Struct(">BIIQ")


def encode(record: Mapping[str, Any]) -> bytes:
    """A record as bytes. The same record always gives the same bytes if its keys come in the same order."""
    return msgspec.msgpack.encode(record)


def decode(value: bytes) -> dict[str, Any]:
    try:
        return msgspec.msgpack.decode(value, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreCorruptError(f"a stored record cannot be decoded: {error}") from error


def frame(value: bytes, *, checksum: bool = True) -> list[bytes]:
    """The stored pieces of a value: one piece if it is stored whole, else a head and the parts that follow it.

    Without `checksum` only split values get a checksum. An empty value needs none.
    """
    if len(value) <= PART_BYTES:
        if not checksum or not value:
            return [_UNCHECKED + value]
        return [_WHOLE_HEADER.pack(_WHOLE, zlib.crc32(value)) + value]
    parts = [value[start : start + PART_BYTES] for start in range(0, len(value), PART_BYTES)]
    return [_SPLIT_HEADER.pack(_SPLIT, zlib.crc32(value), len(parts), len(value)), *parts]


def parts_of(key: bytes, head: bytes) -> int:
    """How many parts follow the head stored at `key`; 0 if the value is whole."""
    return 0 if head[:1] in _KINDS_WHOLE else _split_header(key, head)[1]


def unframe(key: bytes, head: bytes, parts: list[bytes]) -> bytes:
    """Joins the pieces of a value. Raises `StoreCorruptError` if they are not what was stored at `key`."""
    if head[:1] == _UNCHECKED:
        return head[1:]
    if head[:1] != b"\0":
        return _joined(key, head, parts)
    return _checked(key, head)


def write(tr: Transaction, key: bytes, value: bytes) -> None:
    """Stores a value of any size that fits into a transaction. Replaces the value that was there."""
    tr.clear_range(key + b"\x15", key + b"\x1d")
    head, *parts = frame(value)
    tr.set(key, head)
    for number, part in enumerate(parts, 1):
        tr.set(pack((number,), key), part)


def read(tr: Reader, key: bytes) -> bytes | None:
    """The value stored by `write`, or None. Raises `StoreCorruptError` if it is not what was written."""
    return read_many(tr, [key])[0]


def read_many(tr: Reader, keys: Sequence[bytes]) -> list[bytes | None]:
    """The values stored by `write`, or None, in the order of `keys`. One round trip, or two if one is split."""
    heads = dict(zip(keys, tr.get_many(keys), strict=True))
    split = [key for key, head in heads.items() if head is not None and parts_of(key, head)]
    found = tr.range_many([(key + b"\x15", key + b"\x1d") for key in split]) if split else []
    parts = {key: [value for _, value in entries] for key, entries in zip(split, found, strict=True)}
    return [None if (head := heads[key]) is None else unframe(key, head, parts.get(key, [])) for key in keys]


def clear(tr: Transaction, key: bytes) -> None:
    tr.clear(key)
    tr.clear_range(key + b"\x15", key + b"\x1d")


def scan(
    tr: Reader, begin: bytes, end: bytes, *, limit: int = 0, streaming: Streaming = Streaming.ITERATOR
) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values that `write` stored from `begin` up to `end`, in order. Joins split values."""
    for given, found in enumerate(joined(tr.range(begin, end, streaming=streaming)), 1):
        yield found
        if given == limit:
            return


def joined(entries: Iterable[KeyValue]) -> Iterator[KeyValue]:
    """The keys and values that `write` stored, from the entries of a range."""
    stored = iter(entries)
    for key, head in stored:
        parts = [value for _, value in islice(stored, parts_of(key, head))]
        yield key, unframe(key, head, parts)


def last_head(entries: Sequence[KeyValue]) -> int:
    """The place of the last value among the first entries of a range: it may lack parts, those before it do not."""
    at = last = 0
    while at < len(entries):
        last = at
        at += 1 + parts_of(*entries[at])
    return last


def _checked(key: bytes, head: bytes) -> bytes:
    if len(head) < _WHOLE_HEADER.size:
        raise _damaged(key)
    _, checksum = _WHOLE_HEADER.unpack_from(head)
    value = head[_WHOLE_HEADER.size :]
    if zlib.crc32(value) != checksum:
        raise _damaged(key)
    return value


def _split_header(key: bytes, head: bytes) -> tuple[int, int, int]:
    if len(head) != _SPLIT_HEADER.size or head[0] != _SPLIT:
        raise _damaged(key)
    _, checksum, parts, length = _SPLIT_HEADER.unpack(head)
    if parts != -(-length // PART_BYTES):
        raise _damaged(key)
    return checksum, parts, length


def _joined(key: bytes, head: bytes, parts: list[bytes]) -> bytes:
    checksum, count, length = _split_header(key, head)
    value = b"".join(parts)
    if len(parts) != count or len(value) != length or zlib.crc32(value) != checksum:
        raise _damaged(key)
    return value


def _damaged(key: bytes) -> StoreCorruptError:
    return StoreCorruptError(f"the value at key {key.hex()} is not what was written; restore the store from a backup")
