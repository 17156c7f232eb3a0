"""Joins printed lines into paragraphs by distance and type, and leaves out the heads and feet of pages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from drillcore_server.documents.parsers.plain_text import LIST_MARKER
from drillcore_server.documents.parsers.text_blocks import HEADING_CHARS_MAX, heading_level

HYPHEN_AT_LINE_END = "\ufffe"
"""pdfium writes this character for a hyphen that only divides a word at the end of a line."""

_PARAGRAPH_GAP = 1.25
"""A gap that is larger than the usual gap times this begins a paragraph."""
_HEADING_SIZE = 1.15
_RUNNING_PAGES_MIN = 4
_EDGE_LINES = 3
_DIGITS = re.compile(r"\d+")
_LEADERS = "...."


@dataclass(frozen=True, slots=True)
class PrintedLine:
    text: str
    bottom: float | None = None
    """In points from the foot of the page. None if unknown."""
    size: float = 0.0
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: str
    level: int
    """The level of a heading. 0 for other text."""


def running_lines(pages: Sequence[Sequence[PrintedLine]]) -> frozenset[str]:
    """Returns heads and feet: lines at the edge of more than half of the pages, with "#" in place of their numbers."""
    if len(pages) < _RUNNING_PAGES_MIN:
        return frozenset()
    seen: Counter[str] = Counter()
    for page in pages:
        seen.update({_shape(line) for line in _edge(page)})
    return frozenset(shape for shape, count in seen.items() if count * 2 > len(pages))


def page_paragraphs(page: Sequence[PrintedLine], running: frozenset[str]) -> Iterator[Paragraph]:
    kept = _without_running(page, running)
    usual_gap, usual_size = _usual_gap(kept), _usual_size(kept)
    group: list[PrintedLine] = []
    for line in kept:
        if group and _begins_paragraph(group[-1], line, usual_gap, usual_size):
            yield _paragraph(group, usual_size)
            group = []
        group.append(line)
    if group:
        yield _paragraph(group, usual_size)


def _edge(page: Sequence[PrintedLine]) -> list[PrintedLine]:
    return [*page[:_EDGE_LINES], *page[-_EDGE_LINES:]]


def _shape(line: PrintedLine) -> str:
    return _DIGITS.sub("#", line.text)


def _without_running(page: Sequence[PrintedLine], running: frozenset[str]) -> list[PrintedLine]:
    if len(page) <= 2 * _EDGE_LINES:  # repeated lines may be all the text of so short a page
        return list(page)
    last = len(page) - _EDGE_LINES
    return [line for at, line in enumerate(page) if not ((at < _EDGE_LINES or at >= last) and _shape(line) in running)]


def _usual_gap(page: Sequence[PrintedLine]) -> float:
    gaps = [gap for above, line in pairwise(page) if (gap := _gap(above, line)) > 0]
    # Takes only the smaller half: on a page of short paragraphs, most gaps are between paragraphs.
    return median(sorted(gaps)[: len(gaps) // 2 + 1]) if gaps else 0.0


def _usual_size(page: Sequence[PrintedLine]) -> float:
    sizes = [line.size for line in page for _ in range(0, len(line.text), 20)]
    return median(sizes) if sizes else 0.0


def _gap(above: PrintedLine, line: PrintedLine) -> float:
    return above.bottom - line.bottom if above.bottom is not None and line.bottom is not None else 0.0


def _begins_paragraph(above: PrintedLine, line: PrintedLine, usual_gap: float, usual_size: float) -> bool:
    gap = _gap(above, line)
    if gap > usual_gap * _PARAGRAPH_GAP or gap < 0 or LIST_MARKER.match(line.text):
        return True
    if _is_large(above, usual_size) != _is_large(line, usual_size) or above.bold != line.bold:
        # A change of type inside a sentence is emphasis. At the end of a short line it marks a heading.
        return len(above.text) <= HEADING_CHARS_MAX and not above.text.endswith(",") and not line.text[0].islower()
    return line.bottom is None and heading_level(line.text) > 0


def _paragraph(group: Sequence[PrintedLine], usual_size: float) -> Paragraph:
    text = _joined(group)
    return Paragraph(text, _level(group, text, usual_size))


def _joined(group: Sequence[PrintedLine]) -> str:
    joined = " ".join(line.text for line in group)
    return joined.replace(f"{HYPHEN_AT_LINE_END} ", "").replace(HYPHEN_AT_LINE_END, "-").replace("\x02", "")


def _level(group: Sequence[PrintedLine], text: str, usual_size: float) -> int:
    if len(text) > HEADING_CHARS_MAX or _LEADERS in text or not any(map(str.isalpha, text)):
        return 0
    by_words = heading_level(text)
    if by_words or text.endswith((".", ",", ";", ":")):
        return by_words
    large = all(_is_large(line, usual_size) for line in group)
    return 1 if large else 2 if all(line.bold for line in group) else 0


def _is_large(line: PrintedLine, usual_size: float) -> bool:
    return line.size > usual_size * _HEADING_SIZE
