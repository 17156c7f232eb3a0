"""The scoring policy `fused-1`: how relevant facts are to a question, by words and by vectors.

The same question is asked of every level: of the fact, of the passage (raw), chunk and document that it is in, and of
the title. What a fact does not say itself, such as whose duty it is, its surroundings do. By words, each level gives
the share of the question's weight that is answered there. The weights were measured on the development sets, and recall
is flat around these: the title says which document is meant, the chunk what it is about, pairs are the defined terms of
regulations, the fact decides within.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float64]
_FACT: Final = 0.30
_CHUNK: Final = 0.50
_DOCUMENT: Final = 0.20
_TITLE: Final = 0.70
_PASSAGE_PAIRS: Final = 0.25
_CHUNK_PAIRS: Final = 0.25
_COS_FACT: Final = 0.10
_COS_PASSAGE: Final = 0.10
_COS_CHUNK: Final = 0.20
_WHOLE: Final = 2.60
"""The sum of the weights."""
_HALF: Final = 0.20
"""Of the whole, that makes a relevance of one half: few facts that answer a question are below it."""
_DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class WordShares:
    """Of facts, one by one: how much of a question is answered by words, 0 to 1 each."""

    fact: Scores
    chunk: Scores
    """With its headings and title."""
    document: Scores
    """With its title."""
    title: Scores
    passage_pairs: Scores
    """Neighbours of the question that are neighbours in a fact of the passage."""
    chunk_pairs: Scores

    def of(self, places: npt.NDArray[np.int64]) -> WordShares:
        """Of some of the facts."""
        return WordShares(*(getattr(self, one.name)[places] for one in fields(self)))


@dataclass(frozen=True, slots=True)
class Cosines:
    """Of the vector of a question with those of facts, one by one, and of what they are in."""

    fact: Scores
    passage: Scores
    """The mean of its facts' vectors."""
    chunk: Scores


def by_words(shares: WordShares) -> Scores:
    """What words contribute, of the whole."""
    return np.round(_words(shares) / _WHOLE, _DIGITS)


def fused(shares: WordShares, cosines: Cosines) -> Scores:
    """Relevance, 0 to 1. It is low where the store knows little of what is asked."""
    vectors = _COS_FACT * cosines.fact + _COS_PASSAGE * cosines.passage + _COS_CHUNK * cosines.chunk
    squared = (np.maximum(_words(shares) + vectors, 0) / _WHOLE) ** 2
    return np.round(squared / (squared + _HALF**2), _DIGITS)


def _words(shares: WordShares) -> Scores:
    content = _FACT * shares.fact + _CHUNK * shares.chunk + _DOCUMENT * shares.document + _TITLE * shares.title
    return content + _PASSAGE_PAIRS * shares.passage_pairs + _CHUNK_PAIRS * shares.chunk_pairs
