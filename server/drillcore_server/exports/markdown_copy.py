"""The Markdown copy (CommonMark, with GitHub's tables). It has every value of the JSON copy.

Whatever comes from documents or callers is escaped, or put into a block with a fence that it does not contain. So no
content can look like a heading, a signature or the end of its own block.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from drillcore_server.exports.blocks import (
    Block,
    Facts,
    Heading,
    Manifestation,
    Prose,
    Quote,
    Table,
    Verbatim,
    with_numbers,
)

_SPECIAL: Final = re.compile(r"[\\`*_\[\]<>&|~]")
"""Characters that have a meaning anywhere."""
_SPECIAL_FIRST: Final = re.compile(r"^(\d*)([-+#=.)])")
"""Characters that have a meaning at the beginning of a line."""
_FENCES: Final = re.compile("`{3,}")
_FENCE: Final = "```"
_INDENTS: Final = {" ": "&#32;", "\t": "&#9;", "\xa0": "&#160;"}
"""Spaces at the beginning of a line, which would make it code."""


class MarkdownCopy:
    """Writes the body through `write` as blocks come. The front, with the table of contents, is made at the end."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._contents: list[Heading] = []

    def take(self, block: Block) -> None:
        if isinstance(block, Heading) and block.in_contents:
            self._contents.append(block)
            self._put([f'<a id="{_anchor(len(self._contents))}"></a>', ""])
        self._put([*_lines(block), *([] if _goes_on(block) else [""])])

    def front(self, title: str, facts: Facts) -> bytes:
        lines = [f"# {escaped_line(title)}", "", *_facts(facts), "", "## Contents", ""]
        for number, heading in enumerate(self._contents, 1):
            lines.append(f"{'  ' * (heading.depth - 1)}- [{escaped_line(heading.text)}](#{_anchor(number)})")
        return _encoded([*lines, ""])

    def _put(self, lines: Iterable[str]) -> None:
        self._write(_encoded(lines))


def escaped_line(text: str) -> str:
    """The text in one line, with every special character escaped."""
    return " ".join(_escaped(line) for line in with_numbers(text).split("\n")).strip()


def _encoded(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _anchor(number: int) -> str:
    return f"part-{number}"


def _goes_on(block: Block) -> bool:
    """Whether the next rows of a table may follow."""
    return isinstance(block, Table) and (block.continued or not block.rows)


def _lines(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"{'#' * (block.depth + 1)} {escaped_line(block.text)}"
    elif isinstance(block, Facts):
        yield from _facts(block)
    elif isinstance(block, Prose):
        yield f"**{escaped_line(block.label)}**"
        yield ""
        yield from _quoted(block.text)
    elif isinstance(block, Verbatim):
        yield from _fenced(block.text)
    elif isinstance(block, Quote):
        yield from _quoted(block.text)
        yield ">"
        yield f"> ({escaped_line(block.note)})"
    elif isinstance(block, Table):
        yield from _table(block)
    else:
        yield from _manifestation(block)


def _facts(facts: Facts) -> Iterator[str]:
    for name, value in facts.rows:
        yield f"- {escaped_line(name)}: {escaped_line(value)}"


def _manifestation(block: Manifestation) -> Iterator[str]:
    yield f"> **Signed electronically by {escaped_line(block.name)}**  "
    yield f"> Date and time: {escaped_line(block.at)}  "
    yield f"> Meaning: {escaped_line(block.meaning)}"
    yield ">"
    for line in _facts(Facts(block.rows)):
        yield f"> {line}"


def _table(table: Table) -> Iterator[str]:
    if not table.continued:
        yield f"**{escaped_line(table.title)}**"
        yield ""
        yield _row(table.columns)
        yield "|" + " --- |" * len(table.columns)
    for row in table.rows:
        yield _row(row)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(escaped_line, cells)) + " |"


def _fenced(text: str) -> Iterator[str]:
    shown = with_numbers(text)
    fence = max(_FENCES.findall(shown), key=len, default="") + _FENCE
    yield f"{fence}text"
    yield shown
    yield fence


def _quoted(text: str) -> Iterator[str]:
    """A quoted text that keeps its line ends when it is rendered."""
    lines = with_numbers(text).split("\n")
    for place, line in enumerate(lines):
        ends = place == len(lines) - 1 or not line.strip() or not lines[place + 1].strip()
        yield f"> {_escaped(line)}{'' if ends else chr(92)}" if line.strip() else ">"


def _escaped(line: str) -> str:
    rest = line.lstrip(" \t\xa0")
    indent = "".join(_INDENTS[space] for space in line[: len(line) - len(rest)])
    return indent + _SPECIAL_FIRST.sub(r"\1\\\2", _SPECIAL.sub(r"\\\g<0>", rest))
