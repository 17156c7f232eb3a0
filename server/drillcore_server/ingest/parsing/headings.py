"""Headings of texts that do not mark them: recognised by how laws, standards and reports write them."""

from __future__ import annotations

import re

LEVEL_MAX = 6
HEADING_CHARS_MAX = 120
TITLE_CHARS_MAX = 200

_NUMERAL = r"(?:[0-9]{1,4}[A-Za-z]?|[IVXLC]{1,7}|[A-Z]{1,2})"
_LEVEL_BY_DIVISION = {
    **dict.fromkeys(("part", "title", "book"), 1),
    **dict.fromkeys(("chapter", "annex", "appendix", "schedule"), 2),
    **dict.fromkeys(("subpart", "subchapter", "section", "division"), 3),
    **dict.fromkeys(("article", "rule", "§"), 4),
}
_DIVISION = re.compile(
    rf"(part|title|book|chapter|annex|appendix|schedule|subpart|subchapter|section|division|article|rule)\s+{_NUMERAL}"
    r"(?:\s*$|\s*[-\u2013\u2014:.]+\s*\S|\s+[\"“(A-Z])",
    re.IGNORECASE,
)
_PARAGRAPH_SIGN = re.compile(r"§+\s*(?:§\s*)?[0-9]+[A-Za-z]?(?:[.-][0-9]+[A-Za-z]?)*(?:\s*$|\.?\s+[\"“(A-Z])")
_NUMBERED = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,3}){0,5})\.?\s+[\"“(]?([^\W\d_])[^\W\d_]+(?!\.\w)")
_LEADERS = re.compile(r"\.{4}|…|(?:\. ){3}")
_OPEN_END = (",", ";", ":", "-", "(")
_MARKDOWN_MARKS = re.compile(r"\A#{1,6}(?=\s)|\s#+\s*\Z|\s*[\r\n]\s*(?:=+|-+)\s*\Z")


def heading_level(line: str) -> int:
    """The level of this line as a heading, or 0: 1 for parts and titles down to 6 for deep numbers."""
    line = line.strip()
    # Dots that lead to a page number belong to a table of contents: its lines are not the headings themselves.
    if not 2 <= len(line) <= HEADING_CHARS_MAX or line.endswith(_OPEN_END) or _LEADERS.search(line):
        return 0
    return _division_level(line) or _numbered_level(line) or _capitals_level(line)


def heading_title(block: str) -> str:
    """The words of a heading, without the marks of Markdown, on one line."""
    bare = _MARKDOWN_MARKS.sub(" ", block.strip()) if block.lstrip()[:1] == "#" or "\n" in block else block
    return " ".join(bare.split())[:TITLE_CHARS_MAX]


def _division_level(line: str) -> int:
    if line[0] == "§":
        return _LEVEL_BY_DIVISION["§"] if _PARAGRAPH_SIGN.match(line) else 0
    found = _DIVISION.match(line)
    # A sentence may begin with "Article 17": then the word is not in capitals, and the line is long or ends in a stop.
    if not found or not line[0].isupper() or _reads_as_sentence(line):
        return 0
    return _LEVEL_BY_DIVISION[found.group(1).lower()]


def _numbered_level(line: str) -> int:
    found = _NUMBERED.match(line)
    if not found or _reads_as_sentence(line) or not found.group(2).isupper():
        return 0
    return min(found.group(1).count(".") + 3, LEVEL_MAX)


def _capitals_level(line: str) -> int:
    letters = sum(map(str.isalpha, line))
    if not line.isupper() or letters < 4 or letters < len(line) * 0.5 or line.endswith("."):
        return 0
    return 2 if len(line.split()) <= 12 else 0


def _reads_as_sentence(line: str) -> bool:
    return len(line) > 80 or (line.endswith((".", "?", "!")) and len(line.split()) > 8)
