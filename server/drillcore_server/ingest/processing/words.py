"""Words of a text, which language they are of, and which of them carry no meaning there."""

from __future__ import annotations

import functools
import re
import string
from typing import Final

import stopwordsiso

ENGLISH: Final = "en"
LANGUAGES: Final = (
    "bg", "cs", "da", "de", "el", "es", "et", "fi", "fr", "ga", "hr", "hu", "it", "lt", "lv", "nl", "no", "pl", "pt",
    "ro", "ru", "sk", "sl", "sv", "tr", "uk",
)  # fmt: skip
"""Tried, in this order, on what does not read as English."""


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
"""On the stop list for English, but what regulations are about."""

_TOKENS: Final = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*|\d[\d.,]*|[^\w\s-]")
"""A word, or something that ends a phrase: a number or a mark."""
_ASCII_TOKENS: Final = re.compile(r"[a-z]+(?:-[a-z]+)*|[0-9][0-9.,]*|[^\w\s-]")
"""The same for text of those characters, at half the time."""
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def tokens_of(lowered: str) -> list[str]:
    """Words, and between them the marks and numbers that no phrase goes across."""
    return (_ASCII_TOKENS if lowered.isascii() else _TOKENS).findall(lowered)


def lower(text: str) -> str:
    """Lower case of the same length, so that offsets stay what they are."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(small if len(small := character.lower()) == 1 else character for character in text)


def without_surrogates(text: str) -> str:
    """Of the same length, and fit for libraries that take UTF-8 only."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


@functools.cache
def stopwords(language: str) -> frozenset[str]:
    """Words without meaning of their own. English ones are always among them: other languages quote it."""
    english = frozenset(stopwordsiso.stopwords(ENGLISH)) - _MEANINGFUL
    return english | frozenset(string.ascii_lowercase) | frozenset(stopwordsiso.stopwords(language)) - _MEANINGFUL


def guess_language(text: str) -> str:
    """ISO code of the language, by its function words; English when in doubt."""
    words = lower(text[:_SAMPLE_CHARACTERS]).split()
    if sum(map(_ENGLISH_FUNCTION_WORDS.__contains__, words)) >= _ENGLISH_SHARE * len(words):
        return ENGLISH
    return max((ENGLISH, *LANGUAGES), key=lambda language: _hits(words, language))


def _hits(words: list[str], language: str) -> int:
    known = _own_stopwords(language)
    return sum(map(known.__contains__, words))


@functools.cache
def _own_stopwords(language: str) -> frozenset[str]:
    """Without the English list's abbreviations of two letters, which are words of other languages."""
    return _ENGLISH_FUNCTION_WORDS if language == ENGLISH else frozenset(stopwordsiso.stopwords(language))
