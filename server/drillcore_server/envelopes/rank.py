"""Ranks candidates: picks the best remaining candidate again and again.

    composite = relevance x its weight + importance x its weight + freshness x its weight + diversity x its weight

Diversity depends on what was picked before. The bonus falls with the share of a fact's community that was picked, and
is 0 above 40 %. A fact without a community counts as a community of its own and always gets the whole bonus, because
nothing else speaks for its subject.

A fact that is too similar to a picked fact is dropped when its turn comes, so the better of the two stays. A dropped
fact does not count as picked, so it does not lower the bonus of its community. It still counts as one of the
community's candidates.

The bonus of a community never rises, so the composites come out in falling order.
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
"""The share of a community's candidates that may be picked before a further one adds no diversity."""
_UNITS: Final = 10**SCORE_DIGITS
_PICKED: Final = -1
"""Replaces the score of a picked candidate. Scores are never negative."""
_TOLERANCE: Final = 1e-4
"""More than any error of single precision. Cosines this close to the limit are computed again in double precision."""
_FEW: Final = 400
"""Up to this many vectors are multiplied in this thread. BLAS would wait for other threads, long on a busy machine."""

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
    """Returns all candidates, kept or dropped as duplicates, best first. Their given order does not matter.

    With `same_words`, only a candidate with the same text is a duplicate. Items of a list that share a long
    introduction have similar vectors, although each says something different.

    Scores are rounded to 1e-6 before they are compared. Of equal scores, the smaller id comes first.
    """
    by_id = sorted(candidates, key=lambda candidate: candidate.id.int)
    if not by_id:
        return Ranking(())
    return _Picker(by_id, weights, today, _KeptFacts(by_id, duplicate_similarity, same_words=same_words)).run()


def age_days(candidate: Candidate, today: date) -> int:
    """Returns the whole days (UTC) since a fact was ingested; 0 for a time in the future."""
    assert candidate.ingested_at.tzinfo is not None, "a time without a zone differs between machines"
    return max((today - candidate.ingested_at.astimezone(UTC).date()).days, 0)


def freshness(candidate: Candidate, weights: Weights, today: date) -> float:
    """Returns 1 for today's facts, falling to 0 at the horizon; 0 for stale facts."""
    if candidate.stale:
        return 0.0
    return max(0.0, 1.0 - age_days(candidate, today) / weights.horizon_days)


def diversity(picked: int, total: int) -> float:
    """Returns the bonus of a fact in a community with `total` candidates, `picked` of which were picked."""
    share = picked / total
    return 0.0 if share > WELL_REPRESENTED else 1.0 - share


@dataclass(slots=True)
class _Community:
    places: Places
    """The places of its candidates."""
    picked: int = 0
    bonus: float = 1.0


class _Picker:
    """Picks from an array of scores in the order of ids, so that of equal scores the smallest id comes first.

    Picking changes the scores of one community only, and only until it is well represented.
    """

    def __init__(self, by_id: list[Candidate], weights: Weights, today: date, kept_facts: _KeptFacts) -> None:
        self._by_id = by_id
        self._weights = weights
        self._fresh = [freshness(candidate, weights, today) for candidate in by_id]
        self._base = _base_scores(by_id, self._fresh, weights)
        self._communities = _communities(by_id)
        self._scores = _rounded(self._base + 1.0 * weights.diversity)
        self._kept_facts = kept_facts

    def run(self) -> Ranking:
        kept: list[Ranked] = []
        duplicates: list[Duplicate] = []
        for _ in self._by_id:
            place = int(self._scores.argmax())
            ranked = self._ranked(place)
            self._scores[place] = _PICKED
            original = self._kept_facts.best_duplicate(place)
            if original is None:
                kept.append(ranked)
                self._kept_facts.keep(place)
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


class _KeptFacts:
    """The facts that were picked, to find duplicates among them. Vectors of different models are never compared."""

    def __init__(self, by_id: list[Candidate], limit: float, *, same_words: bool) -> None:
        self._by_id = by_id
        self._same_words = same_words
        self._limit = limit
        self._near = _near(by_id, limit - _TOLERANCE)
        self._order = np.full(len(by_id), len(by_id), np.int64)
        """The order in which candidates were kept."""
        self._kept = 0

    def keep(self, place: int) -> None:
        self._order[place] = self._kept
        self._kept += 1

    def best_duplicate(self, place: int) -> int | None:
        """Returns the best kept fact that is too similar to a candidate; None if there is none."""
        near = self._near.get(place)
        if near is None:
            return None
        kept = near[self._order[near] < len(self._by_id)]
        for other in kept[np.argsort(self._order[kept])].tolist():
            if self._are_duplicates(self._by_id[place], self._by_id[other]):
                return int(other)
        return None

    def _are_duplicates(self, first: Candidate, second: Candidate) -> bool:
        return (not self._same_words or first.content == second.content) and _cosine(first, second) > self._limit


def _base_scores(by_id: list[Candidate], fresh: list[float], weights: Weights) -> Floats:
    """Returns the composites without diversity."""
    relevance = np.array([candidate.relevance for candidate in by_id], np.float64)
    importance = np.array([candidate.importance for candidate in by_id], np.float64)
    return np.asarray(
        relevance * weights.relevance + importance * weights.importance + np.array(fresh) * weights.freshness
    )


def _rounded(scores: Floats) -> Places:
    return np.rint(scores * _UNITS).astype(np.int64)


def _communities(by_id: list[Candidate]) -> list[_Community]:
    """Returns the community of each candidate. A candidate without one gets a community of its own."""
    members: dict[object, list[int]] = {}
    for place, candidate in enumerate(by_id):
        members.setdefault(place if candidate.community is None else candidate.community, []).append(place)
    of_each: dict[int, _Community] = {}
    for places in members.values():
        of_each |= dict.fromkeys(places, _Community(np.array(places, np.int64)))
    return [of_each[place] for place in range(len(by_id))]


def _near(by_id: list[Candidate], limit: float) -> dict[int, Places]:
    """Returns, by place, the other candidates of the same model that may be too similar. Omits places without any."""
    models: dict[str, list[int]] = {}
    for place, candidate in enumerate(by_id):
        models.setdefault(candidate.model, []).append(place)
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
    """Returns the inner products of all pairs of rows."""
    return np.asarray(np.einsum("ik,jk->ij", rows, rows) if len(rows) <= _FEW else rows @ rows.T)


def _cosine(first: Candidate, second: Candidate) -> float:
    """Returns the cosine in double precision, rounded: the same bits whatever else is computed with it."""
    product = float(first.vector.astype(np.float64) @ second.vector.astype(np.float64))
    return min(round(product, SCORE_DIGITS), 1.0)
