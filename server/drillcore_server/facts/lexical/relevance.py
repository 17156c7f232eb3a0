"""Relevance of texts to a question: BM25 for texts, and for facts the scoring policy `fused-1`, by words and vectors.

A BM25 score here is a share of what an answer to every word would have. Scores have the same bits whatever the order in
which texts were added: sums follow the order of the question's words, and everything else is counted.

`fused-1` asks every level: the fact, the passage (raw), chunk and document around it, and the title. The surroundings
say what a fact does not say itself, such as whose duty it is. The weights were measured on the development sets, and
recall is flat around them. The title says which document is meant, the chunk what it is about; pairs are the defined
terms of regulations; the fact decides among the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt

K1: Final = 1.2
B: Final = 0.75

Numbers = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]


def rarity(having: Numbers, texts_count: int) -> Scores:
    """Returns how much a word tells, given how many of the texts have it."""
    return np.log1p((texts_count - having + 0.5) / (having + 0.5))


def weakened(counts: Numbers, lengths: Numbers, average: float) -> Scores:
    """Returns how much it counts that a text of some length has a word so often: from 0 to nearly 1."""
    found: Scores = counts / (counts + K1 * (1 - B + B * lengths / max(average, 1.0)))
    return found


def shares(words: Numbers, texts: Numbers, weights: Scores, rarities: Scores, size: int) -> Scores:
    """Returns for each of `size` texts the weight of the words that it has, divided by that of all words.

    An entry is the place of a word in the question, the number of a text, and how much it counts there.
    """
    whole = float(rarities.sum())
    if not whole:
        return np.zeros(size)
    return np.asarray(np.bincount(texts, rarities[words] * weights, size), np.float64) / whole


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
"""The share of the whole that gives a relevance of one half: few facts that answer a question are below it."""
_DIGITS: Final = 6


@dataclass(frozen=True, slots=True)
class WordShares:
    """How much of a question words answer, for each fact: from 0 to 1."""

    fact: Scores
    chunk: Scores
    """The chunk with its headings and title."""
    document: Scores
    """The document with its title."""
    title: Scores
    passage_pairs: Scores
    """Neighbouring words of the question that are neighbours in a fact of the passage."""
    chunk_pairs: Scores

    def of(self, places: npt.NDArray[np.int64]) -> WordShares:
        """Returns the shares of some of the facts."""
        return WordShares(*(getattr(self, field.name)[places] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Cosines:
    """The cosines of a question's vector with those of facts and of what contains them."""

    fact: Scores
    passage: Scores
    """The mean of its facts' vectors."""
    chunk: Scores


def by_words(shares: WordShares) -> Scores:
    """Returns what words contribute to the whole."""
    return np.round(_words(shares) / _WHOLE, _DIGITS)


def fused(shares: WordShares, cosines: Cosines) -> Scores:
    """Returns the relevance, from 0 to 1. It is low where the store knows little about the question."""
    vectors = _COS_FACT * cosines.fact + _COS_PASSAGE * cosines.passage + _COS_CHUNK * cosines.chunk
    squared = (np.maximum(_words(shares) + vectors, 0) / _WHOLE) ** 2
    return np.round(squared / (squared + _HALF**2), _DIGITS)


def _words(shares: WordShares) -> Scores:
    content = _FACT * shares.fact + _CHUNK * shares.chunk + _DOCUMENT * shares.document + _TITLE * shares.title
    return content + _PASSAGE_PAIRS * shares.passage_pairs + _CHUNK_PAIRS * shares.chunk_pairs
