"""An entity where it stands in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

UPPER: Final = "A-ZÀ-ÖØ-Þ"
"""For character classes in patterns."""
GAP: Final = r"[\s\u200e\u200f]{1,4}"
"""Between the words of a mention: white space, and the invisible marks that word processors leave there."""

_CAPITALS: Final = re.compile(r"[A-Z]{3,}")
_GAPS: Final = re.compile(r"[\s\u200e\u200f]+")


class Mention(NamedTuple):
    start: int
    type: str
    value: str


def tidy(name: str) -> str:
    """On one line, without marks nobody sees."""
    return _GAPS.sub(" ", name).strip(" ,;:-\u2013—")


def around(anchor: re.Pattern[str], text: str, before: int, after: int) -> Iterator[tuple[int, int]]:
    """The parts of a text near an anchor, which do not overlap.

    Searching only there is several times faster: anchors are rare, and quick to find.
    """
    start = end = -1
    for found in anchor.finditer(text):
        if found.start() - before > end:
            if end >= 0:
                yield start, end
            start = max(0, found.start() - before)
        end = found.end() + after
    if end >= 0:
        yield start, end


def holds_any(text: str, words: tuple[str, ...]) -> bool:
    """Looking for plain words takes a fraction of a pattern's time: it tells whether a pattern need be tried."""
    return any(map(text.__contains__, words))


def capitals_of(text: str) -> str:
    """All runs of three or more capitals: a word of capitals is in the text if it is in here, which is much shorter."""
    return " ".join(_CAPITALS.findall(text))


def inside_a_word(text: str, start: int) -> bool:
    return start > 0 and (text[start - 1].isalnum() or text[start - 1] == "_")
