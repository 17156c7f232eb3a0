"""Text broken into lines that fit. Nothing is hyphenated: a word goes to the next line, or is cut if none has room."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Final, NamedTuple

from drillcore_server.exports.pdf import fonts as scripts
from drillcore_server.exports.pdf.fonts import EM, Fonts, Run, Style

_LINE_ENDS: Final = re.compile("\r\n|[\n\u2028\u2029]")
_EAST_ASIAN: Final = (
    "\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
)
_WORDS: Final = re.compile(f"[{_EAST_ASIAN}]|[^ \t{_EAST_ASIAN}]+|[ \t]+")
_TAB: Final = "    "
_WORDS_AT_HAND: Final = 50_000


class Line(NamedTuple):
    runs: Sequence[Run]
    width: float
    """In thousandths of the size."""
    from_right: bool = False
    """Whether its paragraph runs from right to left, and so is set flush right."""


class _Word(NamedTuple):
    characters: Sequence[Run]
    runs: Sequence[Run]
    """The same, those of one font together."""
    width: float
    is_space: bool


class Setter:
    def __init__(self, fonts: Fonts) -> None:
        self._fonts = fonts
        self._word = lru_cache(_WORDS_AT_HAND)(self._set_word)

    def lines(self, text: str, style: Style, size: float, width: float) -> Iterator[Line]:
        """The text in lines of at most `width` points. An empty text is one empty line."""
        room = width / size * EM
        for paragraph in _LINE_ENDS.split(text):
            turned = scripts.is_right_to_left(paragraph)
            base = scripts.base_level(paragraph) if turned else 0
            for runs in self._broken(paragraph, style, room, by_character=turned):
                yield _turned_line(runs, base) if turned else _line(runs)

    def line(self, text: str, style: Style) -> Line:
        """The text, which has no line ends, in one line, however long."""
        (line,) = self.lines(text, style, 1.0, float("inf"))
        return line

    def _broken(self, paragraph: str, style: Style, room: float, *, by_character: bool) -> Iterator[list[Run]]:
        line: list[Run] = []
        used = 0.0
        for text in _WORDS.findall(paragraph):
            word = self._word(style, text)
            if used + word.width > room and line:
                if word.is_space:
                    continue
                yield line
                line, used = [], 0.0
            if word.width <= room:
                line += word.characters if by_character else word.runs
                used += word.width
                continue
            for character in word.characters:
                if used + character.width > room and line:
                    yield line
                    line, used = [], 0.0
                line.append(character)
                used += character.width
        yield line

    def _set_word(self, style: Style, text: str) -> _Word:
        shaped = scripts.joined(text).replace("\t", _TAB)
        characters = [self._fonts.glyph(style, one) for one in shaped]
        width = sum(one.width for one in characters)
        return _Word(characters, _together(characters), width, not text.strip(" \t"))


def _together(runs: Sequence[Run]) -> list[Run]:
    """Neighbours of one font become one."""
    together: list[Run] = []
    for (font, is_number), group in groupby(runs, key=lambda run: (run.font, run.is_number)):
        same = list(group)
        text = "".join([run.text for run in same])
        together.append(Run(font, text, sum([run.width for run in same]), is_number))
    return together


def _line(runs: Sequence[Run], *, from_right: bool = False) -> Line:
    together = _together(runs)
    return Line(together, sum([run.width for run in together]), from_right)


def _turned_line(characters: Sequence[Run], base: int) -> Line:
    levels = scripts.levels([one.text for one in characters], base)
    facing = [
        one._replace(text=scripts.mirrored(one.text)) if level % 2 and not one.is_number else one
        for one, level in zip(characters, levels, strict=True)
    ]
    return _line(scripts.in_display_order(facing, levels), from_right=base == 1)
