"""How evidence is encoded: base64 and JSON that have exactly one form for each value."""

from __future__ import annotations

import binascii
import codecs
import json
import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, BinaryIO, Final, NoReturn
from uuid import UUID

from drillcore_formats.audit.findings import Malformed


def to_base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def from_base64(text: object, what: str, size_bytes: int | None = None) -> bytes:
    """The bytes. `what` names them in errors; `size_bytes` is how many there must be, if given."""
    if not isinstance(text, str):
        raise Malformed(f"{what} is missing, or is not a text in base64")
    try:
        data = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except ValueError:
        raise Malformed(f"{what} is not base64") from None
    # The last character may have unused bits. In the canonical form they are zero.
    if to_base64(data) != text:
        raise Malformed(f"{what} is not in the canonical form of base64")
    if size_bytes is not None and len(data) != size_bytes:
        raise Malformed(f"{what} has {len(data)} bytes instead of {size_bytes}")
    return data


SAFE_INTEGER: Final = (1 << 53) - 1
_DIGITS_MAX: Final = len(str(SAFE_INTEGER)) + 1
_PLAIN: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), check_circular=False)
_BEYOND: Final = re.compile("[\ud800-\udfff\U00010000-\U0010ffff]")
"""Also matches halves of characters, which have no canonical form."""


def parse_json(data: bytes | str, what: str, *, floats: bool = False) -> Any:
    """The value. Raises `Malformed` for anything that two readers might understand differently.

    That is a name used twice, a number too large to be exact, and, unless `floats` are allowed, any other number
    that is not whole.
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
        raise Malformed(f"{what} is not a JSON object")
    return found


def parse_id(text: object, what: str) -> UUID:
    """A UUID in its canonical form."""
    try:
        found = UUID(text) if isinstance(text, str) else None
    except ValueError:
        found = None
    if found is None or str(found) != text:
        raise Malformed(f"the id of {what} is not a UUID")
    return found


def parse_count(value: object, what: str) -> int:
    if type(value) is not int or value < 0:
        raise Malformed(f"{what} is not a whole number")
    return value


def canonical_json(value: Any) -> bytes:
    """The value in the form of RFC 8785. Raises `Malformed` for values that have none."""
    try:
        return _written(value).encode()
    except UnicodeEncodeError:
        raise Malformed("a text has half a character") from None
    except RecursionError:
        raise Malformed("it is nested too deeply") from None


def canonical_record(value: Any) -> bytes:
    """Same result as `canonical_json`, much faster. Only for values that `parse_json` read without floats."""
    text = _PLAIN.encode(value)
    # The RFC sorts names by UTF-16. Beyond the first 2^16 characters that differs from Python's order.
    return text.encode() if text.isascii() or not _BEYOND.search(text) else canonical_json(value)


def _written(value: Any) -> str:
    if isinstance(value, str):
        return encode_basestring(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ",".join([f"{encode_basestring(name)}:{_written(value[name])}" for name in _sorted(value)]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join([_written(element) for element in value]) + "]"
    if isinstance(value, int) and abs(value) <= SAFE_INTEGER:
        return str(value)
    if isinstance(value, float):
        return _number(value)
    raise Malformed(f"JSON has no safe form for a value of type {type(value).__name__}")


def _sorted(names: Mapping[str, Any]) -> list[str]:
    """Sorts names by UTF-16 code units. For ASCII this is the plain order."""
    if all(map(str.isascii, names)):
        return sorted(names)
    return sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass"))


def _number(value: float) -> str:
    """The number as ECMAScript writes it. Python finds the same digits but places the point differently."""
    if not math.isfinite(value):
        raise Malformed("JSON has no form for a number that is not finite")
    if value == 0:
        return "0"
    found = Decimal(repr(abs(value))).normalize().as_tuple()
    digits = "".join(map(str, found.digits))
    return ("-" if value < 0 else "") + _pointed(digits, len(digits) + int(found.exponent))


def _pointed(digits: str, point: int) -> str:
    """The digits with a point at this place, or with an exponent if the place is far away."""
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
    """Large numbers become floats, as other readers of JSON take them."""
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


PIECE_BYTES: Final = 1 << 20
VALUE_CHARACTERS_MAX: Final = 64 << 20
_SPACE: Final = " \t\r\n"


def stream_object(data: BinaryIO, what: str) -> Iterator[tuple[str, Any]]:
    """The names and values of a large JSON object. For a list, yields the name with each element.

    Holds one value or element in memory at a time. Raises `Malformed`, with `what` in the message, also if a name is
    used twice.
    """
    try:
        yield from _Reader(data).members()
    except UnicodeDecodeError:
        raise Malformed(f"{what} is not UTF-8") from None
    except RecursionError:
        raise Malformed(f"{what} is nested too deeply") from None
    except Malformed as error:
        raise Malformed(f"{what} {error}") from None


class _Reader:
    def __init__(self, data: BinaryIO) -> None:
        self._data = data
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._text = ""
        self._at = 0
        self._ended = False

    def members(self) -> Iterator[tuple[str, Any]]:
        self._expect("{")
        names: set[str] = set()
        while self._more("}", first=not names):
            name = self._value()
            if not isinstance(name, str) or name in names:
                raise Malformed("has a name that is used twice or is not a text")
            names.add(name)
            self._expect(":")
            for value in self._elements() if self._peek() == "[" else [self._value()]:
                yield name, value
        if self._peek():
            raise Malformed("has something after its end")

    def _elements(self) -> Iterator[Any]:
        self._expect("[")
        first = True
        while self._more("]", first=first):
            first = False
            yield self._value()

    def _more(self, end: str, *, first: bool) -> bool:
        """Whether another element follows. Reads past the comma or the end."""
        if self._peek() == end:
            self._at += 1
            return False
        if not first:
            self._expect(",")
        return True

    def _value(self) -> Any:
        self._peek()
        while True:
            try:
                value, end = ANY_NUMBERS.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                end = len(self._text)
            # A value at the very end of the text may continue in the next piece: a number has no end mark.
            if end < len(self._text):
                self._at = end
                return value
            self._read_on()

    def _expect(self, character: str) -> None:
        if self._peek() != character:
            raise Malformed(f"is not JSON: {character!r} is not where it should be")
        self._at += 1

    def _peek(self) -> str:
        """The next character that is not a space; empty at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._read_on()

    def _read_on(self) -> None:
        """Doubles the text at hand, so that a long value is not parsed too often."""
        waiting = len(self._text) - self._at
        if waiting > VALUE_CHARACTERS_MAX or self._ended:
            raise Malformed("is not JSON, or has a value that is too large")
        piece = self._data.read(max(PIECE_BYTES, waiting))
        self._ended = not piece
        self._text = self._text[self._at :] + self._decoder.decode(piece, final=self._ended)
        self._at = 0
