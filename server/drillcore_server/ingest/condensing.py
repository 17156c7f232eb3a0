"""A long text in few words of its own."""

from __future__ import annotations

from typing import Final

from drillcore_server.ingest.processing import ChunkInput, ExtractiveProcessor, Member, TokenRange
from drillcore_server.tokenizing.ports import TokenCounter

_PART_CHARACTERS: Final = 4_000
"""Of a text that are weighed together."""


def condensed(text: str, counter: TokenCounter, tokens_max: int) -> str:
    """The text, if it is short enough; else its heaviest sentences, in their order; else its beginning.

    White space is single spaces. The same text gives the same.
    """
    plain = " ".join(text.split())
    if counter.count(plain) <= tokens_max:
        return plain
    processor = ExtractiveProcessor(counter)
    parts = [plain[start : start + _PART_CHARACTERS] for start in range(0, len(plain), _PART_CHARACTERS)]
    digests = processor.process_chunks([ChunkInput(part, 0, f"{number:08}") for number, part in enumerate(parts)])
    summary = processor.summarise_section("", [Member.of(one) for one in digests], TokenRange(0, tokens_max))
    said = " ".join(summary.summary.text.split())
    return said if said and counter.count(said) <= tokens_max else _beginning(plain, counter, tokens_max)


def _beginning(plain: str, counter: TokenCounter, tokens_max: int) -> str:
    """As many characters as fit, found by halving."""
    low, high = 0, len(plain)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if counter.count(plain[:middle]) <= tokens_max else (low, middle - 1)
    return plain[:low]
