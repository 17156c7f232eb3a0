"""Ranking: what each part of the score does, which duplicates are dropped, and how equal scores are ordered."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pytest

from drillcore_server.envelopes.model import Candidate, Ranking, Weights
from drillcore_server.envelopes.rank import age_days, diversity, freshness, rank
from tests.support.data.envelope_candidates import TODAY, at_angle, axis, candidate, community, fact_id

DEFAULT = Weights(0.50, 0.25, 0.15, 0.10, 365)
RELEVANCE = Weights(1.0, 0.0, 0.0, 0.0, 365)
RELEVANCE_AND_DIVERSITY = Weights(0.5, 0.0, 0.0, 0.5, 365)


def ranking(*candidates: Candidate, weights: Weights = DEFAULT, duplicate_similarity: float = 0.95) -> Ranking:
    return rank(candidates, weights, TODAY, duplicate_similarity)


def order(given: Ranking) -> list[int]:
    return [ranked.candidate.id.int for ranked in given.kept]


def dropped(given: Ranking) -> list[tuple[int, int]]:
    return [(duplicate.ranked.candidate.id.int, duplicate.of.int) for duplicate in given.duplicates]


def test_nothing_to_rank_is_an_empty_ranking() -> None:
    assert ranking() == Ranking((), ())


def test_the_composite_is_the_weighted_sum_of_its_four_parts() -> None:
    (only,) = ranking(candidate(1, 0.8, importance=0.6, days_old=73)).kept
    assert only.freshness == 0.8
    assert only.diversity == 1.0
    assert only.composite == pytest.approx(0.8 * 0.50 + 0.6 * 0.25 + 0.8 * 0.15 + 1.0 * 0.10, abs=5e-7)


@pytest.mark.parametrize(
    ("days", "horizon", "fresh"),
    [
        (0, 365, 1.0),
        (1, 365, 1 - 1 / 365),
        (365, 365, 0.0),
        (400, 365, 0.0),
        (45, 90, 0.5),
        (90, 90, 0.0),
        (-3, 90, 1.0),
    ],
)
def test_freshness_falls_to_nothing_at_the_horizon(days: int, horizon: int, fresh: float) -> None:
    weights = Weights(0.5, 0.25, 0.15, 0.1, horizon)
    assert freshness(candidate(1, days_old=days), weights, TODAY) == fresh


def test_stale_facts_have_no_freshness() -> None:
    assert freshness(candidate(1, stale=True), DEFAULT, TODAY) == 0.0


def test_age_is_counted_in_whole_days_of_utc() -> None:
    late = datetime(2026, 5, 23, 23, 59, 59, tzinfo=UTC)
    assert age_days(candidate(1, ingested_at=late), date(2026, 5, 24)) == 1
    west = datetime(2026, 5, 23, 20, 0, tzinfo=timezone(timedelta(hours=-5)))
    assert age_days(candidate(1, ingested_at=west), date(2026, 5, 24)) == 0


@pytest.mark.parametrize(
    ("picked", "total", "bonus"),
    [(0, 1, 1.0), (0, 5, 1.0), (1, 5, 0.8), (2, 5, 0.6), (3, 5, 0.0), (1, 2, 0.0), (4, 10, 0.6)],
)
def test_a_community_that_is_well_represented_gets_no_bonus(picked: int, total: int, bonus: float) -> None:
    assert diversity(picked, total) == bonus


def test_diversity_is_counted_while_picking() -> None:
    big = [candidate(number, 0.9, community=community(1)) for number in (1, 2, 3)]
    small = candidate(4, 0.5, community=community(2))
    given = ranking(*big, small, weights=RELEVANCE_AND_DIVERSITY)
    assert order(given) == [1, 2, 4, 3]
    assert [ranked.diversity for ranked in given.kept] == [1.0, pytest.approx(2 / 3, abs=1e-6), 1.0, 0.0]
    assert [ranked.composite for ranked in given.kept] == [0.95, 0.783333, 0.75, 0.45]


def test_facts_in_no_community_are_each_a_community_of_their_own() -> None:
    given = ranking(*(candidate(number, 0.9) for number in (1, 2, 3)), weights=RELEVANCE_AND_DIVERSITY)
    assert [ranked.diversity for ranked in given.kept] == [1.0, 1.0, 1.0]


def test_equal_scores_go_to_the_smaller_id() -> None:
    many = [candidate(number, 0.7) for number in range(1, 30)]
    random.Random(1).shuffle(many)
    assert order(ranking(*many)) == list(range(1, 30))


def test_scores_are_rounded_before_they_are_compared() -> None:
    assert order(ranking(candidate(1, 0.700_000_1), candidate(2, 0.700_000_4), weights=RELEVANCE)) == [1, 2]
    assert order(ranking(candidate(1, 0.700_001), candidate(2, 0.700_003), weights=RELEVANCE)) == [2, 1]


def test_the_better_of_two_duplicates_is_kept() -> None:
    worse, better = candidate(1, 0.6, vector=axis(0)), candidate(2, 0.8, vector=at_angle(0.97))
    given = ranking(worse, better)
    assert order(given) == [2]
    assert dropped(given) == [(1, 2)]


@pytest.mark.parametrize(
    ("cosine", "limit", "same"), [(0.951, 0.95, True), (0.949, 0.95, False), (0.950_03, 0.95, True), (0.81, 0.8, True)]
)
def test_only_above_the_limit_are_facts_duplicates(cosine: float, limit: float, same: bool) -> None:
    given = ranking(candidate(1, vector=axis(0)), candidate(2, vector=at_angle(cosine)), duplicate_similarity=limit)
    assert bool(given.duplicates) is same


def test_exactly_at_the_limit_facts_are_not_duplicates() -> None:
    at = np.zeros(64, np.float32)
    at[:2] = 0.6, 0.8
    given = ranking(candidate(1, vector=axis(0)), candidate(2, vector=at), duplicate_similarity=0.6)
    assert not given.duplicates


def test_with_a_limit_of_1_nothing_is_a_duplicate() -> None:
    long = axis(0) * np.float32(1.001)
    given = ranking(candidate(1, vector=long), candidate(2, vector=long), duplicate_similarity=1.0)
    assert order(given) == [1, 2]


def test_a_fact_like_a_dropped_duplicate_but_unlike_every_kept_fact_is_kept() -> None:
    first, between, third = candidate(1, 0.9, vector=axis(0)), candidate(2, 0.8, vector=at_angle(0.96)), at_angle(0.85)
    assert float(between.vector @ third) > 0.95
    given = ranking(first, between, candidate(3, 0.7, vector=third))
    assert order(given) == [1, 3]
    assert dropped(given) == [(2, 1)]


def test_a_duplicate_names_the_best_fact_that_it_is_like() -> None:
    middle = at_angle(0.97)
    other_vector = at_angle(0.89)
    given = ranking(
        candidate(1, 0.7, vector=axis(0)), candidate(2, 0.9, vector=other_vector), candidate(3, 0.5, vector=middle)
    )
    assert dropped(given) == [(3, 2)]


def test_vectors_of_different_models_are_never_compared() -> None:
    of_other_model = candidate(2, vector=np.ones(3, np.float32) / np.float32(3**0.5), model="other")
    same = candidate(3, vector=axis(1), model="third")
    assert order(ranking(candidate(1, vector=axis(1)), of_other_model, same)) == [1, 2, 3]


def test_a_dropped_duplicate_does_not_count_for_its_community() -> None:
    """If the duplicate counted, 2 of 4 facts would be picked and fact 3 would get no bonus."""
    facts = [candidate(number, 0.9 - number / 100, community=community(1)) for number in range(1, 5)]
    facts[1] = candidate(2, 0.88, community=community(1), vector=facts[0].vector)
    given = ranking(*facts, weights=RELEVANCE_AND_DIVERSITY)
    assert dropped(given) == [(2, 1)]
    assert [(ranked.candidate.id, ranked.diversity) for ranked in given.kept] == [
        (fact_id(1), 1.0),
        (fact_id(3), 0.75),
        (fact_id(4), 0.0),
    ]
