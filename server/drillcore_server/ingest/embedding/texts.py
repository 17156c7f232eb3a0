"""Which texts can be embedded, and in what portions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from drillcore_server.ingest.embedding.errors import TextProblem, TextRefused

TEXT_CHARACTERS_MAX: Final = 100_000
"""Some ten times the longest fact. Longer text has not been chunked, and would hold the tokenizer up for seconds."""


def check_texts(texts: Sequence[str]) -> None:
    """Raises TextRefused for the first text without a vector."""
    if isinstance(texts, str):
        raise TypeError("a string where a sequence of texts belongs would be embedded letter by letter")
    for position, text in enumerate(texts):
        if (problem := _problem(text)) is not None:
            raise TextRefused(problem, position)


def _problem(text: str) -> TextProblem | None:
    if not text or text.isspace():
        return TextProblem.EMPTY
    if len(text) > TEXT_CHARACTERS_MAX:
        return TextProblem.TOO_LONG
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return TextProblem.NOT_UNICODE
    return None


def portions(texts: Sequence[str], texts_max: int, characters_max: int) -> Iterator[Sequence[str]]:
    """The texts in order, in runs within both limits; a text over the second limit is a run of its own."""
    start = characters = 0
    for position, text in enumerate(texts):
        full = position - start == texts_max or characters + len(text) > characters_max
        if full and position > start:
            yield texts[start:position]
            start, characters = position, 0
        characters += len(text)
    if start < len(texts):
        yield texts[start:]
