"""Finds a font for each character, joins Arabic letters, and orders the characters of lines from right to left.

Fonts come with the package `pymupdf-fonts`; none is taken from the system. Noto Sans has Latin, Greek and Cyrillic.
FiraGO adds Arabic, Hebrew, Devanagari, Thai and Georgian. Cascadia Mono adds box drawing and some symbols. For other
scripts, such as Chinese, the operator adds TrueType files (`audit.pdf_font_dir`). A character that no font has is set
as its number, U+XXXX.

The order of characters follows the implicit part of the bidirectional algorithm (UAX 9). Explicit direction marks have
no effect, and are shown by their number. Comments such as W1 name the rules of UAX 9.
"""

from __future__ import annotations

import enum
import io
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFError, TTFont

from drillcore_server.exports.blocks import number_of

T = TypeVar("T")
_RIGHT_TO_LEFT: Final = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
_ARABIC: Final = re.compile("[\u0600-\u06ff]")
_PAIRS: Final = "()[]{}<>\u00ab\u00bb\u2039\u203a\u2264\u2265"
_MIRRORED: Final = {character: _PAIRS[place ^ 1] for place, character in enumerate(_PAIRS)}
_NEUTRAL: Final = {"B", "S", "WS", "ON", "BN"}


def is_right_to_left(text: str) -> bool:
    """Whether a text has any character that runs from right to left."""
    return _RIGHT_TO_LEFT.search(text) is not None


def mirrored(character: str) -> str:
    """The opposite bracket, for text that runs from right to left. Other characters stay the same."""
    return _MIRRORED.get(character, character)


class _Forms(NamedTuple):
    isolated: str
    final: str = ""
    initial: str = ""
    medial: str = ""


@cache
def _forms() -> dict[str, _Forms]:
    """The shapes of each Arabic letter, as Unicode names them in its Arabic Presentation Forms-B."""
    found: dict[str, dict[str, str]] = {}
    for code in range(0xFE80, 0xFEF5):
        kind, _, letters = unicodedata.decomposition(chr(code)).partition(" ")
        if letters and " " not in letters:
            found.setdefault(chr(int(letters, 16)), {})[kind.strip("<>")] = chr(code)
    return {letter: _Forms(**{**forms, "isolated": letter}) for letter, forms in found.items()}


def letter_of(shape: str) -> str:
    """The letter of an Arabic shape. Other characters stay the same."""
    return unicodedata.normalize("NFKC", shape) if "\ufe80" <= shape <= "\ufef4" else shape


def joined(word: str) -> str:
    """The word with each Arabic letter in the shape that its neighbours require. Marks do not count as neighbours."""
    if not _ARABIC.search(word):
        return word
    letters = [place for place, character in enumerate(word) if unicodedata.category(character) != "Mn"]
    shaped = list(word)
    for nth, place in enumerate(letters):
        forms = _forms().get(word[place])
        if forms is not None:
            before = nth > 0 and bool(_forms_of(word[letters[nth - 1]]).initial)
            after = nth + 1 < len(letters) and bool(_forms_of(word[letters[nth + 1]]).final)
            shaped[place] = _shape(forms, before=before, after=after)
    return "".join(shaped)


def _forms_of(letter: str) -> _Forms:
    return _forms().get(letter, _Forms(letter))


def _shape(forms: _Forms, *, before: bool, after: bool) -> str:
    if before and after and forms.medial:
        return forms.medial
    if after and forms.initial and not before:
        return forms.initial
    return forms.final if before and forms.final else forms.isolated


def base_level(text: str) -> int:
    """1 if the first letter with a direction runs from right to left, else 0 (P2, P3)."""
    for character in text:
        kind = unicodedata.bidirectional(character)
        if kind in {"L", "R", "AL"}:
            return 0 if kind == "L" else 1
    return 0


def levels(text: Sequence[str], base: int) -> list[int]:
    """The embedding level of each character (W1 to I2)."""
    edge = "R" if base else "L"
    kinds = _weak([unicodedata.bidirectional(character[0]) or "ON" for character in text], edge)
    kinds = _neutral(kinds, edge)
    return [_level(kind, base) for kind in kinds]


def in_display_order(items: Sequence[T], levels_of: Sequence[int]) -> list[T]:
    """L2: from the highest level down, reverses each sequence of items that are at that level or above."""
    order = list(range(len(items)))
    for level in range(max(levels_of, default=0), 0, -1):
        for start, end in _sequences(levels_of, order, level):
            order[start:end] = order[start:end][::-1]
    return [items[place] for place in order]


