"""How domain objects are stored: as msgpack arrays, and compressed before they are sealed.

`RecordKind` turns a dataclass into a msgpack array of its fields in order, ids as 16 bytes, times as msgpack
timestamps. A field that an older record lacks takes its default, so fields may be added at the end (with a default)
without a new format; any other change needs a new format.

`squeezed` compresses a record:

    0x00 record      as it is
    0x01 deflated    raw deflate, with a dictionary that both sides know

Records are short and each is compressed alone, so deflate finds little to refer back to. The dictionary helps from the
first byte on: common words of English regulations (`words.txt`: those that at least five of six EU acts and 21 CFR
Part 11 use), and names that many records contain. It is part of the format: stored records can only be read with
exactly these bytes, so a better dictionary needs a new number.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any, Final, Generic, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_fdb.errors import StoreCorruptError

_PLAIN, _DEFLATED = b"\0", b"\1"
_SQUEEZE_FROM_BYTES: Final = 32
"""Compression does not make shorter records smaller."""
_LEVEL: Final = 6
_MEMORY_LEVEL: Final = 6
"""Zlib's memory level. Compared with the default of 8 there is less state to copy for each record."""
_RAW_DEFLATE: Final = -zlib.MAX_WBITS
"""Without header and checksum: the seal already detects every change."""

_NAMES: Final = b"".join(
    (
        b"\xb0decoded as utf-8\xafapplication/pdf\xa9text/html\xaatext/plain\xadtext/markdown\x80",
        b"\xd9\x2awordllama-l2-supercat-256@aabc9a7f13c031f2\xa8operator\x93\xaaextractive\xa11\xc0",
        b"\x92\xa3url\xabhttps://www.\x92\xa5email\x92\xa5place\x92\xa6person\x92\xacorganisation",
        b"\x92\xa6amount\xaaUSD 100000\x92\xa6amount\xa7EUR 100\x92\xa4date\xaa2020-01-01",
        b"\x92\xaaregulation\xa9\xc2\xa7 100.",
    )
)


def squeezed(record: bytes) -> bytes:
    if len(record) >= _SQUEEZE_FROM_BYTES:
        compressor = _compressor().copy()
        deflated = compressor.compress(record) + compressor.flush()
        if len(deflated) < len(record):
            return _DEFLATED + deflated
    return _PLAIN + record


def dense(record: bytes) -> bytes:
    """The stored form of a record that compression cannot shorten, such as a vector."""
    return _PLAIN + record


def unsqueezed(stored: bytes) -> bytes:
    """The record that `squeezed` or `dense` was given. Raises `StoreCorruptError` for anything else."""
    if stored[:1] == _PLAIN:
        return stored[1:]
    try:
        if stored[:1] != _DEFLATED:
            raise ValueError(f"kind {stored[:1]!r}")
        decompressor = zlib.decompressobj(_RAW_DEFLATE, dictionary())
        record = decompressor.decompress(stored[1:])
        if not decompressor.eof:
            raise ValueError("it ends too early")
    except (zlib.error, ValueError) as error:
        raise StoreCorruptError(f"a stored record cannot be read: {error}") from error
    return record


@functools.cache
def dictionary() -> bytes:
    """The dictionary for compression. The words that save the most come last: near matches need fewer bits."""
    words = resources.files(__package__).joinpath("words.txt").read_text(encoding="ascii").split()
    return _NAMES + "".join(f" {word}" for word in words).encode()


@functools.cache
def _compressor() -> zlib._Compress:
    """A compressor with the dictionary loaded. Copy it: loading takes longer than compressing a record."""
    return zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW_DEFLATE, _MEMORY_LEVEL, zdict=dictionary())


T = TypeVar("T")
_STORED_AS_THEY_ARE: Final = (str, int, float, bool, bytes, UUID, datetime, types.NoneType)


class RecordKind(Generic[T]):
    """Converts between one dataclass and its stored bytes."""

    def __init__(self, record_type: type[T]) -> None:
        self.name = record_type.__name__.lower()
        self._type = record_type
        self._array: type[Any] = _stored_as(record_type)
        self._encoder = msgspec.msgpack.Encoder(uuid_format="bytes")
        self._decoder = msgspec.msgpack.Decoder(self._array)

    def encode(self, value: T) -> bytes:
        return self._encoder.encode(msgspec.convert(value, self._array, from_attributes=True))

    def decode(self, stored: bytes) -> T:
        try:
            return msgspec.convert(self._decoder.decode(stored), self._type, from_attributes=True)
        except (msgspec.DecodeError, ValueError) as error:
            raise StoreCorruptError(f"a stored {self.name} cannot be read: {error}") from error

    def as_written_now(self, stored: bytes, **changed: object) -> bytes:
        """The bytes of a record of any age as they would be written today, including fields that it lacked.

        The given fields replace its own.
        """
        try:
            array = self._decoder.decode(stored)
        except msgspec.DecodeError as error:
            raise StoreCorruptError(f"a stored {self.name} cannot be read: {error}") from error
        return self._encoder.encode(msgspec.structs.replace(array, **changed) if changed else array)

    def read(self, tr: Reader, key: bytes) -> T | None:
        return self.read_many(tr, [key])[0]

    def read_many(self, tr: Reader, keys: Sequence[bytes]) -> list[T | None]:
        """The records of several keys, in the order of `keys`, read together."""
        return [None if stored is None else self.decode(stored) for stored in codec.read_many(tr, keys)]

    def write(self, tr: Transaction, key: bytes, value: T) -> None:
        codec.write(tr, key, self.encode(value))


@cache
def _array_of(record_type: type) -> type:
    """A msgspec type with the same fields, stored as an array. It refuses longer arrays."""
    hints = get_type_hints(record_type)
    fields: list[Any] = []
    for field in dataclasses.fields(record_type):
        kept = field.name, _stored_as(hints[field.name])
        if field.default_factory is not dataclasses.MISSING:
            fields.append((*kept, msgspec.field(default_factory=field.default_factory)))
        else:
            fields.append(kept if field.default is dataclasses.MISSING else (*kept, field.default))
    return msgspec.defstruct(record_type.__name__, fields, array_like=True, frozen=True, forbid_unknown_fields=True)


def _stored_as(hint: Any) -> Any:
    while hasattr(hint, "__supertype__"):
        hint = hint.__supertype__
    if hint in _STORED_AS_THEY_ARE or (isinstance(hint, type) and issubclass(hint, enum.Enum)):
        return hint
    if get_origin(hint) in {Union, types.UnionType}:
        return Union[tuple(map(_stored_as, get_args(hint)))]  # noqa: UP007 - of types known only here
    if get_origin(hint) is Mapping and get_args(hint) == (str, str):
        return dict[str, str]
    if get_origin(hint) is tuple and get_args(hint)[1:] == (...,):
        return tuple[_stored_as(get_args(hint)[0]), ...]  # type: ignore[misc]
    if get_origin(hint) is frozenset:
        return frozenset[_stored_as(get_args(hint)[0])]  # type: ignore[misc]
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _array_of(hint)
    raise TypeError(f"no way to store a {hint}")
