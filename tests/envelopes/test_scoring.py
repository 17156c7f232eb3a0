"""What the parts of a score weigh, and which settings and requests are refused."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_proto.reasons import Reason
from drillcore_server.envelopes.model import GroundingMode, Weights
from drillcore_server.envelopes.scoring import (
    CANDIDATES_PER_QUERY_MAX,
    COSINE,
    FUSED,
    HORIZON_DAYS_MAX,
    WEIGHT_MAX,
    ScoringAsked,
    ScoringSettings,
    scoring,
    weights,
)
from drillcore_server.kernel.errors import BadInput

STRICT, PREFERRED, OPEN = GroundingMode.CONTEXT_STRICT, GroundingMode.CONTEXT_PREFERRED, GroundingMode.OPEN
NOTHING = ScoringAsked()
LITERAL = ScoringSettings(policy=COSINE)
TABLE = [
    (PREFERRED, False, (0.50, 0.25, 0.15, 0.10), 365),
    (PREFERRED, True, (0.40, 0.25, 0.25, 0.10), 90),
    (STRICT, False, (0.50, 0.35, 0.15, 0.10), 365),
    (STRICT, True, (0.40, 0.35, 0.25, 0.10), 90),
    (OPEN, False, (0.35, 0.15, 0.15, 0.10), 365),
    (OPEN, True, (0.35, 0.15, 0.25, 0.10), 90),
]
WRONG = {
    "relevance_weight": [-0.1, math.nan, math.inf, -math.inf, WEIGHT_MAX * 2],
    "importance_weight": [-1.0, math.nan],
    "freshness_weight": [-1.0, math.nan],
    "diversity_weight": [-1.0, math.nan],
    "relevance_floor": [-0.01, 1.01, math.nan],
    "duplicate_similarity": [-0.01, 1.01, math.nan],
    "freshness_horizon_days": [0, -1, HORIZON_DAYS_MAX + 1],
    "candidates_per_query": [0, -1, CANDIDATES_PER_QUERY_MAX + 1],
    "policy": ["", "cosine", "COSINE-1", "bm25" * 100],
}
WRONG_PAIRS = [(name, value) for name, values in WRONG.items() for value in values]


def parts(used: Weights) -> tuple[float, float, float, float]:
    return used.relevance, used.importance, used.freshness, used.diversity


def proportioned(*given: float) -> Any:
    return pytest.approx(tuple(one / sum(given) for one in given), abs=1e-12)


@pytest.mark.parametrize(("mode", "time_sensitive", "given", "horizon"), TABLE)
def test_the_query_and_the_mode_shift_the_weights(
    mode: GroundingMode, time_sensitive: bool, given: tuple[float, ...], horizon: int
) -> None:
    used = weights(LITERAL, NOTHING, mode, time_sensitive)
    assert parts(used) == proportioned(*given)
    assert used.horizon_days == horizon


def test_each_policy_has_weights_of_its_own_which_are_used_as_they_are_written() -> None:
    assert weights(LITERAL, NOTHING, PREFERRED, False) == Weights(0.50, 0.25, 0.15, 0.10, 365)
    assert weights(ScoringSettings(), NOTHING, PREFERRED, False) == Weights(0.70, 0.18, 0.10, 0.02, 365)
    assert weights(ScoringSettings(), ScoringAsked(policy=COSINE), PREFERRED, False).relevance == 0.50
    set_here = ScoringSettings(relevance_weight=0.5, importance_weight=0.5, freshness_weight=0.0, diversity_weight=0.0)
    assert weights(set_here, ScoringAsked(policy=COSINE), PREFERRED, False) == Weights(0.5, 0.5, 0.0, 0.0, 365)


def test_fused_weights_are_shifted_in_the_same_proportions() -> None:
    settings = ScoringSettings()
    assert parts(weights(settings, NOTHING, STRICT, False)) == proportioned(0.70, 0.252, 0.10, 0.02)
    assert parts(weights(settings, NOTHING, OPEN, False)) == proportioned(0.49, 0.108, 0.10, 0.02)
    assert parts(weights(settings, NOTHING, PREFERRED, True)) == proportioned(0.56, 0.18, 0.10 * 5 / 3, 0.02)


def test_the_mode_moves_the_weights_of_every_policy_the_same_way() -> None:
    for settings in (LITERAL, ScoringSettings(policy=FUSED)):
        plain, strict, free, timely = (
            weights(settings, NOTHING, mode, time_sensitive)
            for mode, time_sensitive in ((PREFERRED, False), (STRICT, False), (OPEN, False), (PREFERRED, True))
        )
        assert strict.importance > plain.importance > free.importance
        assert plain.relevance > free.relevance
        assert timely.freshness > plain.freshness
        assert timely.relevance < plain.relevance
    assert parts(weights(ScoringSettings(), NOTHING, OPEN, False)) == proportioned(0.49, 0.108, 0.10, 0.02)


def test_what_a_deployment_has_set_is_never_raised_downwards() -> None:
    settings = ScoringSettings(
        policy=COSINE, relevance_weight=0.2, importance_weight=0.6, freshness_weight=0.5, freshness_horizon_days=30
    )
    assert parts(weights(settings, NOTHING, STRICT, True)) == proportioned(0.2, 0.6, 0.5, 0.1)
    assert weights(settings, NOTHING, STRICT, True).horizon_days == 30


def test_a_deployment_says_how_long_time_sensitive_facts_are_fresh() -> None:
    settings = ScoringSettings(time_sensitive_horizon_days=14)
    assert weights(settings, NOTHING, PREFERRED, True).horizon_days == 14
    assert weights(settings, NOTHING, PREFERRED, False).horizon_days == 365


def test_weights_of_the_request_are_taken_as_they_are() -> None:
    asked = ScoringAsked(relevance_weight=0.9, freshness_weight=0.0, freshness_horizon_days=700)
    used = weights(LITERAL, asked, OPEN, True)
    assert parts(used) == proportioned(0.9, 0.15, 0.0, 0.10)
    assert used.horizon_days == 700


@pytest.mark.parametrize(("name", "value"), WRONG_PAIRS)
def test_a_request_with_a_value_that_can_never_be_is_refused_by_its_field(name: str, value: object) -> None:
    with pytest.raises(BadInput, match=name) as caught:
        ScoringAsked(**{name: value})  # type: ignore[arg-type]
    assert caught.value.reason is Reason.INVALID_ARGUMENT
    assert caught.value.details["field"] == f"scoring.{name}"
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(("name", "value"), [*WRONG_PAIRS, ("time_sensitive_horizon_days", 0)])
def test_settings_with_such_a_value_are_refused_too(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        ScoringSettings(**{name: value})  # type: ignore[arg-type]


def test_an_unknown_policy_is_refused_with_the_known_ones_named() -> None:
    with pytest.raises(BadInput, match="cosine-1, fused-1"):
        ScoringAsked(policy="bm25")


def test_something_must_weigh() -> None:
    nothing = dict.fromkeys(("relevance_weight", "importance_weight", "freshness_weight", "diversity_weight"), 0.0)
    with pytest.raises(BadInput, match="more than 0"):
        ScoringAsked(**nothing)
    with pytest.raises(ValueError, match="more than 0"):
        ScoringSettings(**nothing)  # type: ignore[arg-type]


def test_something_must_weigh_of_settings_and_request_together() -> None:
    only_relevance = ScoringSettings(importance_weight=0, freshness_weight=0, diversity_weight=0)
    with pytest.raises(BadInput, match="more than 0"):
        weights(only_relevance, ScoringAsked(relevance_weight=0), PREFERRED, False)


def test_what_the_request_does_not_say_is_as_the_deployment_is_set() -> None:
    settings = ScoringSettings(policy=FUSED, relevance_floor=0.3, duplicate_similarity=0.9, candidates_per_query=20)
    left = scoring(settings, NOTHING, PREFERRED, False)
    assert (left.policy, left.relevance_floor, left.duplicate_similarity, left.candidates_per_query) == (
        FUSED, 0.3, 0.9, 20,
    )  # fmt: skip
    asked = ScoringAsked(policy=COSINE, relevance_floor=0.0, duplicate_similarity=1.0, candidates_per_query=1)
    taken = scoring(settings, asked, PREFERRED, False)
    assert (taken.policy, taken.relevance_floor, taken.duplicate_similarity, taken.candidates_per_query) == (
        COSINE, 0.0, 1.0, 1,
    )  # fmt: skip


WEIGHT = st.floats(0, WEIGHT_MAX)
MAYBE = st.none() | WEIGHT


@given(
    st.tuples(WEIGHT, WEIGHT, WEIGHT, WEIGHT).filter(any),
    st.tuples(MAYBE, MAYBE, MAYBE, MAYBE),
    st.sampled_from(GroundingMode),
    st.booleans(),
)
def test_weights_always_sum_to_1_and_keep_the_requests_proportions(
    configured: tuple[float, float, float, float],
    asked: tuple[float | None, ...],
    mode: GroundingMode,
    time_sensitive: bool,
) -> None:
    names = ("relevance_weight", "importance_weight", "freshness_weight", "diversity_weight")
    settings = ScoringSettings(**dict(zip(names, configured, strict=True)))  # type: ignore[arg-type]
    try:
        wanted = ScoringAsked(**dict(zip(names, asked, strict=True)))  # type: ignore[arg-type]
        used = parts(weights(settings, wanted, mode, time_sensitive))
    except BadInput as refused:
        assert "more than 0" in refused.message  # noqa: PT017
        return
    assert math.isclose(math.fsum(used), 1.0, abs_tol=1e-12)
    assert all(0 <= one <= 1 for one in used)
    given_ones = [(want, got) for want, got in zip(asked, used, strict=True) if want is not None and want > 1e-6]
    for (want, got), (other_want, other_got) in pairwise(given_ones):
        assert math.isclose(want * other_got, other_want * got, rel_tol=1e-9)
