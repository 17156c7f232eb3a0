"""Converts one raw setting (a TOML value, or text from the environment or a flag) into the type of its field.

Every function raises ValueError with a message that completes "must be ...".
"""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

_BOOLEANS: Final = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def optional_inner(kind: Any) -> Any:
    """X for `X | None`; any other type unchanged."""
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        inner = [member for member in typing.get_args(kind) if member is not types.NoneType]
        assert len(inner) == 1, f"a setting must have one type, or one type and None: {kind}"
        return inner[0]
    return kind


def is_table_array(kind: Any) -> bool:
    """Whether the type is a tuple of dataclasses, in TOML an array of tables."""
    arguments = typing.get_args(kind)
    return typing.get_origin(kind) is tuple and dataclasses.is_dataclass(arguments[0])


def convert(raw: object, kind: Any, *, as_text: bool, directory: Path | None) -> object:
    """The value of type `kind`. With `as_text`, `raw` is a string that is parsed as a number, list and so on.

    A relative path is relative to `directory`, if that is given.
    """
    kind = optional_inner(kind)
    if kind is Path:
        return _path(raw, directory)
    if typing.get_origin(kind) is tuple:
        return _strings(raw, as_text)
    if typing.get_origin(kind) is not None and issubclass(typing.get_origin(kind), Mapping):
        return _string_mapping(raw, as_text)
    if issubclass(kind, enum.Enum):
        return _enum(raw, kind)
    return _scalar(raw, kind, as_text)


def _scalar(raw: object, kind: type, as_text: bool) -> object:
    if kind is str:
        return _checked(raw, str, "text")
    if kind is bool:
        value = _BOOLEANS.get(raw.lower(), raw) if as_text and isinstance(raw, str) else raw
        return _checked(value, bool, "true or false")
    if kind is int:
        return _integer(raw, as_text)
    if kind is float:
        return _number(raw, as_text)
    raise TypeError(f"settings cannot have the type {kind}")


def _checked(value: object, kind: type, expected: str) -> object:
    if not isinstance(value, kind):
        raise ValueError(expected)
    return value


def _integer(raw: object, as_text: bool) -> int:
    try:
        value = int(raw) if as_text and isinstance(raw, str) else raw
    except ValueError:
        raise ValueError("a whole number") from None
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("a whole number")
    return value


def _number(raw: object, as_text: bool) -> float:
    try:
        value = float(raw) if as_text and isinstance(raw, str) else raw
    except ValueError:
        raise ValueError("a number") from None
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError("a number")
    return float(value)


def _path(raw: object, directory: Path | None) -> Path:
    if not isinstance(raw, str | Path) or not str(raw):
        raise ValueError("a path")
    path = Path(raw).expanduser()
    return directory / path if directory else path


def _enum(raw: object, kind: type[enum.Enum]) -> enum.Enum:
    for member in kind:
        if raw is member or raw == member.value or (isinstance(raw, str) and raw.lower() == member.name.lower()):
            return member
    raise ValueError("one of " + ", ".join(str(member.value) for member in kind))


def _strings(raw: object, as_text: bool) -> tuple[str, ...]:
    if as_text and isinstance(raw, str):
        return tuple(part.strip() for part in raw.split(",") if part.strip())
    if not isinstance(raw, list | tuple) or not all(isinstance(part, str) for part in raw):
        raise ValueError("a list of texts")
    return tuple(raw)


def _string_mapping(raw: object, as_text: bool) -> Mapping[str, str]:
    if as_text and isinstance(raw, str):
        pairs = [part.partition("=") for part in _strings(raw, as_text)]
        if not all(equals and key for key, equals, _ in pairs):
            raise ValueError("key=value pairs with commas")
        raw = {key.strip(): value.strip() for key, _, value in pairs}
    if not isinstance(raw, Mapping) or not all(isinstance(part, str) for pair in raw.items() for part in pair):
        raise ValueError("a table of texts")
    return dict(raw)
