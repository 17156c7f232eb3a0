"""Lines of a text with their offsets, grouped by blank lines. Linear in the text, whatever is in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from drillcore_server.domain.documents import Block, BlockKind, Span


class Line(NamedTuple):
    start: int
    """Of its first character that is not white space."""
    end: int
    text: str
    """Stripped."""
    indent: int


def lines(text: str) -> Iterator[Line | None]:
    """Each line; None for a blank one."""
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
    """Lines that follow each other without a blank one between."""
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
