"""A large JSON object, read piece by piece: its values one after the other, and those of its lists one by one."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from drillcore.audit.documents import ANY_NUMBERS
from drillcore.audit.failures import Malformed

PIECE_BYTES: Final = 1 << 20
VALUE_CHARACTERS_MAX: Final = 64 << 20
_SPACE: Final = " \t\r\n"


def stream_object(data: BinaryIO, what: str) -> Iterator[tuple[str, Any]]:
    """Names and values of the object; for a value that is a list, the name with each of its elements.

    Raises `Malformed`, which names `what` it is, also where a name stands twice. Holds one value or element at a time.
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
                raise Malformed("names something twice, or by what is no name")
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
        """Whether another one comes, having passed what stands between."""
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
            # What ends with the text at hand may go on in the next piece: a number does not say where it ends.
            if end < len(self._text):
                self._at = end
                return value
            self._read_on()

    def _expect(self, character: str) -> None:
        if self._peek() != character:
            raise Malformed(f"is not JSON: {character!r} is not where it should be")
        self._at += 1

    def _peek(self) -> str:
        """The next character that is not space; none at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._read_on()

    def _read_on(self) -> None:
        """As much again as there is, so that a long value is not tried too often."""
        waiting = len(self._text) - self._at
        if waiting > VALUE_CHARACTERS_MAX or self._ended:
            raise Malformed("is not JSON, or has a value that is too large")
        piece = self._data.read(max(PIECE_BYTES, waiting))
        self._ended = not piece
        self._text = self._text[self._at :] + self._decoder.decode(piece, final=self._ended)
        self._at = 0
