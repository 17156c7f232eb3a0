"""Finds the keywords of a chunk, from the chunk alone: words that recur, and phrases made of them.

Only the corpus could tell how rare a word is. The length of the word stands in for that, since longer words are rarer.
"""

from __future__ import annotations

import functools
import re
import string
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Final

import stopwordsiso

ENGLISH: Final = "en"
LANGUAGES: Final = (
    "bg", "cs", "da", "de", "el", "es", "et", "fi", "fr", "ga", "hr", "hu", "it", "lt", "lv", "nl", "no", "pl", "pt",
    "ro", "ru", "sk", "sl", "sv", "tr", "uk",
)  # fmt: skip
"""The languages that are tried, in this order, on text that does not look English."""


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ENGLISH_FUNCTION_WORDS: Final = word_set(
    "the of and to in or for is be by that as on with any shall an are which must not this such from if it at"
)
_ENGLISH_SHARE: Final = 0.15
_SAMPLE_CHARACTERS: Final = 400

_MEANINGFUL: Final = word_set(
    "act amount bill group information member members order research right rights state states system value"
)
"""Words on the English stop list that carry meaning in regulations."""

_TOKENS: Final = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*|\d[\d.,]*|[^\w\s-]")
"""Matches a word, or a number or mark that ends a phrase."""
_ASCII_TOKENS: Final = re.compile(r"[a-z]+(?:-[a-z]+)*|[0-9][0-9.,]*|[^\w\s-]")
"""The same as `_TOKENS` for ASCII text, in half the time."""
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def tokens_of(lowered: str) -> list[str]:
    """Returns words, numbers and marks in the order of the text. Numbers and marks end a phrase."""
    return (_ASCII_TOKENS if lowered.isascii() else _TOKENS).findall(lowered)


def lower(text: str) -> str:
    """Returns the text in lower case with the same length, so that offsets stay valid."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(small if len(small := character.lower()) == 1 else character for character in text)


def without_surrogates(text: str) -> str:
    """Returns text of the same length without surrogates, which libraries for UTF-8 refuse."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


@functools.cache
def stopwords(language: str) -> frozenset[str]:
    """Returns words without a meaning of their own.

    The English words are always among them, since texts in other languages quote English.
    """
    english = frozenset(stopwordsiso.stopwords(ENGLISH)) - _MEANINGFUL
    return english | frozenset(string.ascii_lowercase) | frozenset(stopwordsiso.stopwords(language)) - _MEANINGFUL


def guess_language(text: str) -> str:
    """Guesses the language by its function words. Returns its ISO code, or English when in doubt."""
    words = lower(text[:_SAMPLE_CHARACTERS]).split()
    if sum(map(_ENGLISH_FUNCTION_WORDS.__contains__, words)) >= _ENGLISH_SHARE * len(words):
        return ENGLISH
    return max((ENGLISH, *LANGUAGES), key=lambda language: _hits(words, language))


def _hits(words: list[str], language: str) -> int:
    known = _own_stopwords(language)
    return sum(map(known.__contains__, words))


@functools.cache
def _own_stopwords(language: str) -> frozenset[str]:
    """Returns a short list for English: its full list has abbreviations that are words in other languages."""
    return _ENGLISH_FUNCTION_WORDS if language == ENGLISH else frozenset(stopwordsiso.stopwords(language))


KEYWORDS_MAX: Final = 10
PHRASE_WORDS_MAX: Final = 3
_LETTERS_MIN: Final = 3
_LETTERS_MAX: Final = 30
_LENGTH_CAP: Final = 10
_HEADING_FACTOR: Final = 2
_WORD_FACTOR: Final = 12
_PHRASE_FACTOR: Final = {2: 9, 3: 7}
"""The factor for the sum of the scores of a phrase's words, by the number of words. Integers give the same scores on
every machine."""


def word_scores(tokens: Sequence[Sequence[str]], stop: frozenset[str], headings: frozenset[str]) -> dict[str, int]:
    """Returns for each meaningful word how much it says about the chunk, in the order of the text."""
    scores = {
        word: count * (len(word) if len(word) < _LENGTH_CAP else _LENGTH_CAP)
        for word, count in Counter(chain.from_iterable(tokens)).items()
        if word not in stop and _LETTERS_MIN <= len(word) <= _LETTERS_MAX and not word[0].isdigit()
    }
    for word in headings & scores.keys():
        scores[word] *= _HEADING_FACTOR
    return scores


def keywords(tokens: Sequence[Sequence[str]], scores: dict[str, int]) -> tuple[str, ...]:
    """Returns the best words and phrases, best first. No word comes twice."""
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
    """Returns the last words of each run of several meaningful words, since the last words name the thing."""
    phrases = []
    for of_unit in tokens:
        start = place = 0
        for place, meaningful in enumerate(map(scores.__contains__, of_unit), start=1):
            if not meaningful:
                if place - start > 2:
                    phrases.append(tuple(of_unit[max(start, place - 1 - PHRASE_WORDS_MAX) : place - 1]))
                start = place
        if place - start > 1:
            phrases.append(tuple(of_unit[max(start, place - PHRASE_WORDS_MAX) : place]))
    return phrases
