"""Faces that cover the text. They come with the package `pymupdf-fonts`: nothing is taken from the system.

Noto Sans has Latin, Greek, Cyrillic and their punctuation; FiraGO beside it Arabic, Hebrew, Devanagari, Thai and
Georgian; Cascadia Mono box drawing and some symbols. For other scripts, such as Chinese, give TrueType files
(`audit.pdf_font_dir`). A character that no face has is set as its number, U+XXXX.
"""

from __future__ import annotations

import enum
import io
import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFError, TTFont

from drillcore_server.exporting.pdf import scripts
from drillcore_server.exporting.shown import number_of

EM: Final = 1000
"""Widths are in thousandths of the size."""
NUMBER_SIZE: Final = 0.8
"""Of a character's number, to the size of the text around it."""
_UNSEEN: Final = {"Cc", "Cf", "Cs", "Co", "Cn"}
"""Categories of characters that leave no mark of their own: set as numbers, whatever a face has for them."""


class Style(enum.Enum):
    REGULAR = ("notos", "figo", "cascadia")
    BOLD = ("notosbo", "figbo", "cascadiab")
    ITALIC = ("notosit", "figit", "cascadiai")


class FontError(Exception):
    """A font file that cannot be used; says which and why."""


class Run(NamedTuple):
    """One character or more, of one font."""

    font: str
    text: str
    width: float
    is_number: bool
    """Whether it is the number of a character instead of the character."""


class Fonts:
    """Characters, each in a font that has it; what was found is remembered, so one object may serve many copies."""

    def __init__(self, files: Sequence[Path] = ()) -> None:
        further = [_file_font(file) for file in files]
        self._chains = {style: [*map(_font, style.value), *further] for style in Style}
        self._known: dict[Style, dict[str, Run]] = {style: {} for style in Style}

    def glyph(self, style: Style, character: str) -> Run:
        known = self._known[style]
        if character not in known:
            known[character] = self._find(style, character)
        return known[character]

    def _find(self, style: Style, character: str) -> Run:
        chain = self._chains[style]
        if unicodedata.category(character) == "Zs":
            return Run(chain[0].fontName, " ", _width(chain[0], " "), False)
        if unicodedata.category(character) not in _UNSEEN:
            for one in (character, scripts.letter_of(character)):
                for font in chain:
                    if ord(one) in font.face.charToGlyph:
                        return Run(font.fontName, one, _width(font, one), False)
        number = number_of(scripts.letter_of(character))
        width = sum(_width(chain[0], one) for one in number) * NUMBER_SIZE
        return Run(chain[0].fontName, number, width, True)


def _width(font: TTFont, character: str) -> float:
    width: float = font.face.charWidths.get(ord(character), font.face.defaultWidth)
    return width


@cache
def _font(code: str) -> TTFont:
    """One of the package's. reportlab knows fonts by name, for the whole process."""
    import pymupdf_fonts

    return _registered(TTFont(f"drillcore-{code}", io.BytesIO(pymupdf_fonts.fontbuffers[code]()), shapable=False))


@cache
def _file_font(file: Path) -> TTFont:
    try:
        return _registered(TTFont(f"drillcore-{file}", str(file), shapable=False))
    except (TTFError, OSError) as error:
        raise FontError(f"the font {file} cannot be used: {error}") from error


def _registered(font: TTFont) -> TTFont:
    pdfmetrics.registerFont(font)
    return font
