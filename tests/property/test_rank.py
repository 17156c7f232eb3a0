"""Ranking against a plain model, which looks at all remaining candidates for each one that it picks."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from drillcore_server.envelopes.model import Candidate, Weights
from drillcore_server.envelopes.rank import rank
from tests.support.data.envelope_candidates import NOON, TODAY, candidate, community

SHARE = st.floats(0, 1).map(lambda value: round(value, 6)) | st.sampled_from([0.0, 0.5, 0.9, 1.0])


@st.composite
def candidates(draw: st.DrawFn) -> list[Candidate]:
    """Few directions, so that many candidates say the same; few communities and round numbers, so that many tie."""
    count = draw(st.integers(0, 25))
    return [
        candidate(
            number,
            draw(SHARE),
            importance=draw(SHARE),
            ingested_at=NOON - timedelta(hours=draw(st.integers(-48, 24 * 500))),
            stale=draw(st.booleans()),
            community=draw(st.sampled_from([None, *map(community, range(3))])),
            vector=_direction(draw(st.integers(0, 12))),
            model=draw(st.sampled_from(["one", "other"])),
        )
        for number in draw(st.permutations(range(1, count + 1)))
    ]


def _direction(seed: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    vector = np.random.default_rng(seed).standard_normal(3)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


@st.composite
def any_weights(draw: st.DrawFn) -> Weights:
    given = draw(st.tuples(SHARE, SHARE, SHARE, SHARE).filter(any))
    relevance, importance, fresh, diverse = (weight / sum(given) for weight in given)
    return Weights(relevance, importance, fresh, diverse, draw(st.integers(1, 400)))


def plain_rank(
    given: list[Candidate], weights: Weights, duplicate_similarity: float
) -> tuple[list[tuple[int, float]], list[tuple[int, float, int]]]:
    """The specification's sections 6.2 to 6.6, taken literally, with the decisions 6 to 9."""
    community_total = Counter(fact.community for fact in given)
    community_count: Counter[object] = Counter()

    def composite_score(fact: Candidate) -> int:
        age_days = max(0, (TODAY - fact.ingested_at.date()).days)
        freshness_score = 0.0 if fact.stale else max(0.0, 1.0 - (age_days / weights.horizon_days))
        count, total = community_count[fact.community], community_total[fact.community]
        if fact.community is None:
            count, total = 0, 1
        diversity_bonus = 0.0 if count / total > 0.40 else 1.0 - (count / total)
        score = (
            fact.relevance * weights.relevance
            + fact.importance * weights.importance
            + freshness_score * weights.freshness
            + diversity_bonus * weights.diversity
        )
        return round(score * 1e6)

    def cosine(left: Candidate, right: Candidate) -> float:
        return round(float(np.dot(left.vector.astype(np.float64), right.vector.astype(np.float64))), 6)

    remaining, kept, scores, duplicates = list(given), list[Candidate](), list[float](), []
    while remaining:
        best = min(remaining, key=lambda fact: (-composite_score(fact), fact.id))
        remaining.remove(best)
        score = composite_score(best) / 1e6
        same = [
            fact for fact in kept if fact.model == best.model and min(cosine(fact, best), 1.0) > duplicate_similarity
        ]
        if same:
            duplicates.append((best.id.int, score, same[0].id.int))
        else:
            kept.append(best)
            scores.append(score)
            community_count[best.community] += 1
    return [(fact.id.int, score) for fact, score in zip(kept, scores, strict=True)], duplicates


@settings(max_examples=300, deadline=None)
@given(candidates(), any_weights(), SHARE)
def test_ranking_is_that_of_the_plain_model(given: list[Candidate], weights: Weights, limit: float) -> None:
    ranking = rank(given, weights, TODAY, limit)
    kept, duplicates = plain_rank(given, weights, limit)
    assert [(ranked.candidate.id.int, ranked.composite) for ranked in ranking.kept] == kept
    assert [
        (duplicate.ranked.candidate.id.int, duplicate.ranked.composite, duplicate.of.int)
        for duplicate in ranking.duplicates
    ] == duplicates


@settings(max_examples=100, deadline=None)
@given(candidates(), any_weights(), SHARE, st.randoms(use_true_random=False))
def test_the_order_of_the_candidates_does_not_matter(
    given: list[Candidate], weights: Weights, limit: float, chance: random.Random
) -> None:
    mixed = list(given)
    chance.shuffle(mixed)
    assert rank(given, weights, TODAY, limit) == rank(mixed, weights, TODAY, limit)


@settings(max_examples=100, deadline=None)
@given(candidates(), any_weights(), SHARE)
def test_nothing_is_lost_and_scores_fall(given: list[Candidate], weights: Weights, limit: float) -> None:
    ranking = rank(given, weights, TODAY, limit)
    everything = [*ranking.kept, *(duplicate.ranked for duplicate in ranking.duplicates)]
    assert sorted(ranked.candidate.id for ranked in everything) == sorted(fact.id for fact in given)
    for taken in (ranking.kept, [duplicate.ranked for duplicate in ranking.duplicates]):
        composites = [ranked.composite for ranked in taken]
        assert composites == sorted(composites, reverse=True)
        assert all(0 <= ranked.composite <= 1.000_001 for ranked in taken)


@settings(max_examples=100, deadline=None)
@given(candidates(), any_weights(), SHARE)
def test_kept_facts_are_all_different(given: list[Candidate], weights: Weights, limit: float) -> None:
    """When the kept facts are ranked again by themselves, none of them is dropped."""
    kept = [ranked.candidate for ranked in rank(given, weights, TODAY, limit).kept]
    again = rank([replace(fact, community=None) for fact in kept], weights, TODAY, limit)
    assert not again.duplicates
