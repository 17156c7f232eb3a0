"""Where sentences are. `sentencex` finds their ends; numbering and line breaks of legal text need the rules here."""

from __future__ import annotations

import re
from itertools import accumulate, pairwise
from typing import Final

import sentencex

from drillcore_server.ingest.processing.words import without_surrogates

MARKER_FORMS: Final = (
    r"(?:\d{1,3}\.){0,6}(?:\(\w{1,5}\)){1,4}"  # (a)  (a)(1)  1.1.1.(2)
    r"|\d{1,3}(?:\.\d{1,3}){0,5}[.)]"  # 1.  1)  1.2.3.
    r"|\d{1,3}(?:\.\d{1,3}){1,5}"  # 1.2.3
    r"|[A-Za-z][.)]|[ivxIVX]{2,5}[.)]"  # a)  iv.
    r"|[-*•\u2013—·]"
)
"""(a) and the like; what follows tells whether one is meant."""
MARKER: Final = re.compile(rf"(?:{MARKER_FORMS})(?=[ \t])")
"""What an item of a list or a numbered paragraph begins with."""

_LINE_MARKER: Final = re.compile(rf"\n[ \t]*(?:{MARKER_FORMS})(?=[ \t])")
"""Begins with the line end before it: a search for a literal is fast."""
_BLANK_LINE: Final = re.compile(r"\n[ \t\r]*\n")
_ENDS_BEFORE_ITEM: Final = (".", ":", ";", ",", "!", "?", "—", " and", " or", " und", " oder", " et", " ou")
_LOOK_BACK: Final = 12
_ONLY_A_NUMBER: Final = re.compile(r"\s*(?:(?=\D{0,30}\d)\S{1,30}[.)]|[IVXLC]{1,6}\.|[A-Za-z]{1,3}\.)\s*")
"""A number or letter as in "3.", "IV." or "1.2.Guidance.1.", which belongs to what follows."""
_ENDS_ABBREVIATED: Final = re.compile(
    r"\b(?:No|Nos|Art|Arts|Sec|Secs|Reg|Para|Abs|Nr|Ziff|cf|ca|approx|et seq|Cir|Stat)\.\s{0,3}$", re.IGNORECASE
)

WINDOW_CHARACTERS: Final = 16_384
"""More than a chunk has. `sentencex` is quadratic in unclosed quotation marks, so it never sees more at a time."""

Bounds = tuple[int, int]


def sentences(text: str, language: str) -> list[Bounds]:
    """Start and end of each sentence, heading and list item, in order, without the white space around them.

    Nothing but white space is left out.
    """
    trimmed = (_trim(text, start, end) for start, end in _pieces(text, language))
    return [bounds for bounds in trimmed if bounds[0] < bounds[1]]


def _pieces(text: str, language: str) -> list[Bounds]:
    markers = _markers(text)
    hard = _hard_starts(text, markers)
    starts = sorted({0, len(text), *hard, *_soft_starts(text, markers, language)})
    kept: list[int] = []
    for place, start in enumerate(starts):
        if start in hard or not kept or start == len(text) or not _joined(text, kept[-1], start, starts[place + 1]):
            kept.append(start)
    return list(pairwise(kept))


def _markers(text: str) -> list[Bounds]:
    """Where lines begin with a marker, from the beginning of the line."""
    first = MARKER.match(text, len(text) - len(text.lstrip(" \t")))
    found = [(place.start() + 1, place.end()) for place in _LINE_MARKER.finditer(text)]
    return [(0, first.end()), *found] if first else found


def _soft_starts(text: str, markers: list[Bounds], language: str) -> list[int]:
    """By `sentencex`, which takes a list item for one sentence whatever is in it: so it sees no markers."""
    plain = _blanked(without_surrogates(text), markers)
    windows = (plain[start : start + WINDOW_CHARACTERS] for start in range(0, len(plain), WINDOW_CHARACTERS))
    ends = list(accumulate(len(piece) for window in windows for piece in sentencex.segment(language, window)))
    return ends if ends and ends[-1] == len(text) else []


def _blanked(text: str, markers: list[Bounds]) -> str:
    if not markers:
        return text
    parts, last = [], 0
    for start, end in markers:
        parts += [text[last:start], " " * (end - start)]
        last = end
    return "".join((*parts, text[last:]))


def _hard_starts(text: str, markers: list[Bounds]) -> set[int]:
    """Starts of paragraphs and list items: nothing is joined across them."""
    starts = {found.end() for found in _BLANK_LINE.finditer(text)}
    starts.update([start for start, _ in markers if _opens_item(text, start)])
    return starts


def _opens_item(text: str, start: int) -> bool:
    """Not so for "as in paragraph", line break, "(b) of this section"."""
    before = text[max(0, start - _LOOK_BACK) : start]
    return before.count("\n") > 1 or not before.strip() or before.rstrip().endswith(_ENDS_BEFORE_ITEM)


def _joined(text: str, last: int, start: int, end: int) -> bool:
    """Whether what begins at `start` still belongs to the sentence that began at `last`."""
    following = text[start:end].lstrip()
    if not following:
        return True
    if following[0].islower() or _ONLY_A_NUMBER.fullmatch(text, last, start):
        return True
    return following[0].isdigit() and _ENDS_ABBREVIATED.search(text, max(last, start - _LOOK_BACK), start) is not None


def _trim(text: str, start: int, end: int) -> Bounds:
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