def _sequences(levels_of: Sequence[int], order: Sequence[int], level: int) -> Iterator[tuple[int, int]]:
    start: int | None = None
    for place, item_level in enumerate([*(levels_of[item] for item in order), -1]):
        if item_level >= level and start is None:
            start = place
        elif item_level < level and start is not None:
            yield start, place
            start = None


def _weak(kinds: list[str], edge: str) -> list[str]:
    """W1 to W7: resolves numbers, and the signs that belong to them."""
    before, strong = edge, edge
    for place, kind in enumerate(kinds):
        new = before if kind == "NSM" else kind  # W1
        if new in {"L", "R", "AL"}:
            strong = new
        if new == "EN" and strong == "AL":  # W2
            new = "AN"
        before = kinds[place] = new
    kinds = ["R" if kind == "AL" else kind for kind in kinds]  # W3
    for place in range(1, len(kinds) - 1):  # W4
        left, kind, right = kinds[place - 1 : place + 2]
        if left == right and ((kind in {"ES", "CS"} and left == "EN") or (kind == "CS" and left == "AN")):
            kinds[place] = left
    _attach_terminators(kinds)
    kinds = ["ON" if kind in {"ES", "ET", "CS"} else kind for kind in kinds]  # W6
    strong = edge
    for place, kind in enumerate(kinds):  # W7
        if kind in {"L", "R"}:
            strong = kind
        elif kind == "EN" and strong == "L":
            kinds[place] = "L"
    return kinds


def _attach_terminators(kinds: list[str]) -> None:
    """W5: a sign such as percent belongs to the number beside it."""
    for places in (range(1, len(kinds)), range(len(kinds) - 2, -1, -1)):
        step = 1 if places.step > 0 else -1
        for place in places:
            if kinds[place] == "ET" and kinds[place - step] == "EN":
                kinds[place] = "EN"


def _neutral(kinds: list[str], edge: str) -> list[str]:
    """N1, N2: spaces and signs take the direction of their neighbours if these agree, else that of the paragraph."""
    place = 0
    while place < len(kinds):
        end = place
        while end < len(kinds) and kinds[end] in _NEUTRAL:
            end += 1
        if end > place:
            left = _strong(kinds[place - 1]) if place else edge
            right = _strong(kinds[end]) if end < len(kinds) else edge
            kinds[place:end] = [left if left == right else edge] * (end - place)
        place = end + 1
    return kinds


def _strong(kind: str) -> str:
    return "R" if kind in {"EN", "AN"} else kind


def _level(kind: str, base: int) -> int:
    """I1, I2."""
    if base:
        return 1 if kind == "R" else 2
    return {"R": 1, "EN": 2, "AN": 2}.get(kind, 0)


EM: Final = 1000
"""Widths are in thousandths of the font size."""
NUMBER_SIZE: Final = 0.8
"""Size of a character's number, relative to the text around it."""
_UNSEEN: Final = {"Cc", "Cf", "Cs", "Co", "Cn"}
"""Categories of invisible characters. They are set as numbers, even if a font has them."""


class Style(enum.Enum):
    REGULAR = ("notos", "figo", "cascadia")
    BOLD = ("notosbo", "figbo", "cascadiab")
    ITALIC = ("notosit", "figit", "cascadiai")


class FontError(Exception):
    """A font file cannot be used. The message says which and why."""


class Run(NamedTuple):
    """One or more characters in the same font."""

    font: str
    text: str
    width: float
    is_number: bool
    """Whether the text is a character's number, shown instead of the character."""


class Fonts:
    """Finds the font of each character, and caches the result. One object may serve many copies."""

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
            for shape in (character, letter_of(character)):
                for font in chain:
                    if ord(shape) in font.face.charToGlyph:
                        return Run(font.fontName, shape, _width(font, shape), False)
        number = number_of(letter_of(character))
        width = sum(_width(chain[0], digit) for digit in number) * NUMBER_SIZE
        return Run(chain[0].fontName, number, width, True)


def _width(font: TTFont, character: str) -> float:
    width: float = font.face.charWidths.get(ord(character), font.face.defaultWidth)
    return width


@cache
def _font(code: str) -> TTFont:
    """Loads a font of the package. reportlab registers fonts by name for the whole process."""
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
