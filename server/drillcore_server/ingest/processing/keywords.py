"""What a chunk is about, from the chunk alone: words that come again, and phrases made of them.

Without the corpus there is no telling how rare a word is; its length stands in for that, as longer words are rarer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Final

KEYWORDS_MAX: Final = 10
PHRASE_WORDS_MAX: Final = 3
_LETTERS_MIN: Final = 3
_LETTERS_MAX: Final = 30
_LENGTH_CAP: Final = 10
_HEADING_FACTOR: Final = 2
_WORD_FACTOR: Final = 12
_PHRASE_FACTOR: Final = {2: 9, 3: 7}
"""By number of words, for the sum of their scores. Integers, so that scores are the same on every machine."""


def word_scores(tokens: Sequence[Sequence[str]], stop: frozenset[str], headings: frozenset[str]) -> dict[str, int]:
    """How much each meaningful word says about the chunk, in the order of the text."""
    scores = {
        word: count * (len(word) if len(word) < _LENGTH_CAP else _LENGTH_CAP)
        for word, count in Counter(chain.from_iterable(tokens)).items()
        if word not in stop and _LETTERS_MIN <= len(word) <= _LETTERS_MAX and not word[0].isdigit()
    }
    for word in headings & scores.keys():
        scores[word] *= _HEADING_FACTOR
    return scores


def keywords(tokens: Sequence[Sequence[str]], scores: dict[str, int]) -> tuple[str, ...]:
    """The best words and phrases, best first, no word in two of them."""
    ranked: list[tuple[int, tuple[str, ...]]] = [(-_WORD_FACTOR * score, (word,)) for word, score in scores.items()]
    for phrase, count in Counter(_phrases(tokens, scores)).items():
        total = sum(map(scores.__getitem__, phrase))
        ranked.append((-count * total * _PHRASE_FACTOR[len(phrase)], phrase))
    ranked.sort()
    used: set[str] = set()
    chosen: list[str] = []
    for _, phrase in ranked:
        if used.isdisjoint(phrase):
            used.update(phrase)
            chosen.append(" ".join(phrase))
            if len(chosen) == KEYWORDS_MAX:
                break
    return tuple(chosen)


def _phrases(tokens: Sequence[Sequence[str]], scores: dict[str, int]) -> list[tuple[str, ...]]:
    """Of each run of several meaningful words the last ones, since those name the thing."""
    phrases = []
    for some in tokens:
        start = place = 0
        for place, meaningful in enumerate(map(scores.__contains__, some), start=1):
            if not meaningful:
                if place - start > 2:
                    phrases.append(tuple(some[max(start, place - 1 - PHRASE_WORDS_MAX) : place - 1]))
                start = place
        if place - start > 1:
            phrases.append(tuple(some[max(start, place - PHRASE_WORDS_MAX) : place]))
    return phrases
