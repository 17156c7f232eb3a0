"""The weights of the parts of a score, and which settings and requests are refused."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_proto.reasons import Reason
from drillcore_server.envelopes.model import GroundingMode, Weights
from drillcore_server.envelopes.scoring_policy import ScoringOptions, score_weights, scoring_rules
from drillcore_server.envelopes.settings import (
    CANDIDATES_PER_QUERY_MAX,
    COSINE,
    FUSED,
    HORIZON_DAYS_MAX,
    WEIGHT_MAX,
    ScoringSettings,
)
from drillcore_server.kernel.errors import BadInput

STRICT, PREFERRED, OPEN = GroundingMode.CONTEXT_STRICT, GroundingMode.CONTEXT_PREFERRED, GroundingMode.OPEN
NOTHING = ScoringOptions()
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
    return pytest.approx(tuple(weight / sum(given) for weight in given), abs=1e-12)


@pytest.mark.parametrize(("mode", "time_sensitive", "given", "horizon"), TABLE)
def test_the_query_and_the_mode_shift_the_weights(
    mode: GroundingMode, time_sensitive: bool, given: tuple[float, ...], horizon: int
) -> None:
    used = score_weights(LITERAL, NOTHING, mode, time_sensitive)
    assert parts(used) == proportioned(*given)
    assert used.horizon_days == horizon


def test_each_policy_uses_its_own_weights_unchanged() -> None:
    assert score_weights(LITERAL, NOTHING, PREFERRED, False) == Weights(0.50, 0.25, 0.15, 0.10, 365)
    assert score_weights(ScoringSettings(), NOTHING, PREFERRED, False) == Weights(0.70, 0.18, 0.10, 0.02, 365)
    assert score_weights(ScoringSettings(), ScoringOptions(policy=COSINE), PREFERRED, False).relevance == 0.50
    set_here = ScoringSettings(relevance_weight=0.5, importance_weight=0.5, freshness_weight=0.0, diversity_weight=0.0)
    assert score_weights(set_here, ScoringOptions(policy=COSINE), PREFERRED, False) == Weights(0.5, 0.5, 0.0, 0.0, 365)


def test_fused_weights_are_shifted_in_the_same_proportions() -> None:
    settings = ScoringSettings()
    assert parts(score_weights(settings, NOTHING, STRICT, False)) == proportioned(0.70, 0.252, 0.10, 0.02)
    assert parts(score_weights(settings, NOTHING, OPEN, False)) == proportioned(0.49, 0.108, 0.10, 0.02)
    assert parts(score_weights(settings, NOTHING, PREFERRED, True)) == proportioned(0.56, 0.18, 0.10 * 5 / 3, 0.02)


def test_the_mode_moves_the_weights_of_every_policy_the_same_way() -> None:
    for settings in (LITERAL, ScoringSettings(policy=FUSED)):
        plain, strict, free, timely = (
            score_weights(settings, NOTHING, mode, time_sensitive)
            for mode, time_sensitive in ((PREFERRED, False), (STRICT, False), (OPEN, False), (PREFERRED, True))
        )
        assert strict.importance > plain.importance > free.importance
        assert plain.relevance > free.relevance
        assert timely.freshness > plain.freshness
        assert timely.relevance < plain.relevance
    assert parts(score_weights(ScoringSettings(), NOTHING, OPEN, False)) == proportioned(0.49, 0.108, 0.10, 0.02)


def test_a_shift_never_lowers_a_weight_that_the_deployment_set_higher() -> None:
    settings = ScoringSettings(
        policy=COSINE, relevance_weight=0.2, importance_weight=0.6, freshness_weight=0.5, freshness_horizon_days=30
    )
    assert parts(score_weights(settings, NOTHING, STRICT, True)) == proportioned(0.2, 0.6, 0.5, 0.1)
    assert score_weights(settings, NOTHING, STRICT, True).horizon_days == 30


def test_the_settings_say_how_long_time_sensitive_facts_are_fresh() -> None:
    settings = ScoringSettings(time_sensitive_horizon_days=14)
    assert score_weights(settings, NOTHING, PREFERRED, True).horizon_days == 14
    assert score_weights(settings, NOTHING, PREFERRED, False).horizon_days == 365


def test_weights_of_the_request_are_used_unchanged() -> None:
    asked = ScoringOptions(relevance_weight=0.9, freshness_weight=0.0, freshness_horizon_days=700)
    used = score_weights(LITERAL, asked, OPEN, True)
    assert parts(used) == proportioned(0.9, 0.15, 0.0, 0.10)
    assert used.horizon_days == 700


@pytest.mark.parametrize(("name", "value"), WRONG_PAIRS)
def test_a_request_with_an_impossible_value_is_refused_with_its_field(name: str, value: object) -> None:
    with pytest.raises(BadInput, match=name) as caught:
        ScoringOptions(**{name: value})  # type: ignore[arg-type]
    assert caught.value.reason is Reason.INVALID_ARGUMENT
    assert caught.value.details["field"] == f"scoring.{name}"
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(("name", "value"), [*WRONG_PAIRS, ("time_sensitive_horizon_days", 0)])
def test_settings_with_an_impossible_value_are_refused_too(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        ScoringSettings(**{name: value})  # type: ignore[arg-type]


def test_an_unknown_policy_is_refused_with_the_known_ones_named() -> None:
    with pytest.raises(BadInput, match="cosine-1, fused-1"):
        ScoringOptions(policy="bm25")


def test_at_least_one_weight_must_be_positive() -> None:
    nothing = dict.fromkeys(("relevance_weight", "importance_weight", "freshness_weight", "diversity_weight"), 0.0)
    with pytest.raises(BadInput, match="more than 0"):
        ScoringOptions(**nothing)
    with pytest.raises(ValueError, match="more than 0"):
        ScoringSettings(**nothing)  # type: ignore[arg-type]


def test_at_least_one_weight_of_settings_and_request_together_must_be_positive() -> None:
    only_relevance = ScoringSettings(importance_weight=0, freshness_weight=0, diversity_weight=0)
    with pytest.raises(BadInput, match="more than 0"):
        score_weights(only_relevance, ScoringOptions(relevance_weight=0), PREFERRED, False)


def test_values_that_the_request_leaves_out_come_from_the_settings() -> None:
    settings = ScoringSettings(policy=FUSED, relevance_floor=0.3, duplicate_similarity=0.9, candidates_per_query=20)
    left = scoring_rules(settings, NOTHING, PREFERRED, False)
    assert (left.policy, left.relevance_floor, left.duplicate_similarity, left.candidates_per_query) == (
        FUSED, 0.3, 0.9, 20,
    )  # fmt: skip
    asked = ScoringOptions(policy=COSINE, relevance_floor=0.0, duplicate_similarity=1.0, candidates_per_query=1)
    taken = scoring_rules(settings, asked, PREFERRED, False)
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
        wanted = ScoringOptions(**dict(zip(names, asked, strict=True)))  # type: ignore[arg-type]
        used = parts(score_weights(settings, wanted, mode, time_sensitive))
    except BadInput as refused:
        assert "more than 0" in refused.message  # noqa: PT017
        return
    assert math.isclose(math.fsum(used), 1.0, abs_tol=1e-12)
    assert all(0 <= weight <= 1 for weight in used)
    given_ones = [(want, got) for want, got in zip(asked, used, strict=True) if want is not None and want > 1e-6]
    for (want, got), (other_want, other_got) in pairwise(given_ones):
        assert math.isclose(want * other_got, other_want * got, rel_tol=1e-9)
