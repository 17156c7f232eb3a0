"""How a domain object is kept: a msgpack array of its fields in order, ids as 16 bytes, times as msgpack timestamps.

The array is made from the dataclass itself, and so are those inside it. A field that an older record lacks takes its
default, so fields may be added at the end (with a default) without a new format; anything else needs a new format.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any, Final, Generic, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_fdb.errors import StoreCorruptError

T = TypeVar("T")
_PLAIN: Final = (str, int, float, bool, bytes, UUID, datetime, types.NoneType)


class RecordKind(Generic[T]):
    """To and from the bytes of one dataclass."""

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
        """The bytes that a record of any age has when it is written today, with the fields that it lacked.

        Those that are given are put in place of its own, as they are.
        """
        try:
            array = self._decoder.decode(stored)
        except msgspec.DecodeError as error:
            raise StoreCorruptError(f"a stored {self.name} cannot be read: {error}") from error
        return self._encoder.encode(msgspec.structs.replace(array, **changed) if changed else array)

    def read(self, tr: Reader, key: bytes) -> T | None:
        stored = codec.read(tr, key)
        return None if stored is None else self.decode(stored)

    def write(self, tr: Transaction, key: bytes, value: T) -> None:
        codec.write(tr, key, self.encode(value))


@cache
def _array_of(record_type: type) -> type:
    """A type with the same fields, which msgspec keeps as an array. It refuses arrays that are longer."""
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
    if hint in _PLAIN or (isinstance(hint, type) and issubclass(hint, enum.Enum)):
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
