"""Long texts in parts, for tokenizers that must not be given too much at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

_SEARCH_CHARS: Final = 4_096


def parts(text: str, chars_max: int, can_cut: Callable[[str, int], bool]) -> Iterator[str]:
    """The text in parts of at most `chars_max`, cut at the last place before that where it can be, else right there."""
    start = 0
    while start < len(text):
        end = _part_end(text, start, chars_max, can_cut)
        yield text[start:end]
        start = end


def _part_end(text: str, start: int, chars_max: int, can_cut: Callable[[str, int], bool]) -> int:
    end = start + chars_max
    if end >= len(text):
        return len(text)
    candidates = range(end, max(end - _SEARCH_CHARS, start), -1)
    return next((at for at in candidates if can_cut(text, at)), end)


def at_word(text: str, at: int) -> bool:
    """Whether a word begins there, with the white space before it: few tokenizers have a token across."""
    return text[at].isspace() and not text[at - 1].isspace()
