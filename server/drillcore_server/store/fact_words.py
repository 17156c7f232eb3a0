"""How the words of a fact are kept.

    chunk (16 bytes) document (16) passage (2) number of words of the content (2) lead (2) headings (2) title (2)
    number of different words (2), for each, in order: term (4) how often in content (1) lead (1) headings (1) title (1)
    pairs of neighbours, in order: term (4)

Ids are zeros and a passage is ones where there are none; numbers are little-endian, and what is more than fits is the
most that fits. So the records of many facts, one behind the other, are arrays that can be used as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final
from uuid import UUID

import numpy as np

from drillcore_server.domain.fact_words import FactWords
from drillcore_server.domain.words import Term

PARTS: Final = ("content", "lead", "headings", "title")
_LENGTHS: Final = tuple((part, "<u2") for part in PARTS)
HEAD: Final = np.dtype([("chunk", "V16"), ("document", "V16"), ("passage", "<u2"), *_LENGTHS, ("words", "<u2")])
WORD: Final = np.dtype([("term", "<u4"), *((part, "u1") for part in PARTS)])
PAIR: Final = np.dtype("<u4")
NO_NODE: Final = UUID(int=0).bytes
NO_PASSAGE: Final = (1 << 16) - 1
_LENGTH_MAX: Final = (1 << 16) - 1
_COUNT_MAX: Final = (1 << 8) - 1
_SHIFTS: Final = (0, 8, 16, 24)
"""Of the counts in the four bytes behind a term."""

_Words = tuple[Mapping[Term, int], ...]


def encode_words(words: FactWords) -> bytes:
    parts: _Words = (words.content, words.lead, words.headings, words.title)
    counts: dict[int, int] = {}
    for shift, part in zip(_SHIFTS, parts, strict=True):
        for term, count in part.items():
            counts[term] = counts.get(term, 0) | min(count, _COUNT_MAX) << shift
    found = sorted(counts.items())[:_LENGTH_MAX]
    numbers = [number for pair in found for number in pair]
    numbers += sorted(words.pairs)
    return _head(words, parts, len(found)) + struct.pack(f"<{len(numbers)}I", *numbers)


def _head(words: FactWords, parts: _Words, count: int) -> bytes:
    chunk = NO_NODE if words.chunk is None else words.chunk.bytes
    document = NO_NODE if words.document is None else words.document.bytes
    passage = NO_PASSAGE if words.passage is None else min(words.passage, NO_PASSAGE)
    lengths = (min(sum(one.values()), _LENGTH_MAX) for one in parts)
    return chunk + document + struct.pack("<6H", passage, *lengths, count)
