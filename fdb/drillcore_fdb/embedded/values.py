"""Values as LMDB keeps them: those of some length are cut into pieces, which fill their pages.

LMDB never cuts a value. One of more than 2 kB has whole pages of 4 kB to itself, and a shorter one goes to a page only
if all of it fits, so values of 200 bytes to 16 kB left a third to a half of their pages empty. Pieces of such a value
are added at the end of a database of their own, where LMDB fills each page before it begins the next one:

    id of the value (8 bytes), number of the piece (2)     up to 488 bytes of it: eight pieces are a page

What is kept in place of the value begins with a mark, and has a checksum of key and value: a damaged key, place or
piece is found when the value is read. A value that begins with the mark itself is kept behind another.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

import lmdb

from drillcore_fdb.errors import StoreCorruptError

MARK: Final = b"\xf7"
_CUT: Final = MARK + b"\x01"
_WHOLE: Final = MARK + b"\x02"
_PIECE_BYTES: Final = 488
CUT_FROM_BYTES: Final = 201
CUT_BELOW_BYTES: Final = 16_000
"""Of pages that only one value has, at most the last one is not full: of four and more, that is little."""
_PLACE: Final = struct.Struct(">QH")
_POINTER: Final = struct.Struct(">2sQHI")

LmdbTransaction = Any
"""An `lmdb.Transaction` of either kind; its own type is generic over buffers, which are not used here."""


class Values:
    """Converts between values and what is kept in place of them. Every method takes the LMDB transaction to work in."""

    def __init__(self, environment: lmdb.Environment) -> None:
        self.database = environment.open_db(b"values")

    def keep(self, txn: LmdbTransaction, key: bytes, value: bytes) -> bytes:
        """What to keep at a key in place of its value. Stores the pieces of the value."""
        if CUT_FROM_BYTES <= len(value) < CUT_BELOW_BYTES:
            return self._cut(txn, key, value)
        return _WHOLE + value if value[:1] == MARK else value

    def read(self, txn: LmdbTransaction, key: bytes, kept: bytes) -> bytes:
        """The value of a key. Raises `StoreCorruptError` if it is not what was stored there."""
        if kept[:1] != MARK:
            return kept
        return kept[len(_WHOLE) :] if kept.startswith(_WHOLE) else self._joined(txn, key, kept)

    def drop(self, txn: LmdbTransaction, kept: bytes) -> None:
        """Removes the pieces of a value that is no longer kept."""
        if kept.startswith(_CUT):
            _, number, pieces, _ = _pointer(kept)
            for piece in range(pieces):
                txn.delete(_PLACE.pack(number, piece), db=self.database)

    def _cut(self, txn: LmdbTransaction, key: bytes, value: bytes) -> bytes:
        pieces = [value[start : start + _PIECE_BYTES] for start in range(0, len(value), _PIECE_BYTES)]
        with txn.cursor(self.database) as cursor:
            number = _PLACE.unpack(cursor.key())[0] + 1 if cursor.last() else 1
            places = (_PLACE.pack(number, piece) for piece in range(len(pieces)))
            cursor.putmulti(list(zip(places, pieces, strict=True)), append=True)
        return _POINTER.pack(_CUT, number, len(pieces), _checksum(key, value))

    def _joined(self, txn: LmdbTransaction, key: bytes, kept: bytes) -> bytes:
        _, number, pieces, checksum = _pointer(kept)
        found = [txn.get(_PLACE.pack(number, piece), b"", self.database) for piece in range(pieces)]
        value = b"".join(found)
        if _checksum(key, value) != checksum:
            raise StoreCorruptError(f"the value of {key.hex()} is not what was stored there; restore a backup")
        return value


def _checksum(key: bytes, value: bytes) -> int:
    return zlib.crc32(value, zlib.crc32(key))


def _pointer(kept: bytes) -> tuple[bytes, int, int, int]:
    if len(kept) != _POINTER.size or not kept.startswith(_CUT):
        raise StoreCorruptError("the store's file is damaged: a value cannot be found; restore a backup")
    found: tuple[bytes, int, int, int] = _POINTER.unpack(kept)
    return found
