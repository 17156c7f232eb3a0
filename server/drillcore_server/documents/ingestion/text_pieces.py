"""Cuts text that is too long for a chunk: between sentences, else between clauses, words or characters.

Every function is linear in the text, whatever the text is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

import sentencex

from drillcore_server.tokenizers.encodings import TokenCounter

WINDOW_CHARS = 65_536
"""The length of text in which sentences are searched at once, so that memory does not grow with the paragraph."""
_LANGUAGE = "en"
_CHARS_PER_TOKEN = 6
"""More characters than a token has in any language, so that the first try contains enough tokens."""
_CLAUSE_END = re.compile(r"[,;:)\]\u2013\u2014\u060c\u061b](?=\s)")
_GRAPHEME_CHARS_MAX = 64
_ZERO_WIDTH_JOINER = "\u200d"


class Piece(NamedTuple):
    start: int
    end: int
    tokens: int


def boundary(text: str, left_end: int, right_start: int) -> int:
    """Returns where to cut the white space between two words: after its last line end, else at its beginning.

    Tokens hardly ever cross that place: they join line ends with the text before, and spaces with the word after.
    """
    line_end = max(text.rfind("\n", left_end, right_start), text.rfind("\r", left_end, right_start))
    return left_end if line_end < 0 else line_end + 1


def split(
    text: str, start: int, end: int, tokens_max: int, counter: TokenCounter, *, by_lines: bool
) -> Iterator[Piece]:
    """Yields the sentences, or the lines, of this part of the text, without gaps.

    Yields a sentence of more than `tokens_max` tokens in pieces.
    """
    for sentence_end in _line_ends(text, start, end) if by_lines else sentence_ends(text, start, end):
        if sentence_end - start <= tokens_max * _CHARS_PER_TOKEN:
            tokens = counter.count(text[start:sentence_end])
            if tokens <= tokens_max:
                yield Piece(start, sentence_end, tokens)
                start = sentence_end
                continue
        yield from _cuts(text, start, sentence_end, tokens_max, counter)
        start = sentence_end


def sentence_ends(text: str, start: int, end: int) -> Iterator[int]:
    """Yields the end of each sentence of this part of the text. The last value is `end`."""
    while end - start > WINDOW_CHARS:
        ends = _ends_within(text, start, start + WINDOW_CHARS)
        # The window may have cut the last sentence. It is searched again with more text, unless it is the only one.
        yield from ends[:-1] or ends
        start = ends[-2] if len(ends) > 1 else ends[-1]
    yield from _ends_within(text, start, end)


def tail(text: str, start: int, end: int, tokens_max: int, counter: TokenCounter) -> tuple[int, int]:
    """Returns where the last words of this part begin, as many as `tokens_max` allows, and the number of their tokens.

    Returns `end` and 0 if not even one word fits.
    """
    chars = min(tokens_max * _CHARS_PER_TOKEN, end - start)
    while chars > 0:
        first = _word_start(text, end - chars, end)
        tokens = counter.count(text[first:end])
        if tokens <= tokens_max:
            return first, tokens
        chars = min(chars - 1, chars * tokens_max // tokens)
    return end, 0


def _line_ends(text: str, start: int, end: int) -> Iterator[int]:
    while 0 <= (found := text.find("\n", start, end)) < end - 1:
        start = found + 1
        yield start
    yield end


def _ends_within(text: str, start: int, end: int) -> list[int]:
    ends: list[int] = []
    at = start
    for sentence in sentencex.segment(_LANGUAGE, text[start:end]):
        words = sentence.strip()
        first = at + len(sentence) - len(sentence.lstrip())
        if words and ends and first < end:
            ends[-1] = boundary(text, ends[-1], first)
        if words:
            ends.append(first + len(words))
        at += len(sentence)
    return [*ends[:-1], end]


def _cuts(text: str, start: int, end: int, tokens_max: int, counter: TokenCounter) -> Iterator[Piece]:
    chars = tokens_max * _CHARS_PER_TOKEN
    while start < end:
        piece = _cut(text, start, end, chars, tokens_max, counter)
        yield piece
        start = piece.end
        # Begins the next piece with the length that this one suggests, so that most pieces are counted only once.
        chars = max(tokens_max, (piece.end - piece.start) * tokens_max * 49 // (max(piece.tokens, 1) * 50))


def _cut(text: str, start: int, end: int, chars: int, tokens_max: int, counter: TokenCounter) -> Piece:
    """Returns a piece from `start` that fits, has at most `chars` characters, and ends where a reader would pause."""
    chars = min(chars, tokens_max * _CHARS_PER_TOKEN, end - start)
    while True:
        cut = end if start + chars == end else _pause(text, start, start + chars)
        tokens = counter.count(text[start:cut])
        if tokens <= tokens_max or cut == start + 1:
            return Piece(start, cut, tokens)
        # Takes a little less than the proportion suggests: text is uneven, and another try costs a count.
        chars = max(1, min(cut - start - 1, (cut - start) * tokens_max * 19 // (tokens * 20)))


def _pause(text: str, start: int, end: int) -> int:
    """Returns the last place before `end` to cut at: after a clause, else a word, else a whole character."""
    half = start + (end - start) // 2
    clauses = [found.end() for found in _CLAUSE_END.finditer(text, half, end)]
    if clauses:
        return clauses[-1]
    for at in range(end, half, -1):
        if at < len(text) and text[at].isspace() and not text[at - 1].isspace():
            return at
    return grapheme_start(text, end, start)


def grapheme_start(text: str, at: int, above: int) -> int:
    """Returns the nearest place at or before `at`, but after `above`, that is not inside a visible character."""
    for place in range(at, max(above, at - _GRAPHEME_CHARS_MAX), -1):
        if not _continues(text, place):
            return place
    return at


def _continues(text: str, at: int) -> bool:
    if at >= len(text):
        return False
    character = text[at]
    if character < "\u0300":
        return character == "\n" and text[at - 1] == "\r"
    return (
        unicodedata.category(character) in ("Mn", "Mc", "Me")
        or _ZERO_WIDTH_JOINER in (character, text[at - 1])
        or "\U0001f3fb" <= character <= "\U0001f3ff"
    )


def _word_start(text: str, at: int, end: int) -> int:
    """Returns where the first word at or after `at` begins, else where the character at `at` begins."""
    for place in range(at, end):
        if not text[place].isspace() and (place == 0 or text[place - 1].isspace()):
            return place
    return grapheme_start(text, at, max(0, at - _GRAPHEME_CHARS_MAX))
