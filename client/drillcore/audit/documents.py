"""JSON as evidence holds it: read strictly, written in its one canonical form (RFC 8785)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn
from uuid import UUID

from drillcore.audit.failures import Malformed

SAFE_INTEGER: Final = (1 << 53) - 1
_DIGITS_MAX: Final = len(str(SAFE_INTEGER)) + 1
_PLAIN: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), check_circular=False)
_BEYOND: Final = re.compile("[\ud800-\udfff\U00010000-\U0010ffff]")
"""Also halves of characters, which have no canonical form."""


def parse_json(data: bytes | str, what: str, *, floats: bool = False) -> Any:
    """The value. A name that is there twice, a number that other readers may take for another, or, unless `floats` are
    allowed, one that is not whole: all are refused, for two readers must not see two different things.
    """
    decoder = ANY_NUMBERS if floats else _WHOLE_NUMBERS
    try:
        return decoder.decode(data if isinstance(data, str) else data.decode())
    except UnicodeDecodeError:
        raise Malformed(f"{what} is not UTF-8") from None
    except RecursionError:
        raise Malformed(f"{what} is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise Malformed(f"{what} is not JSON: {error.msg} at character {error.pos}") from None
    except Malformed as error:
        raise Malformed(f"{what} {error}") from None


def parse_object(data: bytes | str, what: str, *, floats: bool = False) -> dict[str, Any]:
    found = parse_json(data, what, floats=floats)
    if not isinstance(found, dict):
        raise Malformed(f"{what} is no JSON object")
    return found


def parse_id(text: object, what: str) -> UUID:
    """A UUID in its one right form."""
    try:
        found = UUID(text) if isinstance(text, str) else None
    except ValueError:
        found = None
    if found is None or str(found) != text:
        raise Malformed(f"{what} is not named by a UUID")
    return found


def parse_count(value: object, what: str) -> int:
    if type(value) is not int or value < 0:
        raise Malformed(f"{what} is not a whole number")
    return value


def canonical_json(value: Any) -> bytes:
    """The value as RFC 8785 writes it. Raises `Malformed` for what it has no form for."""
    try:
        return _written(value).encode()
    except UnicodeEncodeError:
        raise Malformed("a text has half a character") from None
    except RecursionError:
        raise Malformed("it is nested too deeply") from None


def canonical_record(value: Any) -> bytes:
    """As `canonical_json`, and much faster: for what `parse_json` read without floats."""
    text = _PLAIN.encode(value)
    # Beyond the first 2^16 characters the order of names by UTF-16, as the RFC wants it, is another than Python's.
    return text.encode() if text.isascii() or not _BEYOND.search(text) else canonical_json(value)


def _written(value: Any) -> str:
    if isinstance(value, str):
        return encode_basestring(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ",".join([f"{encode_basestring(name)}:{_written(value[name])}" for name in _sorted(value)]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join([_written(one) for one in value]) + "]"
    if isinstance(value, int) and abs(value) <= SAFE_INTEGER:
        return str(value)
    if isinstance(value, float):
        return _number(value)
    raise Malformed(f"JSON has no safe form for a value of type {type(value).__name__}")


def _sorted(names: Mapping[str, Any]) -> list[str]:
    """By UTF-16 code units; for ASCII that is the order of the texts themselves."""
    if all(map(str.isascii, names)):
        return sorted(names)
    return sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass"))


def _number(value: float) -> str:
    """As ECMAScript writes it: Python finds the same digits, but sets the point otherwise."""
    if not math.isfinite(value):
        raise Malformed("JSON has no form for a number that is not finite")
    if value == 0:
        return "0"
    found = Decimal(repr(abs(value))).normalize().as_tuple()
    digits = "".join(map(str, found.digits))
    return ("-" if value < 0 else "") + _pointed(digits, len(digits) + int(found.exponent))


def _pointed(digits: str, point: int) -> str:
    """Digits with the point before the one of this place, or with an exponent if that is far away."""
    if len(digits) <= point <= 21:
        return digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    return digits[0] + ("." + digits[1:] if digits[1:] else "") + f"e{point - 1:+d}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Malformed("names something twice")
    return found


def _whole_number(text: str) -> int:
    if len(text) > _DIGITS_MAX or abs(int(text)) > SAFE_INTEGER:
        raise Malformed("has a number that is too large")
    return int(text)


def _any_whole_number(text: str) -> int | float:
    """Larger ones are what other readers take them for."""
    return float(text) if len(text) > _DIGITS_MAX or abs(int(text)) > SAFE_INTEGER else int(text)


def _no_float(_text: str) -> NoReturn:
    raise Malformed("has a number that is not whole")


def _no_constant(_text: str) -> NoReturn:
    raise Malformed("has a number that JSON does not know")


_WHOLE_NUMBERS: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_whole_number, parse_float=_no_float, parse_constant=_no_constant
)
ANY_NUMBERS: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_any_whole_number, parse_constant=_no_constant
)
