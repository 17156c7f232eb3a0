"""Plain text: paragraphs between blank lines, and what headings, lists and tables look like in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from drillcore_server.domain.documents import Block, BlockKind
from drillcore_server.ingest.parsing.headings import heading_level
from drillcore_server.ingest.parsing.lines import Line, block, paragraphs

LIST_MARKER = re.compile(r"(?:[-*+•·‣▪\u2013\u2014]|\(?(?:[a-zA-Z]|[ivxlc]{1,5}|[0-9]{1,3})[.)])\s+\S")
_HEADING_OVER_TEXT_CHARS_MAX = 60


def text_blocks(text: str) -> Iterator[Block]:
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
    # Directly over text, a line is a heading only if the text does not go on from it: it is short, and what follows
    # begins anew.
    goes_on = len(first) > _HEADING_OVER_TEXT_CHARS_MAX or group[1].text[0].islower()
    return 0 if goes_on or LIST_MARKER.match(group[1].text) else level


def _body_blocks(group: Sequence[Line]) -> Iterator[Block]:
    if _is_table(group):
        yield block(BlockKind.TABLE, group)
    elif LIST_MARKER.match(group[0].text):
        yield from list_items(group, LIST_MARKER)
    else:
        yield block(BlockKind.PARAGRAPH, group)


def list_items(group: Sequence[Line], marker: re.Pattern[str]) -> Iterator[Block]:
    """A block for each line with a marker, and for those that go on from it."""
    start = 0
    for at in range(1, len(group) + 1):
        if at == len(group) or marker.match(group[at].text):
            yield block(BlockKind.LIST_ITEM, group[start:at])
            start = at


def _is_table(group: Sequence[Line]) -> bool:
    return len(group) > 1 and (all("\t" in line.text for line in group) or all(_is_row(line.text) for line in group))


def _is_row(line: str) -> bool:
    return line.count("|") >= 2 or line.strip("+-=| ") == ""
