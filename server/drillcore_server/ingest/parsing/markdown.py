"""Markdown: the text stays as it is; its marks say where headings, lists, tables and code are."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence

from drillcore_server.domain.documents import Block, BlockKind
from drillcore_server.ingest.parsing.lines import Line, block, lines
from drillcore_server.ingest.parsing.text import list_items

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
    """One line of text over a rule is a heading; over a table or a list the rule is not one."""
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
