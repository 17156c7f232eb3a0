"""Draws the facts of a document: one fact for each assertion (claim) in its chunks.

- The fact of a list item begins with its introduction: "The firm must: (b) keep records". An introduction alone is not
  a fact. Neither are headings, page numbers and text without words.
- A claim that is too short joins a neighbour in its chunk: first a neighbour with the same introduction, else under the
  same heading, else any neighbour. A chunk with less text than a fact needs has no facts; search finds it as a chunk.
- A claim that is too long is cut between sentences.
- Each row of a table is a fact. Words that are repeated in a document are one fact, at their first place.

Facts come from a chunk's own text, not from its overlap with the previous chunk. Runs of white space become one space,
so that the same words are the same fact however their lines break.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from drillcore_server.documents.ingestion.chunk_spans import heading_paths
from drillcore_server.documents.ingestion.text_pieces import split
from drillcore_server.documents.model import Block, BlockKind, ChunkSpan, ParsedDocument
from drillcore_server.documents.processors.claims import Claim, ClaimSplitter
from drillcore_server.facts.model import TOKENS_MAX, TOKENS_MIN
from drillcore_server.storage.ids import Span
from drillcore_server.tokenizers.encodings import TokenCounter

_WORD: Final = re.compile(r"[^\W\d_]{2}")
_PAGE_NUMBER: Final = re.compile(
    r"(?:page|seite|p\.|s\.)\s*\d{1,5}(?:\s*(?:of|von|/)\s*\d{1,5})?\.?", re.IGNORECASE | re.ASCII
)
_BLANK_LINE: Final = re.compile(r"\n[ \t\r]*\n")
_BETWEEN_CHARACTERS_MAX: Final = 24
"""Text of up to this length between two joined claims is part of the fact: white space, a comma, a conjunction."""


@dataclass(frozen=True, slots=True)
class DrawnFact:
    content: str
    span: Span
    """The place of the fact's own text, without its introductions."""
    tokens: int
    headings: tuple[str, ...] = ()
    """The headings above the fact and below the headings of its whole chunk."""
    page: int | None = None
    leads: tuple[Span, ...] = ()
    """The introductions of the fact, the outermost first."""
    lead_characters: int = 0
    """The number of characters in `content` that come from the introductions."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Text that becomes a fact, alone or joined with others."""

    leads: tuple[Span, ...]
    """The introductions of the piece, the outermost first."""
    parts: tuple[Span, ...]
    content: str
    tokens: int

    @property
    def span(self) -> Span:
        return Span(self.parts[0].start, self.parts[-1].end)


def draw_facts(
    document: ParsedDocument, chunks: Sequence[ChunkSpan], counter: TokenCounter
) -> list[tuple[DrawnFact, ...]]:
    """Returns the facts of each chunk, in order. The same document, chunks and counter give the same facts."""
    return _Drawer(document, counter).draw(chunks)


