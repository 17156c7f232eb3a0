"""Summaries made of passages: those of a chunk by weight, those of a group by weight, coverage and novelty."""

from __future__ import annotations

import functools
import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from drillcore_server.domain.digests import Passage, Summary
from drillcore_server.ingest.processing.ports import TokenRange
from drillcore_server.ingest.processing.units import Unit
from drillcore_server.ingest.processing.words import lower, stopwords, tokens_of
from drillcore_server.tokenizing.ports import TokenCounter

CHUNK_SHARE: Final = 4
"""A chunk's summary is at most one in so many of its characters."""
CHUNK_WEIGHT_MIN: Final = 0.4
"""Of the best unit's weight: headings and labels only fill up a summary."""
GROUP_SHARE: Final = 3
"""A group's summary is about one in so many tokens of what it is chosen from, within its range."""
POOL_MAX: Final = 512
"""Passages a group's summary is chosen from: bounds the cost whatever the size of the group."""
POOL_CHARACTERS_MAX: Final = 2000
"""No passage of the built-in processor is as long; others' may be."""
KNOWN_PASSAGES_MAX: Final = 2048
"""Passages whose measures are kept in memory: of the master and of some dozens of sections."""
NOVELTY_MIN: Final = 0.3
"""Less of a passage new than this, and it repeats what is chosen."""
SAME_MEMBER: Final = 0.85
"""Each passage already chosen from a member makes its others count that much less, so that all are heard."""
SEPARATOR: Final = "\n"

_Feature = tuple[str, ...]


def in_reading_order(passages: Sequence[Passage]) -> tuple[Passage, ...]:
    return tuple(sorted(passages, key=lambda passage: (passage.document, passage.span)))


def text_of(passages: Sequence[Passage]) -> str:
    return SEPARATOR.join([passage.text for passage in passages])


def chunk_summary(characters: int, found: Sequence[Unit], weights: Sequence[float], ranked: Sequence[int]) -> list[int]:
    """Places of the heaviest units that fit a quarter of the chunk, in reading order, and always the best one.

    The seed asks for summaries of 500 to 2000 tokens, which is more than a chunk of at most 512 tokens holds.
    """
    left = characters // CHUNK_SHARE
    chosen: list[int] = []
    for place in ranked:
        size = found[place].end - found[place].start
        if not chosen or (size <= left and weights[place] >= CHUNK_WEIGHT_MIN * weights[ranked[0]]):
            chosen.append(place)
            left -= size + len(SEPARATOR)
    return sorted(chosen)


@dataclass(slots=True)
class _Candidate:
    passage: Passage
    member: int
    weight: float
    tokens: int
    features: tuple[_Feature, ...]
    new: int = 0
    """How many of its features no chosen passage has."""

    def score(self, chosen_of: Counter[int]) -> float:
        novelty = self.new / len(self.features) if self.features else 0.0
        return self.weight * novelty * SAME_MEMBER ** chosen_of[self.member]


class _Chooser:
    """Greedy: the best remaining passage, then what is left of the others is worth less.

    Scores only ever fall, so a heap with the scores of earlier rounds finds the best one without rescoring all.
    """

    def __init__(self, candidates: Sequence[_Candidate]) -> None:
        self._chosen_of: Counter[int] = Counter()
        self._holders: dict[_Feature, list[_Candidate]] = {}
        for candidate in candidates:
            candidate.new = len(candidate.features)
            for feature in candidate.features:
                self._holders.setdefault(feature, []).append(candidate)
        self._heap = [(-c.score(self._chosen_of), place, c) for place, c in enumerate(candidates)]
        heapq.heapify(self._heap)

    def __iter__(self) -> Iterator[_Candidate]:
        """Every passage that is not a repetition, best first. Say `take` for those that are used."""
        while self._heap:
            _, place, candidate = heapq.heappop(self._heap)
            if candidate.new < NOVELTY_MIN * len(candidate.features) or not candidate.features:
                continue
            score = -candidate.score(self._chosen_of)
            if self._heap and (score, place) > self._heap[0][:2]:
                heapq.heappush(self._heap, (score, place, candidate))
                continue
            yield candidate

    def take(self, candidate: _Candidate) -> None:
        self._chosen_of[candidate.member] += 1
        for feature in candidate.features:
            for holder in self._holders.pop(feature, ()):
                holder.new -= 1


