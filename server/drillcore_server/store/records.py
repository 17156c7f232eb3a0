"""How a domain object is kept: a msgpack array of its fields in their order, and so are the objects inside it.

Ids are 16 bytes, times microseconds since 1970, hashes bytes, weights of four digits whole numbers.

The array is made from the dataclass itself. Fields that an older record lacks take their defaults, so fields may be
added at the end (with a default) without a new format; moving, removing or retyping one needs a new format.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, Generic, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from drillcore_fdb import codec
from drillcore_fdb.engine import Reader, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.domain.ids import ContentHash
from drillcore_server.domain.times import from_microseconds, to_microseconds

T = TypeVar("T")


class _Conversion(NamedTuple):
    to_stored: Callable[[Any], Any]
    from_stored: Callable[[Any], Any]


class RecordKind(Generic[T]):
    """To and from the bytes of one dataclass."""

    def __init__(self, record_type: type[T]) -> None:
        self.name = record_type.__name__.lower()
        self._whole = _nested(record_type)

    def encode(self, value: T) -> bytes:
        return codec.encode(self._whole.to_stored(value))

    def decode(self, stored: bytes) -> T:
        record = codec.decode(stored)
        try:
            value: T = self._whole.from_stored(record)
        except (ValueError, TypeError, OverflowError) as error:
            raise StoreCorruptError(f"a stored {self.name} cannot be read: {error!r}") from error
        return value

    def read(self, tr: Reader, key: bytes) -> T | None:
        stored = codec.read(tr, key)
        return None if stored is None else self.decode(stored)

    def write(self, tr: Transaction, key: bytes, value: T) -> None:
        codec.write(tr, key, self.encode(value))


def _conversion(hint: Any) -> _Conversion:
    while hint not in _CONVERSIONS and hasattr(hint, "__supertype__"):
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
    """The values of a dataclass in the order of its fields."""
    hints = get_type_hints(record_type)
    names = [field.name for field in dataclasses.fields(record_type)]
    conversions = [_conversion(hints[name]) for name in names]
    pairs = list(zip(names, conversions, strict=True))

    def from_stored(stored: Any) -> Any:
        if len(_expect(list)(stored)) > len(conversions):
            raise ValueError("fields that nobody knows")
        return record_type(*[one.from_stored(value) for one, value in zip(conversions, stored, strict=False)])

    return _Conversion(lambda value: [one.to_stored(getattr(value, name)) for name, one in pairs], from_stored)


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


def _shortened(value: float) -> float:
    """Weights are rounded to four digits: as a whole number such a one takes three bytes instead of nine."""
    scaled = value * _FOUR_DIGITS
    if abs(scaled) <= _FOUR_DIGITS and (whole := round(scaled)) / _FOUR_DIGITS == value:
        return whole
    return value


def _lengthened(stored: Any) -> float:
    return stored / _FOUR_DIGITS if type(stored) is int else _expect(float)(stored)


def _hash_bytes(value: str) -> bytes | str:
    """As bytes if it is hex as we write it; else as it is."""
    try:
        stored = bytes.fromhex(value)
    except ValueError:
        return value
    return stored if stored.hex() == value else value


def _hash_text(stored: Any) -> str:
    return stored.hex() if type(stored) is bytes else _expect(str)(stored)


_FOUR_DIGITS: Final = 10_000
_CONVERSIONS: dict[Any, _Conversion] = {
    str: _same(str),
    int: _same(int),
    float: _Conversion(_shortened, _lengthened),
    bool: _same(bool),
    bytes: _same(bytes),
    ContentHash: _Conversion(_hash_bytes, _hash_text),
    UUID: _Conversion(lambda value: value.bytes, lambda stored: UUID(bytes=_expect(bytes)(stored))),
    datetime: _Conversion(to_microseconds, lambda stored: from_microseconds(_expect(int)(stored))),
}
