"""Candidates in their order: the best remaining one is picked, over and over, with what was picked before in mind.

    composite = relevance x its weight + importance x its weight + freshness x its weight + diversity x its weight

Diversity is that of the moment: of a community from which 40 % were picked already, no further fact gets a bonus. A
fact in no community is a community of its own: nothing else speaks for its subject, so it always gets the whole bonus.

A fact that is too similar to one that was kept is dropped when its turn comes, so of two the better one is kept. What
is dropped was not picked: it does not count for its community, whose other facts would pay for nothing otherwise. It
still counts as a candidate of it, since it was one.

The bonus of a community only ever falls, so the composites come out in falling order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date
from typing import Final

import numpy as np
import numpy.typing as npt

from drillcore_server.envelopes.model import SCORE_DIGITS, Candidate, Duplicate, Ranked, Ranking, Weights

WELL_REPRESENTED: Final = 0.40
"""The share of a community's candidates above which a further one adds no diversity."""
_UNITS: Final = 10**SCORE_DIGITS
_PICKED: Final = -1
"""In place of a score, which is never negative."""
_DOUBT: Final = 1e-4
"""More than single precision is ever wrong by: what is nearer to the limit than this is computed in double."""
_FEW: Final = 400
"""Up to so many are multiplied in this thread. BLAS would wake others and wait for them, on a busy machine for long."""

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


def rank(
    candidates: Sequence[Candidate],
    weights: Weights,
    today: date,
    duplicate_similarity: float,
    *,
    same_words: bool = False,
) -> Ranking:
    """All candidates, kept or dropped as duplicates, best first. Their order as given does not matter.

    With `same_words` only what says the same, word for word, is a duplicate: items of a list that share a long
    introduction are similar, and yet each says something of its own.

    Scores are rounded to 1e-6 before they are compared; of equal ones the smaller id comes first.
    """
    by_id = sorted(candidates, key=lambda one: one.id.int)
    if not by_id:
        return Ranking(())
    return _Picking(by_id, weights, today, _Likeness(by_id, duplicate_similarity, same_words=same_words)).run()


def age_days(candidate: Candidate, today: date) -> int:
    """Whole days (UTC) since a fact was ingested; 0 for one that comes from the future."""
    assert candidate.ingested_at.tzinfo is not None, "a time without a zone is another one on another machine"
    return max((today - candidate.ingested_at.astimezone(UTC).date()).days, 0)


def freshness(candidate: Candidate, weights: Weights, today: date) -> float:
    """From 1 for today's facts down to 0 at the horizon; 0 for stale ones."""
    if candidate.stale:
        return 0.0
    return max(0.0, 1.0 - age_days(candidate, today) / weights.horizon_days)


def diversity(picked: int, total: int) -> float:
    """The bonus of a fact whose community has so many candidates, of which so many were picked."""
    share = picked / total
    return 0.0 if share > WELL_REPRESENTED else 1.0 - share


@dataclass(slots=True)
class _Community:
    places: Places
    """Of its candidates."""
    picked: int = 0
    bonus: float = 1.0


class _Picking:
    """Scores lie in an array by the order of ids, so that the first greatest is the one with the smallest id.

    Picking changes the scores of one community only, and only until it is well represented.
    """

    def __init__(self, by_id: list[Candidate], weights: Weights, today: date, likeness: _Likeness) -> None:
        self._by_id = by_id
        self._weights = weights
        self._fresh = [freshness(one, weights, today) for one in by_id]
        self._base = _base_scores(by_id, self._fresh, weights)
        self._communities = _communities(by_id)
        self._scores = _rounded(self._base + 1.0 * weights.diversity)
        self._likeness = likeness

    def run(self) -> Ranking:
        kept: list[Ranked] = []
        duplicates: list[Duplicate] = []
        for _ in self._by_id:
            place = int(self._scores.argmax())
            ranked = self._ranked(place)
            self._scores[place] = _PICKED
            original = self._likeness.first_alike(place)
            if original is None:
                kept.append(ranked)
                self._likeness.keep(place)
                self._count(self._communities[place])
            else:
                duplicates.append(Duplicate(ranked, self._by_id[original].id))
        return Ranking(tuple(kept), tuple(duplicates))

    def _ranked(self, place: int) -> Ranked:
        return Ranked(
            self._by_id[place],
            composite=int(self._scores[place]) / _UNITS,
            freshness=round(self._fresh[place], SCORE_DIGITS),
            diversity=round(self._communities[place].bonus, SCORE_DIGITS),
        )

    def _count(self, community: _Community) -> None:
        community.picked += 1
        bonus = diversity(community.picked, len(community.places))
        if bonus == community.bonus:
            return
        community.bonus = bonus
        left = community.places[self._scores[community.places] != _PICKED]
        self._scores[left] = _rounded(self._base[left] + bonus * self._weights.diversity)


