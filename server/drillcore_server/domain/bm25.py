"""How well texts answer a question by its words: BM25, as a share of what an answer to every word would have.

Scores are the same bits whatever the order in which texts were added: what is summed for a text is summed in the order
of the question's words, and everything else is counted.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

K1: Final = 1.2
B: Final = 0.75

Numbers = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]


def rarity(having: Numbers, texts_count: int) -> Scores:
    """How much a word tells, given how many of the texts have it."""
    return np.log1p((texts_count - having + 0.5) / (having + 0.5))


def weakened(counts: Numbers, lengths: Numbers, average: float) -> Scores:
    """What it counts that a text of some length has a word so often: nothing to nearly one."""
    found: Scores = counts / (counts + K1 * (1 - B + B * lengths / max(average, 1.0)))
    return found


def shares(words: Numbers, texts: Numbers, weights: Scores, rarities: Scores, size: int) -> Scores:
    """For each of `size` texts the weight of the words that it has, over that of all words.

    An entry is the place of a word in the question, the number of a text, and how much it counts there.
    """
    whole = float(rarities.sum())
    if not whole:
        return np.zeros(size)
    return np.asarray(np.bincount(texts, rarities[words] * weights, size), np.float64) / whole
