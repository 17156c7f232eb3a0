"""Puts a document together from its blocks, in the formats whose text has to be extracted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath

from drillcore_server.domain.documents import Block, BlockKind, Span
from drillcore_server.ingest.parsing.decode import storable
from drillcore_server.ingest.parsing.headings import TITLE_CHARS_MAX, heading_title
from drillcore_server.ingest.parsing.limits import Budget
from drillcore_server.ingest.parsing.outcome import Refusal, UnparsableReason

_TITLE_BLOCKS = 5
"""A heading further down than this is not the title of the document."""


class TextBuilder:
    """Collects blocks; the extracted text is what they say, with blank lines between."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._parts: list[str] = []
        self._blocks: list[Block] = []
        self._chars = 0

    def add(self, kind: BlockKind, content: str, *, level: int = 0, page: int | None = None) -> None:
        """Adds a block, unless it is blank. Raises Refusal when the text becomes too large."""
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
    """The title the document states, else its first heading, else its file name."""
    return _clean(stated or "") or _first_heading(text, blocks) or _clean(PurePath(name).stem) or "untitled"


def _first_heading(text: str, blocks: Iterable[Block]) -> str:
    for _, block in zip(range(_TITLE_BLOCKS), blocks, strict=False):
        if block.kind is BlockKind.HEADING:
            return heading_title(block.span.of(text))
    return ""


def _clean(words: str) -> str:
    return storable(" ".join(words.split())[:TITLE_CHARS_MAX])[0]
