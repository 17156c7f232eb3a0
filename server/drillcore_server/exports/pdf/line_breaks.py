"""Breaks text into lines that fit. Words are not hyphenated; a word is only cut if it is longer than a line."""

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
_WORDS_CACHED: Final = 50_000


class Line(NamedTuple):
    runs: Sequence[Run]
    width: float
    """In thousandths of the font size."""
    from_right: bool = False
    """Whether the line is set flush right, because its paragraph runs from right to left."""


class _Word(NamedTuple):
    characters: Sequence[Run]
    runs: Sequence[Run]
    """The same characters, those of the same font joined."""
    width: float
    is_space: bool


class LineSetter:
    """Sets text as lines in the given fonts."""

    def __init__(self, fonts: Fonts) -> None:
        self._fonts = fonts
        self._word = lru_cache(_WORDS_CACHED)(self._set_word)

    def lines(self, text: str, style: Style, size: float, width: float) -> Iterator[Line]:
        """The text in lines of at most `width` points. An empty text is one empty line."""
        room = width / size * EM
        for paragraph in _LINE_ENDS.split(text):
            turned = scripts.is_right_to_left(paragraph)
            base = scripts.base_level(paragraph) if turned else 0
            for runs in self._broken(paragraph, style, room, by_character=turned):
                yield _turned_line(runs, base) if turned else _line(runs)

    def line(self, text: str, style: Style) -> Line:
        """The text in one line, however long. It must have no line ends."""
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
        characters = [self._fonts.glyph(style, character) for character in shaped]
        width = sum(run.width for run in characters)
        return _Word(characters, _joined(characters), width, not text.strip(" \t"))


def _joined(runs: Sequence[Run]) -> list[Run]:
    """Joins neighbouring runs of the same font."""
    joined: list[Run] = []
    for (font, is_number), group in groupby(runs, key=lambda run: (run.font, run.is_number)):
        same = list(group)
        text = "".join([run.text for run in same])
        joined.append(Run(font, text, sum([run.width for run in same]), is_number))
    return joined


def _line(runs: Sequence[Run], *, from_right: bool = False) -> Line:
    joined = _joined(runs)
    return Line(joined, sum([run.width for run in joined]), from_right)


def _turned_line(characters: Sequence[Run], base: int) -> Line:
    levels = scripts.levels([run.text for run in characters], base)
    mirrored = [
        run._replace(text=scripts.mirrored(run.text)) if level % 2 and not run.is_number else run
        for run, level in zip(characters, levels, strict=True)
    ]
    return _line(scripts.in_display_order(mirrored, levels), from_right=base == 1)
