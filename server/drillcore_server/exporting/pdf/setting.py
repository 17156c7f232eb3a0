"""Text broken into lines that fit. Nothing is hyphenated: a word goes to the next line, or is cut if none has room."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from drillcore_server.exporting.pdf import scripts
from drillcore_server.exporting.pdf.fonts import EM, Fonts, Glyph, Style

_LINE_ENDS: Final = re.compile("\r\n|[\n\u2028\u2029]")
_EAST_ASIAN: Final = (
    "\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
)
_WORDS: Final = re.compile(f"[{_EAST_ASIAN}]|[^ \t{_EAST_ASIAN}]+|[ \t]+")
_TAB: Final = "    "
_WORDS_AT_HAND: Final = 50_000


class Run(NamedTuple):
    """Characters of one font."""

    font: str
    text: str
    width: float
    is_number: bool


class Line(NamedTuple):
    runs: Sequence[Run]
    width: float
    """In thousandths of the size."""
    from_right: bool = False
    """Whether its paragraph runs from right to left, and so is set flush right."""


class _Word(NamedTuple):
    glyphs: tuple[Glyph, ...]
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
            for glyphs in self._broken(paragraph, style, room):
                yield _turned_line(glyphs, base) if turned else _line(glyphs)

    def line(self, text: str, style: Style) -> Line:
        """The text, which has no line ends, in one line, however long."""
        (line,) = self.lines(text, style, 1.0, float("inf"))
        return line

    def _broken(self, paragraph: str, style: Style, room: float) -> Iterator[list[Glyph]]:
        line: list[Glyph] = []
        used = 0.0
        for text in _WORDS.findall(paragraph):
            word = self._word(style, text)
            if used + word.width > room and line:
                if word.is_space:
                    continue
                yield line
                line, used = [], 0.0
            if word.width <= room:
                line += word.glyphs
                used += word.width
                continue
            for glyph in word.glyphs:
                if used + glyph.width > room and line:
                    yield line
                    line, used = [], 0.0
                line.append(glyph)
                used += glyph.width
        yield line

    def _set_word(self, style: Style, text: str) -> _Word:
        characters = scripts.joined(text).replace("\t", _TAB)
        glyphs = tuple(self._fonts.glyph(style, one) for one in characters)
        return _Word(glyphs, sum(one.width for one in glyphs), not text.strip(" \t"))


def _line(glyphs: Iterable[Glyph], *, from_right: bool = False) -> Line:
    runs: list[Run] = []
    texts: list[str] = []
    font, is_number, width, total = "", False, 0.0, 0.0
    for glyph in glyphs:
        if texts and (glyph.font != font or glyph.is_number != is_number):
            runs.append(Run(font, "".join(texts), width, is_number))
            texts, width = [], 0.0
        font, is_number = glyph.font, glyph.is_number
        texts.append(glyph.text)
        width += glyph.width
        total += glyph.width
    if texts:
        runs.append(Run(font, "".join(texts), width, is_number))
    return Line(runs, total, from_right)


def _turned_line(glyphs: Sequence[Glyph], base: int) -> Line:
    levels = scripts.levels([glyph.text for glyph in glyphs], base)
    facing = [
        glyph._replace(text=scripts.mirrored(glyph.text)) if level % 2 and not glyph.is_number else glyph
        for glyph, level in zip(glyphs, levels, strict=True)
    ]
    return _line(scripts.in_display_order(facing, levels), from_right=base == 1)
