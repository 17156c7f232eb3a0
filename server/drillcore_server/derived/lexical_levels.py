"""Where the words of a question are: in facts, in passages (raws), in chunks and in documents.

A passage, and a chunk, has the words of its facts; what introduces several of them counts once. A document has what its
chunks have. Headings and titles, of which each fact has a copy, count once too: where copies differ, the most counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from drillcore_server.derived.lexical_segments import Gazetteer, Labels, Mask, Places, Records, run_starts
from drillcore_server.domain import bm25
from drillcore_server.store.fact_words import PARTS

Scores = bm25.Scores
_ABOVE: Final = ("headings", "title")


@dataclass(frozen=True, slots=True)
class Lengths:
    """In words, of all texts of a level by their number; zeros for numbers that no fact has any more."""

    content: Labels
    headings: Labels
    title: Labels
    count: int
    """Of texts."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What all questions to one state have in common."""

    facts: Lengths
    passages: Lengths
    chunks: Lengths
    documents: Lengths
    document_of: Labels
    """The number of each chunk's document."""

    @classmethod
    def of(cls, facts: Records, mask: Mask, places: Gazetteer) -> Sizes:
        own = facts[mask]
        content, headings, title = (np.where(mask, facts[part], 0).astype(np.int64) for part in ("content", *_ABOVE))
        document_of = np.zeros(len(places.chunk), np.int64)
        document_of[own["chunk"]] = own["document"]
        chunks = _lengths(own, "chunk", places.chunk)
        documents = _sums_of_chunks(chunks, document_of, own["chunk"], len(places.document))
        of_facts = Lengths(content, headings, title, len(own))
        return cls(of_facts, _lengths(own, "passage", places.passage), chunks, documents, document_of)


def _lengths(facts: Records, place: str, places: Places) -> Lengths:
    """Of passages or chunks."""
    numbers, size = facts[place], len(places)
    own = facts["content"].astype(np.int64) - facts["lead"]
    content = _sums(numbers, own, size) + _greatest(numbers, facts["lead"], size)
    headings, title = (_greatest(numbers, facts[part], size) for part in _ABOVE)
    return Lengths(content, headings, title, len(_distinct(numbers, size)))


def _sums_of_chunks(chunks: Lengths, document_of: Labels, used: npt.NDArray[np.integer], size: int) -> Lengths:
    there = _distinct(used, len(chunks.content))
    above = document_of[there]
    headings, title = (_greatest(above, one[there], size) for one in (chunks.headings, chunks.title))
    return Lengths(_sums(above, chunks.content[there], size), headings, title, len(_distinct(above, size)))


def _distinct(numbers: npt.NDArray[np.integer], size: int) -> Labels:
    used = np.zeros(size, np.bool_)
    used[numbers] = True
    return np.flatnonzero(used)


def _sums(places: npt.NDArray[np.integer], lengths: Labels, size: int) -> Labels:
    return np.bincount(places, lengths, size).astype(np.int64)  # whole numbers, so exact


def _greatest(places: npt.NDArray[np.integer], lengths: npt.NDArray[np.integer], size: int) -> Labels:
    found = np.zeros(size, np.int64)
    np.maximum.at(found, places, lengths.astype(np.int64))
    return found


@dataclass(frozen=True, slots=True)
class Level:
    """Where the words are in texts of one level: an entry for each word and text that has it, by word."""

    asked: int
    """Words of the question."""
    words: Labels
    """The place of the word in the question."""
    texts: Labels
    """The number of the text."""
    content: Labels
    """How often it is in the content of the text."""
    headings: Labels
    title: Labels
    lengths: Lengths

    def scores(self, *, headings: bool = False, title: bool = False) -> Scores:
        """BM25 of every text of the level, by its number: of its content, with what is above it if it is to count.

        Each is 0 to 1: the share of the question's weight that the text answers.
        """
        counts, lengths = self._together(headings=headings, title=title)
        average = int(lengths.sum()) / max(self.lengths.count, 1)
        weights = bm25.weakened(counts, lengths[self.texts], average)
        return bm25.shares(self.words, self.texts, weights, self._rarity(counts), len(lengths))

    def title_shares(self) -> Scores:
        """The share of the question's weight that the title of each text answers."""
        counts, lengths = self._together(headings=False, title=True)
        there = np.minimum(self.title, 1).astype(np.float64)
        return bm25.shares(self.words, self.texts, there, self._rarity(counts), len(lengths))

    def _together(self, *, headings: bool, title: bool) -> tuple[Labels, Labels]:
        counts = self.content + headings * self.headings + title * self.title
        lengths = self.lengths.content + headings * self.lengths.headings + title * self.lengths.title
        return counts, lengths

    def _rarity(self, counts: Labels) -> Scores:
        having = np.bincount(self.words[counts > 0], minlength=self.asked)
        return bm25.rarity(having, self.lengths.count)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Which passages have which pairs of the question."""

    asked: int
    pairs: Labels
    passages: Labels
    lengths: Lengths

    def scores(self) -> Scores:
        """Of every passage, by its number: the share of the weight of the question's pairs that it has."""
        having = np.bincount(self.pairs, minlength=self.asked)
        rarity = bm25.rarity(having, self.lengths.count)
        return bm25.shares(self.pairs, self.passages, np.ones(len(self.pairs)), rarity, len(self.lengths.content))


@dataclass(frozen=True, slots=True)
class Matches:
    facts: Level
    """By label."""
    passages: Level
    chunks: Level
    documents: Level
    neighbours: Neighbours

    @classmethod
    def of(cls, asked: int, words: tuple[Labels, Records], pairs: Neighbours, facts: Records, sizes: Sizes) -> Matches:
        places, found = words
        labels = found["label"].astype(np.int64)
        content, lead, headings, title = (found[part].astype(np.int64) for part in PARTS)
        of_facts = Level(asked, places, labels, content, headings, title, sizes.facts)
        passages = _gathered(of_facts, facts["passage"][labels], sizes.passages, lead)
        chunks = _gathered(of_facts, facts["chunk"][labels], sizes.chunks, lead)
        documents = _gathered(chunks, sizes.document_of[chunks.texts], sizes.documents)
        return cls(of_facts, passages, chunks, documents, pairs)


def neighbours(asked: int, places: Labels, passages: npt.NDArray[np.integer], lengths: Lengths) -> Neighbours:
    """From where pairs are in facts."""
    order, starts = _runs(places, passages)
    first = order[starts]
    return Neighbours(asked, places[first], passages[first].astype(np.int64), lengths)


def _gathered(below: Level, texts: npt.NDArray[np.integer], lengths: Lengths, lead: Labels | None = None) -> Level:
    """What is in the texts that others are in. `lead`: how often a word is in what introduces each of them."""
    order, starts = _runs(below.words, texts)
    if not len(order):
        return replace(below, texts=texts.astype(np.int64), lengths=lengths)
    content = np.add.reduceat((below.content if lead is None else below.content - lead)[order], starts)
    if lead is not None:
        content += np.maximum.reduceat(lead[order], starts)
    headings, title = (np.maximum.reduceat(one[order], starts) for one in (below.headings, below.title))
    first = order[starts]
    return Level(below.asked, below.words[first], texts[first].astype(np.int64), content, headings, title, lengths)


def _runs(words: Labels, texts: npt.NDArray[np.integer]) -> tuple[Labels, Labels]:
    """An order in which entries of the same word and text are together, and where each such run begins."""
    keys = words << 32 | texts.astype(np.int64)
    order = np.argsort(keys, kind="stable")
    return order, run_starts(keys[order])
