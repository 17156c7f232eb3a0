"""Finds the facts of one revision of a corpus by their words.

An index is a state that never changes: some segments, and which of their facts belong to it. The next state shares the
segments and adds one. Small segments are merged, so that there are few; facts that are gone are removed once they are a
fifth of all. A search counts only the state's own facts: the same facts have the same scores, whatever there was
before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import islice
from typing import Final
from uuid import UUID

import numpy as np
import numpy.typing as npt

from drillcore_server.facts.lexical.levels import Found, Matches, Scores, Sizes
from drillcore_server.facts.lexical.relevance import WordShares, by_words
from drillcore_server.facts.lexical.segments import (
    FACT,
    Labels,
    Mask,
    PlaceNumbers,
    Postings,
    Records,
    Segment,
    Terms,
    as_ids,
    id_bytes,
)
from drillcore_server.facts.words import Question, Term, question
from drillcore_server.storage.ids import FactId, NodeId

_BATCH: Final = 100_000
"""Facts that are put into arrays at once."""
_GONE_SHARE_MAX: Final = 0.2
_GONE_MIN: Final = 256
"""Fewer facts that are gone are not worth removing."""
_SEGMENTS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class _Part:
    segment: Segment
    mask: Mask
    """True for the facts that belong to the state."""

    @property
    def count(self) -> int:
        return int(np.count_nonzero(self.mask))

    @classmethod
    def whole(cls, segment: Segment) -> _Part:
        return cls(segment, np.ones(len(segment), np.bool_))

    def found(self, terms: Terms, postings: Postings) -> tuple[Labels, Records]:
        """Returns where terms are in its own facts."""
        places, found = postings.of_terms(terms)
        there = self.mask[found["label"]]
        return (places, found) if there.all() else (places[there], found[there])

    def without(self, ids: npt.NDArray[np.bytes_]) -> _Part:
        labels = self.segment.labels_of(ids)
        if not self.mask[labels].any():
            return self
        mask = self.mask.copy()
        mask[labels] = False
        return _Part(self.segment, mask)


class LexicalIndex:
    def __init__(self, parts: Sequence[_Part], places: PlaceNumbers) -> None:
        self._parts = tuple(parts)
        self._places = places

    @classmethod
    def of(cls, items: Iterable[tuple[FactId, bytes]]) -> LexicalIndex:
        """Makes an index of facts, each once, with their words as they are stored."""
        remaining, places = iter(items), PlaceNumbers.empty()
        parts: list[_Part] = []
        while batch := dict(islice(remaining, _BATCH)):
            parts.append(_Part.whole(Segment.of(batch, places)))
        return cls([_joined(parts)] if parts else [], places)

    def changed(self, words: Mapping[FactId, bytes | None]) -> LexicalIndex:
        """Returns the next state with the present words of these facts; None for one that is gone."""
        ids = as_ids(words)
        parts = [part.without(ids) for part in self._parts]
        fresh = {fact: found for fact, found in words.items() if found is not None}
        if fresh:
            parts.append(_Part.whole(Segment.of(fresh, self._places)))
        if _are_many_gone(parts):
            return _compacted(parts, self._places)
        return LexicalIndex(_few(parts), self._places)

    def __len__(self) -> int:
        return sum(part.count for part in self._parts)

    def __contains__(self, fact: FactId) -> bool:
        ids = as_ids([fact])
        return any(part.mask[part.segment.labels_of(ids)].any() for part in self._parts)

    @cached_property
    def facts(self) -> Records:
        """Its facts, and some that are gone: see `mask`. A label is a place in this array."""
        return np.concatenate([np.zeros(0, FACT), *(part.segment.facts for part in self._parts)])

    @cached_property
    def mask(self) -> Mask:
        return np.concatenate([np.zeros(0, np.bool_), *(part.mask for part in self._parts)])

    def labels(self, facts: Collection[FactId]) -> Labels:
        """Returns the sorted labels of those facts that belong to it."""
        ids, offset = as_ids(facts), 0
        found: list[Labels] = []
        for part in self._parts:
            labels = part.segment.labels_of(ids)
            found.append(labels[part.mask[labels]] + offset)
            offset += len(part.segment)
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def ids(self, labels: Labels) -> list[FactId]:
        return [FactId(UUID(bytes=id_)) for id_ in id_bytes(self.facts["id"][labels])]

    @cached_property
    def sizes(self) -> Sizes:
        """The lengths of its facts, passages, chunks and documents."""
        return Sizes.of(self.facts, self.mask, self._places)

    def matches(self, asked: Question) -> Matches | None:
        """Returns where the words of a question are, in texts of every level; None if there are no facts or
        no words."""
        if not self._parts or not asked.terms:
            return None
        words = self._found(asked.terms, lambda segment: segment.words)
        pairs = self._found(asked.pairs, lambda segment: segment.pairs)
        return Matches.of(asked, words, pairs, self.facts, self.sizes)

    def _found(self, terms: Sequence[Term], postings_of: Callable[[Segment], Postings]) -> Found:
        """Returns the place of each term among those asked for, and where it is among the state's own facts."""
        wanted = np.array(terms, np.uint32)
        found = [part.found(wanted, postings_of(part.segment)) for part in self._parts]
        offset = 0
        for part, (_, records) in zip(self._parts, found, strict=True):
            records["label"] += offset
            offset += len(part.segment)
        return Found(np.concatenate([places for places, _ in found]), np.concatenate([records for _, records in found]))

    def shares(self, asked: Question, labels: Labels | None = None) -> WordShares:
        """Returns how much of a question words answer, for all labels or for some, in the terms of the
        scoring policy."""
        chosen = self.facts if labels is None else self.facts[labels]
        matches = self.matches(asked)
        if matches is None:
            return WordShares(*(np.zeros(len(chosen)) for _ in fields(WordShares)))
        own = matches.facts.scores()
        return WordShares(
            fact=own if labels is None else own[labels],
            chunk=matches.chunks.scores(headings=True, title=True)[chosen["chunk"]],
            document=matches.documents.scores(title=True)[chosen["document"]],
            title=matches.documents.title_shares()[chosen["document"]],
            passage_pairs=matches.passage_pairs.scores()[chosen["passage"]],
            chunk_pairs=matches.chunk_pairs.scores()[chosen["chunk"]],
        )

    def search(self, text: str, k: int, allowed: Collection[FactId] | None = None) -> list[tuple[FactId, float]]:
        """Returns the `k` facts that answer a text best by words, among those allowed; equal ones by their ids.

        The score is what words contribute to `fused-1`. A fact also scores if only its surroundings have the words.
        """
        asked = question(text)
        return list(self.ranking(self.shares(asked), k, allowed)) if asked.terms else []

    def ranking(
        self, shares: WordShares, k: int, allowed: Collection[FactId] | None = None
    ) -> Iterator[tuple[FactId, float]]:
        """The same for the shares of all labels. Makes ids on demand."""
        if not len(self) or k < 1:
            return iter(())
        scores = np.where(self.mask, by_words(shares), 0)
        labels = np.flatnonzero(scores)
        if allowed is not None:
            labels = np.intersect1d(labels, self.labels(allowed))
        return self._best(labels, scores[labels], k)

    def facts_of(self, chunks: Iterable[NodeId]) -> list[FactId]:
        """Returns the facts that were drawn from these chunks."""
        order, numbers = self._by_chunk
        wanted = self._places.chunk.known(chunk.bytes for chunk in chunks)
        begins, ends = (np.searchsorted(numbers, wanted, side) for side in ("left", "right"))
        runs = [order[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        labels = np.concatenate([order[:0], *runs])
        return self.ids(labels[self.mask[labels]])

    @cached_property
    def _by_chunk(self) -> tuple[Labels, npt.NDArray[np.int32]]:
        """Labels sorted by their chunks, and those chunks."""
        order = np.argsort(self.facts["chunk"], kind="stable")
        return order, self.facts["chunk"][order]

    def inside(self, place: str, numbers: Labels) -> Labels:
        """Returns the labels of its facts in passages, chunks or documents with these numbers."""
        if not len(self):
            return np.zeros(0, np.int64)
        wanted = np.zeros(int(max(self.facts[place].max(), numbers.max(initial=0))) + 1, np.bool_)
        wanted[numbers] = True
        return np.flatnonzero(self.mask & wanted[self.facts[place]])

    def chunk_ids(self, numbers: Labels) -> list[UUID]:
        """Returns the ids of chunks; for a fact without a chunk, the id of the fact."""
        return [UUID(bytes=name) for name in self._places.chunk.names(numbers)]

    def _best(self, labels: Labels, scores: Scores, k: int) -> Iterator[tuple[FactId, float]]:
        """Returns the `k` facts with the highest scores, which are already rounded; equal ones by their ids."""
        if len(labels) > k:
            chosen = scores >= np.partition(scores, len(scores) - k)[len(scores) - k]
            labels, scores = labels[chosen], scores[chosen]
        order = np.lexsort((self.facts["id"][labels], -scores))[:k]
        ids = (FactId(UUID(bytes=id_)) for id_ in id_bytes(self.facts["id"][labels[order]]))
        return zip(ids, scores[order].tolist(), strict=True)


def _joined(parts: Sequence[_Part]) -> _Part:
    return parts[0] if len(parts) == 1 else _Part.whole(Segment.joined([(part.segment, part.mask) for part in parts]))


def _few(parts: list[_Part]) -> list[_Part]:
    """Merges segments geometrically: O(log n) rewrites per fact."""
    parts = [part for part in parts if part.count]
    while len(parts) > 1 and (2 * len(parts[-1].segment) > len(parts[-2].segment) or len(parts) > _SEGMENTS_MAX):
        parts[-2:] = [_joined(parts[-2:])]
    return parts


def _are_many_gone(parts: Sequence[_Part]) -> bool:
    size = sum(len(part.segment) for part in parts)
    gone = size - sum(part.count for part in parts)
    return gone > max(size * _GONE_SHARE_MAX, _GONE_MIN)


def _compacted(parts: Sequence[_Part], places: PlaceNumbers) -> LexicalIndex:
    """Removes everything that is gone."""
    left = [part for part in parts if part.count]
    if not left:
        return LexicalIndex((), PlaceNumbers.empty())
    segment = Segment.joined([(part.segment, part.mask) for part in left])
    fresh, numbers = places.among(segment.facts)
    return LexicalIndex([_Part.whole(segment.renumbered(numbers))], fresh)
