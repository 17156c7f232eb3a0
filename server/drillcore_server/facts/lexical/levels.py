"""Finds where the words of a question are (in facts, chunks and documents) and its pairs of words (in passages and
chunks).

A passage (raw) has the words of its facts; an introduction of several facts counts once. A chunk has what its passages
have, a document what its chunks have. Each fact has a copy of its headings and title; they count once too. Where copies
differ, the highest count wins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from drillcore_server.facts.lexical import relevance as bm25
from drillcore_server.facts.lexical.segments import Labels, Mask, PlaceNumbers, Places, Records, run_starts
from drillcore_server.facts.words import PARTS, Question

Scores = bm25.Scores
_ABOVE: Final = ("headings", "title")


class Found(NamedTuple):
    """Where terms are: the place of each term among those asked for, and its record."""

    places: Labels
    records: Records


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths in words of all texts of a level, by their number; 0 for numbers that no fact has any more."""

    content: Labels
    headings: Labels
    title: Labels
    count: int
    """The number of texts."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The lengths and numbers that all questions to one state use."""

    facts: Lengths
    passages: Lengths
    chunks: Lengths
    documents: Lengths
    chunk_of: Labels
    """The number of each passage's chunk."""
    document_of: Labels
    """The number of each chunk's document."""

    @classmethod
    def of(cls, facts: Records, mask: Mask, places: PlaceNumbers) -> Sizes:
        own = facts[mask]
        content, headings, title = (np.where(mask, facts[part], 0).astype(np.int64) for part in ("content", *_ABOVE))
        chunk_of = _parents(own, "passage", "chunk", places.passage)
        document_of = _parents(own, "chunk", "document", places.chunk)
        passages = _of_passages(own, len(places.passage))
        chunks = _of_parents(passages, chunk_of, own["passage"], len(places.chunk))
        documents = _of_parents(chunks, document_of, own["chunk"], len(places.document))
        return cls(Lengths(content, headings, title, len(own)), passages, chunks, documents, chunk_of, document_of)


def _parents(facts: Records, place: str, above: str, places: Places) -> Labels:
    found = np.zeros(len(places), np.int64)
    found[facts[place]] = facts[above]
    return found


def _of_passages(facts: Records, size: int) -> Lengths:
    numbers = facts["passage"]
    own = facts["content"].astype(np.int64) - facts["lead"]
    content = _sums(numbers, own, size) + _greatest(numbers, facts["lead"], size)
    headings, title = (_greatest(numbers, facts[part], size) for part in _ABOVE)
    return Lengths(content, headings, title, len(_distinct(numbers, size)))


def _of_parents(below: Lengths, parents: Labels, used: npt.NDArray[np.integer], size: int) -> Lengths:
    there = _distinct(used, len(parents))
    above = parents[there]
    headings, title = (_greatest(above, lengths[there], size) for lengths in (below.headings, below.title))
    return Lengths(_sums(above, below.content[there], size), headings, title, len(_distinct(above, size)))


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
    """Where the words are in texts of one level: an entry for each word and each text that has it, sorted by word."""

    asked: int
    """The number of words in the question."""
    words: Labels
    """The place of the word in the question."""
    texts: Labels
    """The number of the text."""
    content: Labels
    """How often the word is in the content of the text."""
    headings: Labels
    title: Labels
    lengths: Lengths

    def scores(self, *, headings: bool = False, title: bool = False) -> Scores:
        """Returns BM25 of every text of the level, by its number, for its content and optionally what is above it.

        Each score is 0 to 1: the share of the question's weight that the text answers.
        """
        counts, lengths = self._together(headings=headings, title=title)
        average = int(lengths.sum()) / max(self.lengths.count, 1)
        weights = bm25.weakened(counts, lengths[self.texts], average)
        return bm25.shares(self.words, self.texts, weights, self._rarity(counts), len(lengths))

    def title_shares(self) -> Scores:
        """Returns the share of the question's weight that the title of each text answers."""
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
    """Which texts of a level have which pairs of the question."""

    asked: int
    pairs: Labels
    texts: Labels
    lengths: Lengths

    @classmethod
    def of(cls, asked: int, pairs: Labels, texts: npt.NDArray[np.integer], lengths: Lengths) -> Neighbours:
        """Takes where pairs are in facts: a pair is in the text that contains its fact."""
        order, starts = _runs(pairs, texts)
        first = order[starts]
        return cls(asked, pairs[first], texts[first].astype(np.int64), lengths)

    def scores(self) -> Scores:
        """Returns for every text, by its number, the share of the weight of the question's pairs that it has."""
        having = np.bincount(self.pairs, minlength=self.asked)
        rarity = bm25.rarity(having, self.lengths.count)
        return bm25.shares(self.pairs, self.texts, np.ones(len(self.pairs)), rarity, len(self.lengths.content))


@dataclass(frozen=True, slots=True)
class Matches:
    """Where the words and pairs of a question are, on every level."""

    facts: Level
    """The number of a text is the label of a fact."""
    chunks: Level
    documents: Level
    passage_pairs: Neighbours
    chunk_pairs: Neighbours

    @classmethod
    def of(cls, asked: Question, words: Found, pairs: Found, facts: Records, sizes: Sizes) -> Matches:
        of_facts, lead = _of_facts(len(asked.terms), words, sizes.facts)
        passages = _gathered(of_facts, facts["passage"][of_facts.texts], sizes.passages, lead)
        chunks = _gathered(passages, sizes.chunk_of[passages.texts], sizes.chunks)
        documents = _gathered(chunks, sizes.document_of[chunks.texts], sizes.documents)
        having, count = facts[pairs.records["label"]], len(asked.pairs)
        passage_pairs = Neighbours.of(count, pairs.places, having["passage"], sizes.passages)
        chunk_pairs = Neighbours.of(count, pairs.places, having["chunk"], sizes.chunks)
        return cls(of_facts, chunks, documents, passage_pairs, chunk_pairs)


def _of_facts(asked: int, words: Found, lengths: Lengths) -> tuple[Level, Labels]:
    """Also returns how often each word is in the introductions of the fact."""
    content, lead, headings, title = (words.records[part].astype(np.int64) for part in PARTS)
    labels = words.records["label"].astype(np.int64)
    return Level(asked, words.places, labels, content, headings, title, lengths), lead


def _gathered(below: Level, texts: npt.NDArray[np.integer], lengths: Lengths, lead: Labels | None = None) -> Level:
    """Adds up what is in the texts that contain others. `lead` is how often a word is in the introduction of each."""
    order, starts = _runs(below.words, texts)
    if not len(order):
        return replace(below, texts=texts.astype(np.int64), lengths=lengths)
    content = np.add.reduceat((below.content if lead is None else below.content - lead)[order], starts)
    if lead is not None:
        content += np.maximum.reduceat(lead[order], starts)
    headings, title = (np.maximum.reduceat(counts[order], starts) for counts in (below.headings, below.title))
    first = order[starts]
    return Level(below.asked, below.words[first], texts[first].astype(np.int64), content, headings, title, lengths)


def _runs(words: Labels, texts: npt.NDArray[np.integer]) -> tuple[Labels, Labels]:
    """Returns an order that puts entries of the same word and text together, and where each such run begins."""
    keys = words << 32 | texts.astype(np.int64)
    order = np.argsort(keys, kind="stable")
    return order, run_starts(keys[order])