class _Drawer:
    def __init__(self, document: ParsedDocument, counter: TokenCounter) -> None:
        self._text = document.text
        self._blocks = document.blocks or (Block(BlockKind.PARAGRAPH, Span(0, len(document.text))),)
        self._starts = [block.span.start for block in self._blocks]
        self._paths = heading_paths(document.text, self._blocks)
        self._counter = counter
        self._splitter = ClaimSplitter(document.text)
        self._introduced_by: dict[Span, Span | None] = {}
        """The introduction of each introduction."""
        self._said: set[str] = set()

    def draw(self, chunks: Sequence[ChunkSpan]) -> list[tuple[DrawnFact, ...]]:
        # Cuts all claims first: the end of one chunk may introduce the beginning of the next.
        claims = [list(self._claims(runs)) for runs in self._runs(chunks)]
        introductions = {claim.lead for own in claims for claim in own if claim.lead is not None}
        return [
            tuple(self._placed(chunk, piece) for piece in self._pieces(own, introductions))
            for chunk, own in zip(chunks, claims, strict=True)
        ]

    def _have_one_introduction(self, piece: _Piece, following: _Piece) -> bool:
        return piece.leads == following.leads and self._are_under_one_heading(piece, following)

    def _are_under_one_heading(self, first: _Piece, following: _Piece) -> bool:
        paths = [self._paths[self._block_at(piece.span.start)] for piece in (first, following)]
        return paths[0] == paths[1] and _are_neighbours(first, following)

    def _block_at(self, start: int) -> int:
        return max(bisect_right(self._starts, start) - 1, 0)

    def _placed(self, chunk: ChunkSpan, piece: _Piece) -> DrawnFact:
        block = self._block_at(piece.span.start)
        below = self._paths[block][len(chunk.headings) :]
        page, introduced = self._blocks[block].page, len(self._joined_text(piece.leads))
        return DrawnFact(piece.content, piece.span, piece.tokens, below, page, piece.leads, introduced)

    def _runs(self, chunks: Sequence[ChunkSpan]) -> Iterator[list[tuple[BlockKind, Span]]]:
        """Yields for each chunk the stretches of text of one kind, without the white space around blocks."""
        first = 0
        for chunk in chunks:
            own = Span(chunk.raws[0].start, chunk.raws[-1].end)
            while first < len(self._blocks) - 1 and self._blocks[first].span.end <= own.start:
                first += 1
            yield list(_runs(self._blocks, first, own))

    def _claims(self, runs: Iterable[tuple[BlockKind, Span]]) -> Iterator[Claim]:
        for kind, run in runs:
            if kind is BlockKind.PARAGRAPH:
                yield from (item for claim in self._splitter.split(run) for item in self._by_items(claim))
                continue
            self._splitter.end_lists()
            if kind is BlockKind.TABLE:
                yield from (Claim(row) for row in _lines(self._text, run))
            elif kind is BlockKind.CODE:
                yield Claim(run)

    def _by_items(self, claim: Claim) -> Iterator[Claim]:
        """Cuts a claim at the list items that the document's format marks."""
        start = claim.span.start
        for block in self._blocks[bisect_right(self._starts, start) : bisect_left(self._starts, claim.span.end)]:
            if block.kind is BlockKind.LIST_ITEM and len(part := _trimmed(self._text, start, block.span.start)):
                yield Claim(part, claim.lead)
                start = block.span.start
        yield Claim(Span(start, claim.span.end), claim.lead)

    def _pieces(self, claims: Sequence[Claim], introductions: set[Span]) -> Iterator[_Piece]:
        self._introduced_by.update((claim.span, claim.lead) for claim in claims if claim.span in introductions)
        pieces = [
            self._piece(self._leads(claim), (claim.span,)) for claim in claims if self._is_said(claim, introductions)
        ]
        for may_join in (self._have_one_introduction, self._are_under_one_heading, _are_neighbours):
            pieces = self._joined(pieces, may_join)
        for piece in (part for whole in pieces for part in self._short_enough(whole)):
            if piece.tokens >= TOKENS_MIN and piece.content not in self._said:
                self._said.add(piece.content)
                yield piece

    def _is_said(self, claim: Claim, introductions: set[Span]) -> bool:
        text = claim.span.of(self._text)
        return claim.span not in introductions and bool(_WORD.search(text)) and not _PAGE_NUMBER.fullmatch(text)

    def _leads(self, claim: Claim) -> tuple[Span, ...]:
        leads: list[Span] = []
        lead = claim.lead
        while lead is not None:
            leads.append(lead)
            lead = self._introduced_by.get(lead)
        return tuple(reversed(leads))

    def _piece(self, leads: tuple[Span, ...], parts: tuple[Span, ...]) -> _Piece:
        content = self._joined_text((*leads, *parts))
        return _Piece(leads, parts, content, self._counter.count(content))

    def _joined_text(self, spans: Iterable[Span]) -> str:
        return " ".join(" ".join(span.of(self._text).split()) for span in spans)

    def _joined(self, pieces: Sequence[_Piece], may_join: Callable[[_Piece, _Piece], bool]) -> list[_Piece]:
        """Joins each piece that is too short with the piece before it, else with the piece after it."""
        done: list[_Piece] = []
        for piece in pieces:
            too_short = bool(done) and min(done[-1].tokens, piece.tokens) < TOKENS_MIN
            if too_short and may_join(done[-1], piece):
                done[-1] = self._both(done[-1], piece)
            else:
                done.append(piece)
        return done

    def _both(self, piece: _Piece, following: _Piece) -> _Piece:
        """Joins two pieces and the text between them, if that is short. Each introduction comes only once."""
        new_leads = tuple(lead for lead in following.leads if lead not in piece.leads)
        parts = (*piece.parts, *new_leads, *following.parts)
        between = self._text[piece.span.end : following.span.start]
        if not new_leads and len(between) <= _BETWEEN_CHARACTERS_MAX and not _BLANK_LINE.search(between):
            seam = Span(piece.parts[-1].start, following.parts[0].end)
            parts = (*piece.parts[:-1], seam, *following.parts[1:])
        return self._piece(piece.leads, parts)

    def _short_enough(self, piece: _Piece) -> list[_Piece]:
        if piece.tokens <= TOKENS_MAX:
            return [piece]
        if piece.leads:
            return self._short_enough(self._piece((), piece.parts))
        cut = split(self._text, *_bounds(piece.span), TOKENS_MAX - TOKENS_MIN, self._counter, by_lines=False)
        trimmed = (_trimmed(self._text, part.start, part.end) for part in cut)
        return self._joined([self._piece((), (span,)) for span in trimmed if len(span)], _are_neighbours)


def _runs(blocks: Sequence[Block], first: int, own: Span) -> Iterator[tuple[BlockKind, Span]]:
    here: list[tuple[BlockKind, Span]] = []
    for place in range(first, len(blocks)):
        block = blocks[place]
        if block.span.start >= own.end:
            break
        start, end = max(block.span.start, own.start), min(block.span.end, own.end)
        if start < end:
            here.append((_as_text(block.kind), Span(start, end)))
    for kind, together in groupby(here, key=lambda run: run[0]):
        spans = [span for _, span in together]
        if kind is BlockKind.PARAGRAPH:
            yield kind, Span(spans[0].start, spans[-1].end)
        else:
            yield from ((kind, span) for span in spans)


def _as_text(kind: BlockKind) -> BlockKind:
    """Returns PARAGRAPH for list items: they are cut together with the paragraphs that introduce them."""
    return BlockKind.PARAGRAPH if kind is BlockKind.LIST_ITEM else kind


def _lines(text: str, run: Span) -> Iterator[Span]:
    start = run.start
    while start < run.end:
        end = text.find("\n", start, run.end)
        end = run.end if end < 0 else end
        if len(line := _trimmed(text, start, end)):
            yield line
        start = end + 1


def _trimmed(text: str, start: int, end: int) -> Span:
    piece = text[start:end]
    begin = start + len(piece) - len(piece.lstrip())
    return Span(begin, max(begin, start + len(piece.rstrip())))


def _bounds(span: Span) -> tuple[int, int]:
    return span.start, span.end


def _are_neighbours(piece: _Piece, following: _Piece) -> bool:
    return piece.tokens + following.tokens <= TOKENS_MAX