def group_summary(
    members: Sequence[Sequence[Passage]], topics: frozenset[str], tokens: TokenRange, counter: TokenCounter
) -> tuple[Summary, tuple[Passage, ...]]:
    """The summary of a group, and its passages in the order they were chosen, best first.

    `members` are the candidates of each, heaviest first; `topics` the words that more of the members are about.
    """
    candidates = _candidates(_pool(members), topics, counter)
    target = min(tokens.at_most, max(tokens.at_least, sum(c.tokens for c in candidates) // GROUP_SHARE))
    chooser, left = _Chooser(candidates), target
    chosen: list[Passage] = []
    for candidate in chooser:
        if candidate.tokens <= (left if chosen else tokens.at_most):
            chooser.take(candidate)
            chosen.append(candidate.passage)
            left -= candidate.tokens + 1  # the separator
    return _fitted(chosen, tokens.at_most, counter), tuple(chosen)


def _fitted(chosen: list[Passage], at_most: int, counter: TokenCounter) -> Summary:
    """Joined texts may be some tokens more than their sum: then the last chosen go."""
    count = len(chosen)
    while True:
        passages = in_reading_order(chosen[:count])
        text = text_of(passages)
        size = counter.count(text)
        if size <= at_most or not count:
            return Summary(text, passages, size)
        count -= 1


def _pool(members: Sequence[Sequence[Passage]]) -> list[tuple[int, Passage]]:
    """The best of every member, then the second best and so on, until there are enough; no span twice."""
    pool: dict[tuple[str, int, int], tuple[int, Passage]] = {}
    for rank in range(max(map(len, members), default=0)):
        row = [(member, passages[rank]) for member, passages in enumerate(members) if rank < len(passages)]
        for member, passage in sorted(row, key=lambda pair: -pair[1].weight):
            if len(passage.text) <= POOL_CHARACTERS_MAX:
                pool.setdefault((passage.document, passage.span.start, passage.span.end), (member, passage))
            if len(pool) == POOL_MAX:
                return list(pool.values())
    return list(pool.values())


def _candidates(pool: Sequence[tuple[int, Passage]], topics: frozenset[str], counter: TokenCounter) -> list[_Candidate]:
    made = []
    for member, passage in pool:
        tokens, words, features = _measured(passage.text, counter)
        weight = passage.weight * (1 + _share(words, topics))
        made.append(_Candidate(passage, member, weight, tokens, features))
    return sorted(made, key=lambda c: (-c.weight, c.passage.document, c.passage.span))


@functools.lru_cache(maxsize=KNOWN_PASSAGES_MAX)
def _measured(text: str, counter: TokenCounter) -> tuple[int, list[str], tuple[_Feature, ...]]:
    """A passage's tokens, content words and features. A group changes little: most of its passages were here before."""
    words = _content_words(text)
    return counter.count(text), words, _features(words)


def forget_measures() -> None:
    _measured.cache_clear()


def _content_words(text: str) -> list[str]:
    stop = stopwords("en")
    return [token for token in tokens_of(lower(text)) if token not in stop and token[0].isalnum()]


def _features(words: list[str]) -> tuple[_Feature, ...]:
    """Pairs of neighbouring words: passages on one subject share words, those that repeat each other share pairs."""
    return tuple(dict.fromkeys(pairwise(words))) or tuple((word,) for word in words)


def _share(words: list[str], topics: frozenset[str]) -> float:
    return sum(word in topics for word in words) / len(words) if words else 0.0
