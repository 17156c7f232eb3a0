"""Chooses the passages of summaries: for a chunk by weight, for a group by weight, coverage and novelty."""

from __future__ import annotations

import functools
import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from drillcore_server.documents.processors.keywords import lower, stopwords, tokens_of
from drillcore_server.documents.processors.processor import TokenRange
from drillcore_server.documents.processors.sentences import Unit
from drillcore_server.hierarchy.digests import Passage, Summary
from drillcore_server.tokenizers.encodings import TokenCounter

CHUNK_SHARE: Final = 4
"""A chunk's summary has at most this fraction of the chunk's characters: a quarter."""
CHUNK_WEIGHT_MIN: Final = 0.4
"""Units below this share of the best unit's weight are left out. Headings and labels would only pad a summary."""
GROUP_SHARE: Final = 3
"""A group's summary has about this fraction of the tokens of its pool, within its range: a third."""
POOL_MAX: Final = 512
"""The number of passages that a group's summary is chosen from. It bounds the cost for groups of any size."""
POOL_CHARACTERS_MAX: Final = 2000
"""Longer passages are not in the pool. The built-in processor makes none, but others may."""
KNOWN_PASSAGES_MAX: Final = 2048
"""The number of passages whose measures stay in memory: enough for the master and dozens of sections."""
NOVELTY_MIN: Final = 0.3
"""A passage with a smaller share of new features only repeats the chosen passages."""
SAME_MEMBER: Final = 0.85
"""Each passage chosen from a member multiplies the scores of its other passages by this, so that all members count."""
SEPARATOR: Final = "\n"

_Feature = tuple[str, ...]


def in_reading_order(passages: Sequence[Passage]) -> tuple[Passage, ...]:
    return tuple(sorted(passages, key=lambda passage: (passage.document, passage.span)))


def text_of(passages: Sequence[Passage]) -> str:
    return SEPARATOR.join([passage.text for passage in passages])


def chunk_summary(characters: int, found: Sequence[Unit], weights: Sequence[float], ranked: Sequence[int]) -> list[int]:
    """Returns the places of the heaviest units that fit into a quarter of the chunk, in reading order.

    The best unit is always among them. The specification asks for summaries of 500 to 2,000 tokens, which is more than
    a whole chunk has.
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
    """The number of its features that no chosen passage has."""

    def score(self, chosen_of: Counter[int]) -> float:
        novelty = self.new / len(self.features) if self.features else 0.0
        return self.weight * novelty * SAME_MEMBER ** chosen_of[self.member]


class _Chooser:
    """Chooses greedily: takes the best remaining passage, then lowers the scores of passages that repeat it.

    Scores only fall. So a heap of earlier scores finds the best passage without scoring all passages again.
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
        """Yields the passages that do not repeat chosen ones, best first. Call `take` for each passage that is used."""
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
    """Returns the summary of a group, and the chosen passages, best first.

    `members` are the candidates of each member, heaviest first. `topics` are words that several members are about.
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
    """Drops the last chosen passages until the joined text fits: it may have more tokens than its parts together."""
    count = len(chosen)
    while True:
        passages = in_reading_order(chosen[:count])
        text = text_of(passages)
        size = counter.count(text)
        if size <= at_most or not count:
            return Summary(text, passages, size)
        count -= 1


def _pool(members: Sequence[Sequence[Passage]]) -> list[tuple[int, Passage]]:
    """Takes the best passage of every member, then the second best, and so on, until there are enough.

    No span comes twice.
    """
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
    """Returns a passage's tokens, content words and features. Cached, since most passages of a group come again."""
    words = _content_words(text)
    return counter.count(text), words, _features(words)


def forget_measures() -> None:
    """Drops all passages from the cache of this process."""
    _measured.cache_clear()


def _content_words(text: str) -> list[str]:
    stop = stopwords("en")
    return [token for token in tokens_of(lower(text)) if token not in stop and token[0].isalnum()]


def _features(words: list[str]) -> tuple[_Feature, ...]:
    """Returns pairs of neighbouring words. Passages on one subject share words, but only repetitions share pairs."""
    return tuple(dict.fromkeys(pairwise(words))) or tuple((word,) for word in words)


def _share(words: list[str], topics: frozenset[str]) -> float:
    return sum(word in topics for word in words) / len(words) if words else 0.0
