"""Cuts a document into chunks: joins or splits paragraphs so that each chunk has one subject and fits an embedder.

Consecutive small blocks under a heading make one chunk, up to `tokens_target`. 256 tokens are a few paragraphs of a
regulation, which are understood alone and have one subject. Larger chunks blur the vector, and smaller chunks multiply
the records. A paragraph of up to `tokens_max` stays whole. A longer paragraph is split between sentences.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from drillcore_server.documents.ingestion.text_pieces import boundary, sentence_ends, split, tail
from drillcore_server.documents.model import Block, BlockKind, ChunkSpan, ParsedDocument
from drillcore_server.documents.parsers.text_blocks import heading_title
from drillcore_server.storage.ids import Span
from drillcore_server.tokenizers.encodings import AdditiveTokenCounter, TokenCounter

_CHARS_PER_TOKEN_MAX = 16
"""A block with more characters for each allowed token is too long for a chunk. It is split without a count first."""
_COUNTED_TOGETHER = 1024
_OVERLAP_CHARS_PER_TOKEN = 8


@dataclass(frozen=True, slots=True)
class ChunkSettings:
    tokens_max: int = 512
    """The limit for a raw span. A chunk may have these tokens and the overlap."""
    overlap: float = 0.10
    """The share of the previous chunk's tokens that a chunk repeats. It may repeat up to this share of `tokens_max` in
    order to begin with a whole sentence."""
    tokens_target: int = 256
    """Blocks are joined up to this size."""
    tokens_min: int = 48
    """A smaller chunk joins a neighbour, even across a heading."""
    raw_tokens_min: int = 64
    """A smaller block shares a raw span with the next one."""

    def __post_init__(self) -> None:
        if not 0 <= self.overlap < 1 or not 0 < self.tokens_min <= self.tokens_target <= self.tokens_max:
            raise ValueError("chunks need 0 <= overlap < 1 and 0 < tokens_min <= tokens_target <= tokens_max")

    @property
    def overlap_tokens_max(self) -> int:
        return int(self.tokens_max * self.overlap)

    @property
    def chunk_tokens_max(self) -> int:
        return self.tokens_max + self.overlap_tokens_max


class _Unit(NamedTuple):
    """Text that is not divided further: a block, or a sentence of a long block, with the white space around it."""

    start: int
    end: int
    tokens: int
    block: int


_DEFAULT_SETTINGS = ChunkSettings()


def chunk(
    document: ParsedDocument, counter: TokenCounter, settings: ChunkSettings = _DEFAULT_SETTINGS
) -> list[ChunkSpan]:
    """Returns the chunks of a document, in order. The same document, counter and settings give the same chunks."""
    if not document.text:
        return []
    chunker = _Chunker(document, counter, settings)
    groups = chunker.groups(chunker.units())
    previous = [None, *groups[:-1]]
    return [chunker.chunk_span(group, before) for before, group in zip(previous, groups, strict=True)]


class _Chunker:
    def __init__(self, document: ParsedDocument, counter: TokenCounter, settings: ChunkSettings) -> None:
        self._text = document.text
        self._blocks = document.blocks or (Block(BlockKind.PARAGRAPH, Span(0, len(document.text))),)
        self._paths = heading_paths(document.text, self._blocks)
        self._counter = counter
        self._adds_up = _adds_up_of(counter)
        self._settings = settings
        self._chunk_tokens_max = settings.chunk_tokens_max

    def units(self) -> Iterator[_Unit]:
        ends = self._block_ends()
        spans = zip(range(len(ends)), itertools.chain([0], ends), ends, strict=False)
        while batch := list(itertools.islice(spans, _COUNTED_TOGETHER)):
            counts = iter(self._counter.count_many([self._text[a:b] for _, a, b in batch if self._countable(a, b)]))
            for block, start, end in batch:
                tokens = next(counts) if self._countable(start, end) else None
                yield from self._block_units(block, start, end, tokens)

    def groups(self, units: Iterator[_Unit]) -> list[list[_Unit]]:
        """Groups units into chunks up to the target size. A group crosses a heading only after a tiny text."""
        done: list[list[_Unit]] = []
        current: list[_Unit] = []
        tokens = 0
        for unit in units:
            if current and self._ends_before(unit, current, tokens):
                done.append(current)
                current, tokens = [], 0
            elif current and self._begins_section(unit, current[-1]) and self._joins_previous(done, current, tokens):
                done[-1].extend(current)
                current, tokens = [], 0
            current.append(unit)
            tokens += unit.tokens
        if done and tokens < self._settings.tokens_min and self._fits(done[-1], tokens):
            done[-1].extend(current)
        else:
            done.append(current)
        return done

    def chunk_span(self, group: Sequence[_Unit], previous: Sequence[_Unit] | None) -> ChunkSpan:
        owned = Span(group[0].start, group[-1].end)
        tokens = self._tokens(group)
        start = owned.start
        if previous is not None:
            start, tokens = self._overlapped(owned, tokens, previous)
        return ChunkSpan(
            span=Span(start, owned.end),
            raws=tuple(self._raws(group)),
            headings=self._headings(group),
            page=self._blocks[group[0].block].page,
            tokens=tokens,
        )

    def _block_ends(self) -> list[int]:
        """Returns where each block ends, including the white space after it. Together they cover the document."""
        pairs = itertools.pairwise(self._blocks)
        ends = [boundary(self._text, left.span.end, right.span.start) for left, right in pairs]
        return [*ends, len(self._text)]

    def _countable(self, start: int, end: int) -> bool:
        return end - start <= self._settings.tokens_max * _CHARS_PER_TOKEN_MAX

    def _block_units(self, block: int, start: int, end: int, tokens: int | None) -> Iterator[_Unit]:
        if tokens is not None and tokens <= self._settings.tokens_max:
            yield _Unit(start, end, tokens, block)
            return
        by_lines = self._blocks[block].kind in (BlockKind.TABLE, BlockKind.CODE)
        for piece in split(self._text, start, end, self._settings.tokens_max, self._counter, by_lines=by_lines):
            yield _Unit(*piece, block)

    def _ends_before(self, unit: _Unit, current: Sequence[_Unit], tokens: int) -> bool:
        if tokens + unit.tokens > self._chunk_tokens_max:
            return True
        over = tokens + unit.tokens > self._settings.tokens_target or self._begins_section(unit, current[-1])
        return over and tokens >= self._settings.tokens_min

    def _begins_section(self, unit: _Unit, before: _Unit) -> bool:
        return unit.block != before.block and self._blocks[unit.block].kind is BlockKind.HEADING

    def _joins_previous(self, done: Sequence[list[_Unit]], current: Sequence[_Unit], tokens: int) -> bool:
        """Tells whether the last units before a heading join the previous chunk, not the text after the heading."""
        if not done or not self._fits(done[-1], tokens):
            return False
        return self._paths[current[0].block] == self._paths[done[-1][-1].block]

    def _fits(self, group: Sequence[_Unit], tokens: int) -> bool:
        return sum(unit.tokens for unit in group) + tokens <= self._settings.tokens_max

    def _tokens(self, units: Sequence[_Unit]) -> int:
        """Returns the exact count: the sum if the counter knows that the sum is exact, else a new count."""
        if all(self._adds_up(self._text, unit.start) for unit in units[1:]):
            return sum(unit.tokens for unit in units)
        return self._counter.count(self._text[units[0].start : units[-1].end])

    def _raws(self, group: Sequence[_Unit]) -> Iterator[Span]:
        raw = group[0]
        for unit in group[1:]:
            joined = self._joined(raw, unit) if self._belongs(raw, unit) else None
            if joined is None or joined.tokens > self._settings.tokens_max:
                yield Span(raw.start, raw.end)
                raw = unit
            else:
                raw = joined
        yield Span(raw.start, raw.end)

    def _belongs(self, raw: _Unit, unit: _Unit) -> bool:
        return unit.block == raw.block or raw.tokens < self._settings.raw_tokens_min

    def _joined(self, raw: _Unit, unit: _Unit) -> _Unit:
        adds_up = self._adds_up(self._text, unit.start)
        tokens = raw.tokens + unit.tokens if adds_up else self._counter.count(self._text[raw.start : unit.end])
        return _Unit(raw.start, unit.end, tokens, unit.block)

    def _headings(self, group: Sequence[_Unit]) -> tuple[str, ...]:
        """Returns the headings that are above all text of the group, ignoring headings that have no text in it."""
        paths = [self._paths[unit.block] for unit in group if self._blocks[unit.block].kind is not BlockKind.HEADING]
        return _common_start(paths or [self._paths[unit.block] for unit in group])

    def _overlapped(self, owned: Span, tokens: int, previous: Sequence[_Unit]) -> tuple[int, int]:
        """Returns where the chunk begins with the overlap, and its tokens with the overlap."""
        room = min(self._settings.overlap_tokens_max, self._settings.chunk_tokens_max - tokens)
        wanted = min(room, int(sum(unit.tokens for unit in previous) * self._settings.overlap))
        start, more = self._overlap(previous[0].start, owned.start, wanted, room)
        if start == owned.start:
            return start, tokens
        if self._adds_up(self._text, owned.start):
            return start, tokens + more
        tokens_with = self._counter.count(self._text[start : owned.end])
        return (start, tokens_with) if tokens_with <= self._settings.chunk_tokens_max else (owned.start, tokens)

    def _overlap(self, first: int, end: int, wanted: int, room: int) -> tuple[int, int]:
        """Chooses the overlap: whole sentences up to `room` until there are `wanted` tokens, else the last words.

        Returns where the overlap begins and how many tokens it has.
        """
        if wanted <= 0:
            return end, 0
        start, counted = end, 0
        for sentence_start in self._sentence_starts_from_the_end(first, end, room):
            tokens = self._counter.count(self._text[sentence_start:end])
            if tokens > room:
                break
            start, counted = sentence_start, tokens
            if tokens >= wanted:
                break
        return (start, counted) if start < end else tail(self._text, first, end, wanted, self._counter)

    def _sentence_starts_from_the_end(self, first: int, end: int, room: int) -> Iterator[int]:
        window = max(first, end - room * _OVERLAP_CHARS_PER_TOKEN)
        ends = list(sentence_ends(self._text, window, end))
        # A sentence that begins before the window is not whole in the window.
        starts = ([window] if window == first else []) + ends[:-1]
        return reversed(starts)


def heading_paths(text: str, blocks: Sequence[Block]) -> list[tuple[str, ...]]:
    """Returns for each block the titles of the headings above it. The path of a heading ends with its own title."""
    above: list[tuple[int, str]] = []
    paths: list[tuple[str, ...]] = []
    path: tuple[str, ...] = ()
    for block in blocks:
        if block.kind is BlockKind.HEADING:
            while above and above[-1][0] >= block.level:
                above.pop()
            above.append((block.level, heading_title(block.span.of(text))))
            path = tuple(title for _, title in above)
        paths.append(path)
    return paths


def _common_start(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    levels = itertools.takewhile(lambda titles: len(set(titles)) == 1, zip(*paths, strict=False))
    return tuple(titles[0] for titles in levels)


def _adds_up_of(counter: TokenCounter) -> Callable[[str, int], bool]:
    return cast(AdditiveTokenCounter, counter).adds_up if _is_additive(type(counter)) else _never_adds_up


@functools.cache
def _is_additive(counter: type[TokenCounter]) -> bool:
    """Cached: checking whether a class follows a protocol takes as long as counting a paragraph."""
    return issubclass(counter, AdditiveTokenCounter)


def _never_adds_up(text: str, at: int) -> bool:  # noqa: ARG001 - has the signature of a counter's `adds_up`
    return False
