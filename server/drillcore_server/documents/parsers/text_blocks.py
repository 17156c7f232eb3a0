"""Recognises lines, paragraphs and headings in unmarked text, and joins blocks into the text of a document.

All functions are linear in the text, whatever it contains.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple

from drillcore_server.documents.model import Block, BlockKind, Budget, Refusal, UnparsableReason
from drillcore_server.storage.ids import Span

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
_SURROGATES = re.compile(r"[\ud800-\udfff]")
_MARKDOWN_MARKS = re.compile(r"\A#{1,6}(?=\s)|\s#+\s*\Z|\s*[\r\n]\s*(?:=+|-+)\s*\Z")


def storable(text: str) -> tuple[str, tuple[str, ...]]:
    """Returns the text with U+FFFD for lone surrogates, which UTF-8 cannot encode, and a note if there were any."""
    if text.isascii():
        return text, ()
    replaced, count = _SURROGATES.subn("�", text)
    return replaced, (f"replaced {count} lone surrogates by U+FFFD",) if count else ()


def heading_level(line: str) -> int:
    """Returns the level of a heading, from 1 for parts and titles to 6 for deep numbers. Returns 0 for other lines."""
    line = line.strip()
    # A line with dots that lead to a page number is an entry in a table of contents, not the heading itself.
    if not 2 <= len(line) <= HEADING_CHARS_MAX or line.endswith(_OPEN_END) or _LEADERS.search(line):
        return 0
    return _division_level(line) or _numbered_level(line) or _capitals_level(line)


def heading_title(block: str) -> str:
    """Returns the words of a heading on one line, without the marks of Markdown."""
    bare = _MARKDOWN_MARKS.sub(" ", block.strip()) if block.lstrip()[:1] == "#" or "\n" in block else block
    return " ".join(bare.split())[:TITLE_CHARS_MAX]


def _division_level(line: str) -> int:
    if line[0] == "§":
        return _LEVEL_BY_DIVISION["§"] if _PARAGRAPH_SIGN.match(line) else 0
    found = _DIVISION.match(line)
    # A sentence may begin with "Article 17", too. Such a line is long, or ends with a stop after several words.
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


class Line(NamedTuple):
    start: int
    """The place of the first character that is not white space."""
    end: int
    text: str
    """The line without white space at both ends."""
    indent: int


def lines(text: str) -> Iterator[Line | None]:
    """Yields each line, and None for each blank line."""
    at = 0
    for raw in text.splitlines(keepends=True):
        stripped = raw.strip()
        if stripped:
            indent = len(raw) - len(raw.lstrip())
            yield Line(at + indent, at + indent + len(stripped), stripped, indent)
        else:
            yield None
        at += len(raw)


def paragraphs(text: str) -> Iterator[list[Line]]:
    """Yields groups of lines that have no blank line between them."""
    group: list[Line] = []
    for line in lines(text):
        if line is not None:
            group.append(line)
        elif group:
            yield group
            group = []
    if group:
        yield group


def block(kind: BlockKind, group: Sequence[Line], level: int = 0) -> Block:
    return Block(kind, Span(group[0].start, group[-1].end), level)


_TITLE_BLOCKS = 5
"""Only a heading among this many first blocks may be the title of the document."""


class TextBuilder:
    """Collects blocks. The extracted text is their content with blank lines between them."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._parts: list[str] = []
        self._blocks: list[Block] = []
        self._chars = 0

    def add(self, kind: BlockKind, content: str, *, level: int = 0, page: int | None = None) -> None:
        """Adds a block unless it is blank. Raises `Refusal` if the text becomes too large."""
        content, _ = storable(content.strip())
        if not content:
            return
        self._append(self._separator(kind))
        start = self._chars
        self._append(content)
        self._blocks.append(Block(kind, Span(start, self._chars), level, page))

    def text(self) -> str:
        return "".join(self._parts)

    def blocks(self) -> tuple[Block, ...]:
        return tuple(self._blocks)

    def _append(self, part: str) -> None:
        self._chars += len(part)
        self._budget.check_text(self._chars)
        self._parts.append(part)

    def _separator(self, kind: BlockKind) -> str:
        if not self._blocks:
            return ""
        return "\n" if kind is self._blocks[-1].kind is BlockKind.LIST_ITEM else "\n\n"


def refuse_blank(blocks: Sequence[Block], message: str) -> None:
    if not blocks:
        raise Refusal(UnparsableReason.EMPTY, message)


def title(text: str, blocks: Iterable[Block], *, name: str, stated: str | None = None) -> str:
    """Returns the title that the document states, else its first heading, else its file name."""
    return _clean(stated or "") or _first_heading(text, blocks) or _clean(PurePath(name).stem) or "untitled"


def _first_heading(text: str, blocks: Iterable[Block]) -> str:
    for _, block in zip(range(_TITLE_BLOCKS), blocks, strict=False):
        if block.kind is BlockKind.HEADING:
            return heading_title(block.span.of(text))
    return ""


def _clean(words: str) -> str:
    return storable(" ".join(words.split())[:TITLE_CHARS_MAX])[0]
