"""How a domain object is kept: a msgpack map of its fields, ids as 16 bytes, times as microseconds since 1970.

The map is made from the dataclass itself. A field that an older record lacks takes its default, so fields may be added
(with a default) without a new format; renaming or retyping one needs a new format.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.domain.times import from_microseconds, to_microseconds

T = TypeVar("T")


class _Conversion(NamedTuple):
    to_stored: Callable[[Any], Any]
    from_stored: Callable[[Any], Any]


class RecordKind(Generic[T]):
    """To and from the bytes of one dataclass."""

    def __init__(self, record_type: type[T]) -> None:
        self.name = record_type.__name__.lower()
        self._type = record_type
        self._fields = {name: _conversion(hint) for name, hint in get_type_hints(record_type).items()}

    def encode(self, value: T) -> bytes:
        return codec.encode({name: field.to_stored(getattr(value, name)) for name, field in self._fields.items()})

    def decode(self, stored: bytes) -> T:
        record = codec.decode(stored)
        try:
            return self._type(**{name: self._fields[name].from_stored(value) for name, value in record.items()})
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise StoreCorruptError(f"a stored {self.name} cannot be read: {error!r}") from error

    def read(self, tr: Reader, key: bytes) -> T | None:
        stored = codec.read(tr, key)
        return None if stored is None else self.decode(stored)

    def write(self, tr: Transaction, key: bytes, value: T) -> None:
        codec.write(tr, key, self.encode(value))


def _conversion(hint: Any) -> _Conversion:
    while hasattr(hint, "__supertype__"):
        hint = hint.__supertype__
    if get_origin(hint) in {Union, types.UnionType}:
        (inner,) = [argument for argument in get_args(hint) if argument is not type(None)]
        return _optional(_conversion(inner))
    if hint in _CONVERSIONS:
        return _CONVERSIONS[hint]
    if get_origin(hint) is Mapping and get_args(hint) == (str, str):
        return _Conversion(dict, _texts)
    if get_origin(hint) is tuple and get_args(hint)[1:] == (...,):
        return _sequence(_conversion(get_args(hint)[0]))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _Conversion(lambda value: value.value, hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _nested(hint)
    raise TypeError(f"no way to store a {hint}")


def _sequence(inner: _Conversion) -> _Conversion:
    return _Conversion(
        lambda values: [inner.to_stored(value) for value in values],
        lambda stored: tuple([inner.from_stored(value) for value in _expect(list)(stored)]),
    )


def _nested(record_type: type) -> _Conversion:
    """A dataclass inside a record: its values in the order of its fields. Fields may be added at the end."""
    hints = get_type_hints(record_type)
    names = [field.name for field in dataclasses.fields(record_type)]
    conversions = [_conversion(hints[name]) for name in names]
    pairs = list(zip(names, conversions, strict=True))
    return _Conversion(
        lambda value: [conversion.to_stored(getattr(value, name)) for name, conversion in pairs],
        lambda stored: record_type(*[c.from_stored(value) for c, value in zip(conversions, stored, strict=False)]),
    )


def _optional(inner: _Conversion) -> _Conversion:
    return _Conversion(
        lambda value: None if value is None else inner.to_stored(value),
        lambda value: None if value is None else inner.from_stored(value),
    )


def _expect(expected: type) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if type(value) is not expected:
            raise TypeError(f"{type(value).__name__} where {expected.__name__} was stored")
        return value

    return checked


def _texts(value: Any) -> Any:
    if type(value) is not dict or not all(type(text) is str for pair in value.items() for text in pair):
        raise TypeError("something else where a map of texts was stored")
    return value


def _same(stored_type: type) -> _Conversion:
    return _Conversion(lambda value: value, _expect(stored_type))


_CONVERSIONS: dict[Any, _Conversion] = {
    str: _same(str),
    int: _same(int),
    float: _same(float),
    bool: _same(bool),
    bytes: _same(bytes),
    UUID: _Conversion(lambda value: value.bytes, lambda stored: UUID(bytes=_expect(bytes)(stored))),
    datetime: _Conversion(to_microseconds, lambda stored: from_microseconds(_expect(int)(stored))),
}
