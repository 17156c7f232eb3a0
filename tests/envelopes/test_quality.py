"""Quality tiers: the score, every cap at its edge, and the message for an envelope that is not good enough."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.envelopes.model import Candidate, GroundingMode, Quality, QualityTier, TierCap
from drillcore_server.envelopes.quality import (
    QualityInput,
    assess,
    gap,
    is_degrading,
    meets,
    primary_community,
    tier_of_saturation,
    tier_of_score,
    worst,
)
from tests.support.data.envelope_candidates import TODAY, candidate, community, packing

S, A, B, C, D = QualityTier
STRICT, PREFERRED, OPEN = GroundingMode.CONTEXT_STRICT, GroundingMode.CONTEXT_PREFERRED, GroundingMode.OPEN


def judged(
    included: Sequence[Candidate],
    excluded: Sequence[Candidate] = (),
    *,
    duplicates: Sequence[Candidate] = (),
    tokens: int = 100,
    budget: int = 100,
    floor: float = 0.5,
    mode: GroundingMode = PREFERRED,
    time_sensitive: bool = False,
) -> QualityInput:
    everything = [*included, *excluded, *duplicates]
    return QualityInput(packing(included, excluded, tokens), everything, budget, floor, mode, time_sensitive, TODAY)


def quality(included: Sequence[Candidate], excluded: Sequence[Candidate] = (), **said: object) -> Quality:
    return assess(judged(included, excluded, **said))  # type: ignore[arg-type]


def reasons(given: Quality) -> dict[str, QualityTier]:
    return {cap.reason: cap.tier for cap in given.caps}


GOOD = [candidate(number, 1.0) for number in range(1, 11)]


def test_a_full_envelope_with_every_relevant_fact_is_s() -> None:
    assert quality(GOOD) == Quality(S, 1.0, 1.0, 1.0, 1.0, ())


def test_the_score_is_made_of_coverage_saturation_and_mean_relevance() -> None:
    included, excluded = [candidate(1, 0.9), candidate(2, 0.6)], [candidate(3, 0.8), candidate(4, 0.3)]
    given = quality(included, excluded, tokens=96)
    assert (given.coverage, given.saturation, given.relevance_mean) == (0.666667, 0.96, 0.75)
    assert given.score == round(0.35 * 2 / 3 + 0.30 * 0.96 + 0.35 * 0.75, 6)
    assert given.tier is B


@pytest.mark.parametrize(
    ("score", "tier"),
    [
        (1.0, S),
        (0.95, S),
        (0.949999, A),
        (0.85, A),
        (0.849999, B),
        (0.70, B),
        (0.699999, C),
        (0.5, C),
        (0.499999, D),
        (0, D),
    ],
)
def test_the_score_picks_the_tier(score: float, tier: QualityTier) -> None:
    assert tier_of_score(score) is tier


@pytest.mark.parametrize(
    ("saturation", "tier"),
    [(1.0, S), (0.99, S), (0.989999, A), (0.95, A), (0.949999, B), (0.85, B), (0.849999, C), (0.69, C), (0.0, C)],
)
def test_saturation_caps_the_tier_and_never_makes_a_d(saturation: float, tier: QualityTier) -> None:
    assert tier_of_saturation(saturation) is tier


@pytest.mark.parametrize(("tokens", "tier"), [(990, S), (989, A), (950, A), (949, B), (850, B), (849, C), (500, C)])
def test_a_good_envelope_is_capped_by_its_saturation(tokens: int, tier: QualityTier) -> None:
    given = quality(GOOD, tokens=tokens, budget=1_000)
    assert given.tier is tier
    assert reasons(given) == ({} if tier is S else {"saturation": tier})


def test_a_score_below_a_tier_only_by_rounding_is_in_that_tier() -> None:
    given = quality([candidate(number, 0.9) for number in range(1, 4)], tokens=95)
    assert given.score == 0.95
    assert given.tier is A
    assert reasons(given) == {"saturation": A}


def test_a_critical_fact_that_did_not_fit_caps_at_b() -> None:
    given = quality(GOOD, [candidate(99, 0.5, importance=0.90)])
    assert reasons(given) == {"critical-fact-excluded": B}
    assert given.tier is B
    assert str(candidate(99).id) in given.caps[0].detail


@pytest.mark.parametrize("left_out", [candidate(99, 0.5, importance=0.899), candidate(99, 0.499, importance=1.0)])
def test_a_fact_that_is_not_critical_or_not_relevant_may_be_left_out(left_out: Candidate) -> None:
    assert "critical-fact-excluded" not in reasons(quality(GOOD, [left_out]))


def test_a_critical_duplicate_does_not_cap_the_tier() -> None:
    assert "critical-fact-excluded" not in reasons(quality(GOOD, duplicates=[candidate(99, 0.9, importance=1.0)]))


@pytest.mark.parametrize(("included", "capped"), [(3, False), (2, True)])
def test_coverage_below_30_percent_is_d(included: int, capped: bool) -> None:
    given = quality(GOOD[:included], GOOD[included:])
    assert ("coverage" in reasons(given)) is capped
    assert (given.tier is D) is capped


def test_facts_below_the_floor_do_not_count_for_coverage() -> None:
    noise = [candidate(number, 0.49) for number in range(50, 90)]
    assert quality(GOOD, noise).coverage == 1.0
    assert quality([*GOOD[:5], *noise[:20]], GOOD[5:]).coverage == 0.5


def test_with_a_floor_of_0_coverage_is_the_literal_formula() -> None:
    noise = [candidate(number, 0.0) for number in range(50, 80)]
    assert quality(GOOD, noise, floor=0.0).coverage == 0.25


def test_without_relevant_facts_coverage_is_zero() -> None:
    given = quality([candidate(1, 0.4)])
    assert given.coverage == 0.0
    assert reasons(given)["coverage"] is D
    assert given.caps[-1].detail == "no candidate has a relevance of 0.5 or more"


def test_duplicates_are_candidates_too() -> None:
    assert quality(GOOD[:5], duplicates=GOOD[5:]).coverage == 0.5


def test_without_a_fact_of_the_primary_community_the_tier_is_at_most_c() -> None:
    of_primary = [candidate(number, 0.9, community=community(1)) for number in (11, 12)]
    given = quality([*GOOD[:4], candidate(5, 1.0, community=community(2))], of_primary)
    assert reasons(given) == {"primary-community": C}
    assert given.tier is C
    assert not reasons(quality([*GOOD[:4], of_primary[0]], of_primary[1:]))


def test_the_primary_community_has_the_most_relevance_at_or_above_the_floor() -> None:
    many_weak = [candidate(number, 0.49, community=community(1)) for number in range(10, 20)]
    one_strong = candidate(1, 0.5, community=community(2))
    assert primary_community(judged([one_strong, *many_weak])) == community(2)
    assert primary_community(judged(many_weak)) is None
    assert primary_community(judged(GOOD)) is None


def test_the_smaller_id_decides_between_equally_relevant_communities() -> None:
    tenths = [candidate(number, value, community=community(7)) for number, value in enumerate((0.1, 0.2, 0.3), 1)]
    whole = candidate(9, 0.600_000_4, community=community(8))
    assert primary_community(judged([whole, *tenths], floor=0.0)) == community(7)
    assert primary_community(judged([replace(whole, community=community(6)), *tenths], floor=0.0)) == community(6)


@pytest.mark.parametrize(
    ("days", "time_sensitive", "capped"), [(90, True, False), (91, True, True), (91, False, False)]
)
def test_a_time_sensitive_query_needs_a_fact_of_the_last_90_days(days: int, time_sensitive: bool, capped: bool) -> None:
    included = [candidate(1, 1.0, days_old=400), candidate(2, 1.0, days_old=days)]
    given = quality(included, time_sensitive=time_sensitive)
    assert reasons(given) == ({"freshness": C} if capped else {})
    assert given.tier is (C if capped else S)


def test_a_stale_fact_does_not_count_as_recent() -> None:
    stale = candidate(1, 1.0, stale=True)
    assert reasons(quality([stale], time_sensitive=True)) == {"freshness": C}
    assert not reasons(quality([stale, candidate(2, 1.0)], time_sensitive=True))


@pytest.mark.parametrize(
    ("mode", "tokens", "capped"), [(STRICT, 79, True), (STRICT, 80, False), (PREFERRED, 79, False), (OPEN, 79, False)]
)
def test_strict_grounding_needs_a_full_envelope(mode: GroundingMode, tokens: int, capped: bool) -> None:
    given = quality(GOOD, tokens=tokens, mode=mode)
    assert reasons(given) == ({"saturation": C, "strict-grounding": C} if capped else {"saturation": C})


def test_every_cap_that_applied_is_listed_in_one_order() -> None:
    primary = [candidate(number, 0.9, importance=0.95, community=community(1)) for number in range(10, 30)]
    old = candidate(1, 0.9, days_old=200)
    given = quality([old], primary, tokens=10, mode=STRICT, time_sensitive=True)
    assert list(reasons(given).items()) == [
        ("saturation", C),
        ("critical-fact-excluded", B),
        ("coverage", D),
        ("primary-community", C),
        ("freshness", C),
        ("strict-grounding", C),
    ]
    assert given.tier is D


@pytest.mark.parametrize("budget", [0, 100])
def test_an_empty_envelope_is_d(budget: int) -> None:
    for mode in GroundingMode:
        given = quality([], tokens=0, budget=budget, mode=mode, time_sensitive=True, floor=0.0)
        assert (given.tier, given.score, given.coverage, given.saturation, given.relevance_mean) == (D, 0, 0, 0, 0)


def test_the_answer_so_far_takes_room_and_counts_for_nothing_else() -> None:
    answer = candidate(99, 0.9, is_answer=True)
    assert quality([*GOOD, answer]) == quality(GOOD)
    assert quality(GOOD, [answer]) == quality(GOOD)
    alone = quality([answer], time_sensitive=True, floor=0.0)
    assert alone.tier is D
    assert alone.saturation == 1.0


@pytest.mark.parametrize(
    ("history", "degrading"),
    [
        ([], False),
        ([A, B], False),
        ([A, B, C], True),
        ([S, B, D], True),
        ([A, B, B], False),
        ([A, A, B], False),
        ([C, B, A], False),
        ([C, S, A, B], True),
        ([A, B, C, A], False),
    ],
)
def test_quality_degrades_when_three_windows_are_each_worse(history: list[QualityTier], degrading: bool) -> None:
    assert is_degrading(history) is degrading


def test_the_worst_tier_is_the_greatest_letter() -> None:
    assert worst([B, S, C, A]) is C


@pytest.mark.parametrize(
    ("tier", "accepted", "met"),
    [
        (D, [], True),
        (A, [S, A], True),
        (S, [S, A], True),
        (B, [S, A], False),
        (S, [B], True),
        (C, [D], True),
        (D, [C], False),
    ],
)
def test_a_tier_meets_an_accepted_tier_when_it_is_at_least_as_good(
    tier: QualityTier, accepted: list[QualityTier], met: bool
) -> None:
    assert meets(tier, accepted) is met


def test_the_gap_names_the_best_tier_the_caps_and_the_remedies() -> None:
    given = quality(GOOD, [candidate(99, 0.9, importance=0.95)], tokens=900, budget=1_000)
    told = gap(given, [A, S], 900, 1_000)
    assert json.loads(json.dumps(told)) == told
    assert told["best_tier"] == "B"
    assert told["accepted_tiers"] == ["S", "A"]
    assert (told["quality_score_needed"], told["saturation_needed"]) == (0.85, 0.95)
    assert [cap["reason"] for cap in told["caps"]] == ["saturation", "critical-fact-excluded"]  # type: ignore[attr-defined]
    assert told["would_help"] == [
        "a token budget of at most 947, or sources that fill the present budget",
        "a larger token budget, so that the most important facts fit",
    ]


def test_an_empty_envelope_has_a_gap_too() -> None:
    told = gap(quality([], tokens=0), [B], 0, 100)
    assert told["best_tier"] == "D"
    assert len(told["would_help"]) == 3  # type: ignore[arg-type]


def test_caps_that_are_no_worse_than_the_accepted_tier_need_no_remedy() -> None:
    low = Quality(C, 0.6, 0.5, 0.6, 0.7, (TierCap(C, "saturation"), TierCap(C, "freshness")))
    assert gap(low, [C], 60, 100)["would_help"] == []
    assert len(gap(low, [B], 60, 100)["would_help"]) == 3  # type: ignore[arg-type]


SHARE = st.floats(0, 1).map(lambda value: round(value, 6))


@given(
    st.lists(st.tuples(SHARE, SHARE, st.integers(0, 300), st.integers(0, 3), st.booleans()), max_size=12),
    st.integers(0, 12),
    st.integers(0, 1_000),
    SHARE,
    st.sampled_from(GroundingMode),
    st.booleans(),
)
def test_the_tier_is_never_better_than_the_score_or_any_cap(
    drawn: list[tuple[float, float, int, int, bool]],
    cut: int,
    tokens: int,
    floor: float,
    mode: GroundingMode,
    time_sensitive: bool,
) -> None:
    facts = [
        candidate(
            number,
            relevance,
            importance=weight,
            days_old=days,
            community=community(community_number) if community_number else None,
            stale=old,
        )
        for number, (relevance, weight, days, community_number, old) in enumerate(drawn, 1)
    ]
    given = quality(
        facts[:cut], facts[cut:], tokens=tokens, budget=1_000, floor=floor, mode=mode, time_sensitive=time_sensitive
    )
    assert given.tier == max([tier_of_score(given.score), *reasons(given).values()])
    assert 0 <= given.score <= 1
    assert facts[:cut] or given.tier is D
    json.dumps(gap(given, [S], tokens, 1_000))
