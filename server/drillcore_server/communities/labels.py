"""What communities are called: keywords of their most important facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from drillcore_server.ingest.processing.keywords import keywords, word_scores
from drillcore_server.ingest.processing.words import guess_language, lower, stopwords, tokens_of

LABEL_KEYWORDS: Final = 3
_OPENING_CHARACTERS: Final = 60
_BETWEEN: Final = ", "


def keywords_of(texts: Sequence[str]) -> tuple[str, ...]:
    """What the texts are about, best first. No phrase goes from one text into the next."""
    tokens = [tokens_of(lower(text)) for text in texts]
    return keywords(tokens, word_scores(tokens, stopwords(guess_language(" ".join(texts))), frozenset()))


def opening_of(text: str) -> str:
    """The first words of a text: for want of keywords."""
    shortened = " ".join(text.split())
    if len(shortened) <= _OPENING_CHARACTERS:
        return shortened
    cut, _, _ = shortened[:_OPENING_CHARACTERS].rpartition(" ")
    return f"{cut or shortened[:_OPENING_CHARACTERS]} ..."


def labels(named: Iterable[tuple[tuple[str, ...], str]], others: Iterable[str] = ()) -> Iterator[str]:
    """A label for each community, given by its keywords and what else to call it; no two are equal.

    The first ones get the shortest: later ones take further keywords, and at last a number. `others` are taken.
    """
    taken = set(others)
    for words, opening in named:
        label = next(one for one in _candidates(words, opening) if one not in taken)
        taken.add(label)
        yield label


def _candidates(words: tuple[str, ...], opening: str) -> Iterator[str]:
    for count in range(min(LABEL_KEYWORDS, len(words)), len(words) + 1):
        if count:
            yield _BETWEEN.join(words[:count])
    shortest = _BETWEEN.join(words[:LABEL_KEYWORDS]) or opening
    yield shortest
    number = 2
    while True:
        yield f"{shortest} ({number})"
        number += 1