class _Likeness:
    """Which of the kept facts say the same as another. Vectors of different models are never compared."""

    def __init__(self, by_id: list[Candidate], limit: float, *, same_words: bool) -> None:
        self._by_id = by_id
        self._same_words = same_words
        self._limit = limit
        self._near = _near(by_id, limit - _DOUBT)
        self._order = np.full(len(by_id), len(by_id), np.int64)
        """When each was kept."""
        self._kept = 0

    def keep(self, place: int) -> None:
        self._order[place] = self._kept
        self._kept += 1

    def first_alike(self, place: int) -> int | None:
        """Of the kept facts that are too similar to this one, the best."""
        near = self._near.get(place)
        if near is None:
            return None
        kept = near[self._order[near] < len(self._by_id)]
        for other in kept[np.argsort(self._order[kept])].tolist():
            if self._are_alike(self._by_id[place], self._by_id[other]):
                return int(other)
        return None

    def _are_alike(self, one: Candidate, other: Candidate) -> bool:
        return (not self._same_words or one.content == other.content) and _cosine(one, other) > self._limit


def _base_scores(by_id: list[Candidate], fresh: list[float], weights: Weights) -> Floats:
    """The composite but for its diversity."""
    relevance = np.array([one.relevance for one in by_id], np.float64)
    importance = np.array([one.importance for one in by_id], np.float64)
    return np.asarray(
        relevance * weights.relevance + importance * weights.importance + np.array(fresh) * weights.freshness
    )


def _rounded(scores: Floats) -> Places:
    return np.rint(scores * _UNITS).astype(np.int64)


def _communities(by_id: list[Candidate]) -> list[_Community]:
    """Of each candidate; what is in none is alone in one of its own."""
    members: dict[object, list[int]] = {}
    for place, one in enumerate(by_id):
        members.setdefault(place if one.community is None else one.community, []).append(place)
    of_each: dict[int, _Community] = {}
    for places in members.values():
        of_each |= dict.fromkeys(places, _Community(np.array(places, np.int64)))
    return [of_each[place] for place in range(len(by_id))]


def _near(by_id: list[Candidate], limit: float) -> dict[int, Places]:
    """For each candidate that has any: the others of its model that may be too similar."""
    models: dict[str, list[int]] = {}
    for place, one in enumerate(by_id):
        models.setdefault(one.model, []).append(place)
    near: dict[int, Places] = {}
    for members in models.values():
        places = np.array(members, np.int64)
        rows = np.stack([by_id[place].vector for place in members]).astype(np.float32, copy=False)
        alike = _products(rows) > limit
        np.fill_diagonal(alike, False)
        for row in np.flatnonzero(alike.any(axis=1)).tolist():
            near[members[row]] = places[alike[row]]
    return near


def _products(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Of each with each."""
    return np.asarray(np.einsum("ik,jk->ij", rows, rows) if len(rows) <= _FEW else rows @ rows.T)


def _cosine(one: Candidate, other: Candidate) -> float:
    """In double precision and rounded, so that it does not depend on what else was computed with it."""
    product = float(one.vector.astype(np.float64) @ other.vector.astype(np.float64))
    return min(round(product, SCORE_DIGITS), 1.0)
