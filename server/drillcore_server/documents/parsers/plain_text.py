"""Finds headings, paragraphs, lists, tables and code in plain text and Markdown. The text stays unchanged."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence

from drillcore_server.documents.model import Block, BlockKind
from drillcore_server.documents.parsers.text_blocks import Line, block, heading_level, lines, paragraphs

LIST_MARKER = re.compile(r"(?:[-*+•·‣▪\u2013\u2014]|\(?(?:[a-zA-Z]|[ivxlc]{1,5}|[0-9]{1,3})[.)])\s+\S")
_HEADING_OVER_TEXT_CHARS_MAX = 60


def plain_text_blocks(text: str) -> Iterator[Block]:
    for group in paragraphs(text):
        yield from _paragraph_blocks(group)


def _paragraph_blocks(group: Sequence[Line]) -> Iterator[Block]:
    level = _leading_heading_level(group)
    if level:
        yield block(BlockKind.HEADING, group[:1], level)
        group = group[1:]
    if group:
        yield from _body_blocks(group)


def _leading_heading_level(group: Sequence[Line]) -> int:
    first = group[0].text
    level = heading_level(first)
    if len(group) == 1 or not level:
        return level
    # A line directly above text is a heading only if the text does not continue it. Then the line is short, and the
    # text begins with a capital or a mark.
    continues = len(first) > _HEADING_OVER_TEXT_CHARS_MAX or group[1].text[0].islower()
    return 0 if continues or LIST_MARKER.match(group[1].text) else level


def _body_blocks(group: Sequence[Line]) -> Iterator[Block]:
    if _is_table(group):
        yield block(BlockKind.TABLE, group)
    elif LIST_MARKER.match(group[0].text):
        yield from list_items(group, LIST_MARKER)
    else:
        yield block(BlockKind.PARAGRAPH, group)


def list_items(group: Sequence[Line], marker: re.Pattern[str]) -> Iterator[Block]:
    """Yields a block for each line that has a marker. The lines that follow without a marker belong to it."""
    start = 0
    for at in range(1, len(group) + 1):
        if at == len(group) or marker.match(group[at].text):
            yield block(BlockKind.LIST_ITEM, group[start:at])
            start = at


def _is_table(group: Sequence[Line]) -> bool:
    return len(group) > 1 and (all("\t" in line.text for line in group) or all(_is_row(line.text) for line in group))


def _is_row(line: str) -> bool:
    return line.count("|") >= 2 or line.strip("+-=| ") == ""


_HEADING = re.compile(r"(#{1,6})(?:\s|$)")
_UNDERLINE = re.compile(r"(=+|-+)$")
_FENCE = re.compile(r"(`{3,}|~{3,})")
_LIST_MARKER = re.compile(r"(?:[-*+]|[0-9]{1,9}[.)])\s+\S")
_TABLE_RULE = re.compile(r"[|:\- ]+$")
_CODE_INDENT = 4


def markdown_blocks(text: str) -> Iterator[Block]:
    group: list[Line] = []
    fenced: list[Line] = []
    for line in lines(text):
        if fenced:
            fenced = yield from _within_fence(fenced, line)
        elif line is None or _opens_block(line):
            yield from _group_blocks(group)
            group = []
            if line is not None:
                fenced = yield from _opening(line)
        elif group and _underlines(group, line):
            yield block(BlockKind.HEADING, [*group, line], 1 if line.text[0] == "=" else 2)
            group = []
        else:
            group.append(line)
    yield from _group_blocks(group)
    if fenced:
        yield block(BlockKind.CODE, fenced)


def _opens_block(line: Line) -> bool:
    return line.indent < _CODE_INDENT and bool(_HEADING.match(line.text) or _FENCE.match(line.text))


def _opening(line: Line) -> Generator[Block, None, list[Line]]:
    heading = _HEADING.match(line.text)
    if not heading:
        return [line]
    yield block(BlockKind.HEADING, [line], len(heading.group(1)))
    return []


def _within_fence(fenced: list[Line], line: Line | None) -> Generator[Block, None, list[Line]]:
    if line is None:
        return fenced
    fenced.append(line)
    opened = _FENCE.match(fenced[0].text)
    if opened and line.text.startswith(opened.group(1)) and not line.text.strip(opened.group(1)[0]):
        yield block(BlockKind.CODE, fenced)
        return []
    return fenced


def _underlines(group: Sequence[Line], line: Line) -> bool:
    """Tells whether the line is a rule that makes the line above it a heading. Above a table or a list it does not."""
    first = group[0].text
    return len(group) == 1 and bool(_UNDERLINE.match(line.text)) and "|" not in first and not _LIST_MARKER.match(first)


def _group_blocks(group: Sequence[Line]) -> Iterator[Block]:
    if not group:
        return
    if len(group) > 1 and "|" in group[0].text and _TABLE_RULE.match(group[1].text):
        yield block(BlockKind.TABLE, group)
    elif _LIST_MARKER.match(group[0].text):
        yield from list_items(group, _LIST_MARKER)
    else:
        yield block(BlockKind.PARAGRAPH, group)
