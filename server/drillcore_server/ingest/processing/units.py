"""A chunk cut into units: the sentences, short lists and clauses that passages are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from drillcore_server.domain.digests import FindingKind
from drillcore_server.ingest.processing.cues import kinds_of
from drillcore_server.ingest.processing.sentences import MARKER, Bounds, sentences
from drillcore_server.ingest.processing.words import tokens_of

UNIT_CHARACTERS_MAX: Final = 600
"""Longer sentences are cut at a clause, so that one of them never fills a summary."""
LIST_CHARACTERS_MAX: Final = 400
"""Up to here a list stays with the words that introduce it: "(b) a bank" means nothing without them."""
_CUTS: Final = ("; ", ": ", ", ", " ", "\n")


class Unit(NamedTuple):
    start: int
    end: int
    tokens: list[str]
    """Its words in lower case, and the marks between them."""
    kinds: frozenset[FindingKind]
    fragment: bool
    """Not understood alone: an item without its introduction, or an introduction without its items."""


def units(text: str, lowered: str, language: str) -> list[Unit]:
    """In order; together they leave out nothing but white space."""
    cut: list[Bounds] = []
    for start, end in _with_lists(text, sentences(text, language)):
        if end - start <= UNIT_CHARACTERS_MAX:
            cut.append((start, end))
        else:
            cut.extend(_short(text, start, end))
    return [_unit(text, lowered, start, end) for start, end in cut]


def _unit(text: str, lowered: str, start: int, end: int) -> Unit:
    tokens = tokens_of(lowered[start:end])
    return Unit(start, end, tokens, kinds_of(tokens), _is_fragment(text, start, end))


def _with_lists(text: str, found: list[Bounds]) -> Iterator[Bounds]:
    """Sentences, those that end with a colon together with the list after them if all of it is short enough."""
    place = 0
    while place < len(found):
        start, end = found[place]
        place += 1
        if text[end - 1] == ":":
            following = _after_list(text, found, place, start + LIST_CHARACTERS_MAX)
            end, place = found[following - 1][1], following
        yield start, end


def _after_list(text: str, found: list[Bounds], first: int, limit: int) -> int:
    """The place after the last item, up to the one that ends a sentence; `first` if the list goes beyond the limit."""
    place = first
    while place < len(found) and MARKER.match(text, found[place][0]):
        if found[place][1] > limit:
            return first
        place += 1
        if text[found[place - 1][1] - 1] == ".":
            break
    return place


def _short(text: str, start: int, end: int) -> Iterator[Bounds]:
    while end - start > UNIT_CHARACTERS_MAX:
        cut = _cut(text, start, start + UNIT_CHARACTERS_MAX)
        kept = len(text[start:cut].rstrip())
        if kept:
            yield start, start + kept
        start = cut
        while start < end and text[start].isspace():
            start += 1
    if start < end:
        yield start, end


def _cut(text: str, start: int, limit: int) -> int:
    """After a clause if one ends in the second half, else between words, else anywhere."""
    half = (start + limit) // 2
    places = (text.rfind(mark, half, limit) + len(mark) for mark in _CUTS if text.rfind(mark, half, limit) >= 0)
    return next(places, limit)


def _is_fragment(text: str, start: int, end: int) -> bool:
    if text[end - 1] in ":;,":
        return True
    marker = MARKER.match(text, start, end)
    if marker is not None:
        start = end - len(text[marker.end() : end].lstrip())
    return text[start : start + 1].islower()
