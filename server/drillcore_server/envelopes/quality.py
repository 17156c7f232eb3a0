"""Assesses an envelope: a score of three signals gives the tier, and each defect caps it.

    score = .35 coverage + .30 saturation + .35 mean relevance

The summary of a model's earlier answer (`is_answer`) takes up tokens and so counts for saturation. It does not come
from the store, so it counts for nothing else here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from drillcore_server.envelopes.model import (
    CRITICAL_IMPORTANCE,
    SCORE_DIGITS,
    Candidate,
    GroundingMode,
    Packing,
    Quality,
    QualityTier,
    TierCap,
)
from drillcore_server.envelopes.rank import age_days
from drillcore_server.storage.ids import CommunityId

SATURATION: Final = "saturation"
CRITICAL_FACT_EXCLUDED: Final = "critical-fact-excluded"
COVERAGE: Final = "coverage"
PRIMARY_COMMUNITY: Final = "primary-community"
FRESHNESS: Final = "freshness"
STRICT_GROUNDING: Final = "strict-grounding"

SCORE_MIN: Final = {QualityTier.S: 0.95, QualityTier.A: 0.85, QualityTier.B: 0.70, QualityTier.C: 0.50}
"""The least score for each tier. Less than that of C is D."""
SATURATION_MIN: Final = {QualityTier.S: 0.99, QualityTier.A: 0.95, QualityTier.B: 0.85}
"""The least saturation for each tier. Less than that of B allows C: saturation alone never causes a D."""
COVERAGE_MIN: Final = 0.30
FRESH_DAYS: Final = 90
STRICT_SATURATION_MIN: Final = 0.80
_COVERAGE_SHARE: Final = 0.35
_SATURATION_SHARE: Final = 0.30
_RELEVANCE_SHARE: Final = 0.35


@dataclass(frozen=True, slots=True)
class QualityInput:
    """Everything that the quality of an envelope depends on."""

    packing: Packing
    candidates: Sequence[Candidate]
    """All candidates: packed, left out for lack of tokens, or dropped as duplicates."""
    budget_tokens: int
    relevance_floor: float
    mode: GroundingMode
    time_sensitive: bool
    today: date

    @property
    def saturation(self) -> float:
        return min(self.packing.tokens / self.budget_tokens, 1.0) if self.budget_tokens > 0 else 0.0

    def facts(self) -> list[Candidate]:
        """Returns the packed facts, without an answer of the model."""
        candidates = (packed.ranked.candidate for packed in self.packing.included)
        return [candidate for candidate in candidates if not candidate.is_answer]

    def is_relevant(self, candidate: Candidate) -> bool:
        return candidate.relevance >= self.relevance_floor and not candidate.is_answer

    def coverage(self) -> float:
        """Returns the share of the relevant candidates that was packed; 0 if none is relevant."""
        available = sum(map(self.is_relevant, self.candidates))
        return sum(map(self.is_relevant, self.facts())) / available if available else 0.0

    def relevance_mean(self) -> float:
        facts = self.facts()
        return math.fsum(fact.relevance for fact in facts) / len(facts) if facts else 0.0


def assess(given: QualityInput) -> Quality:
    """Returns the tier, its signals, and every cap that applied. An envelope without facts has tier D."""
    coverage, saturation, relevance = given.coverage(), given.saturation, given.relevance_mean()
    score = round(
        coverage * _COVERAGE_SHARE + saturation * _SATURATION_SHARE + relevance * _RELEVANCE_SHARE, SCORE_DIGITS
    )
    caps = tuple(_caps(given, coverage))
    return Quality(
        tier=worst([tier_of_score(score), *(cap.tier for cap in caps)]),
        score=score,
        coverage=round(coverage, SCORE_DIGITS),
        saturation=saturation,
        relevance_mean=round(relevance, SCORE_DIGITS),
        caps=caps,
    )


def tier_of_score(score: float) -> QualityTier:
    return next((tier for tier, least in SCORE_MIN.items() if score >= least), QualityTier.D)


def tier_of_saturation(saturation: float) -> QualityTier:
    """Returns the best tier that a saturation allows."""
    return next((tier for tier, least in SATURATION_MIN.items() if saturation >= least), QualityTier.C)


def primary_community(given: QualityInput) -> CommunityId | None:
    """Returns the community with the greatest summed relevance of relevant candidates; of equal ones the smaller id."""
    relevances: dict[CommunityId, list[float]] = {}
    for candidate in given.candidates:
        if candidate.community is not None and given.is_relevant(candidate):
            relevances.setdefault(candidate.community, []).append(candidate.relevance)
    return min(
        relevances,
        key=lambda community: (-round(math.fsum(relevances[community]), SCORE_DIGITS), community),
        default=None,
    )


def _caps(given: QualityInput, coverage: float) -> Iterator[TierCap]:
    for cap in (
        _saturation_cap(given),
        _critical_cap(given),
        _coverage_cap(given, coverage),
        _primary_cap(given),
        _freshness_cap(given),
        _strict_cap(given),
    ):
        if cap is not None:
            yield cap


def _saturation_cap(given: QualityInput) -> TierCap | None:
    tier = tier_of_saturation(given.saturation)
    if tier is QualityTier.S:
        return None
    return TierCap(tier, SATURATION, f"{given.packing.tokens} of {given.budget_tokens} tokens are used")


def _critical_cap(given: QualityInput) -> TierCap | None:
    critical = [
        ranked.candidate
        for ranked in given.packing.excluded
        if ranked.candidate.importance >= CRITICAL_IMPORTANCE and given.is_relevant(ranked.candidate)
    ]
    if not critical:
        return None
    detail = f"{len(critical)} with an importance of {CRITICAL_IMPORTANCE:.2f} or more did not fit, as {critical[0].id}"
    return TierCap(QualityTier.B, CRITICAL_FACT_EXCLUDED, detail)


def _coverage_cap(given: QualityInput, coverage: float) -> TierCap | None:
    if coverage >= COVERAGE_MIN:
        return None
    included, available = (sum(map(given.is_relevant, candidates)) for candidates in (given.facts(), given.candidates))
    enough = f"a relevance of {given.relevance_floor:g} or more"
    detail = f"{included} of {available} candidates with {enough} are in" if available else f"no candidate has {enough}"
    return TierCap(QualityTier.D, COVERAGE, detail)


def _primary_cap(given: QualityInput) -> TierCap | None:
    primary = primary_community(given)
    if primary is None or any(fact.community == primary for fact in given.facts()):
        return None
    return TierCap(QualityTier.C, PRIMARY_COMMUNITY, f"no fact of the community {primary} is in")


def _freshness_cap(given: QualityInput) -> TierCap | None:
    """Caps the tier of a time-sensitive query without fresh facts. A stale fact is never fresh."""
    if not given.time_sensitive:
        return None
    ages = [age_days(fact, given.today) for fact in given.facts() if not fact.stale]
    if ages and min(ages) <= FRESH_DAYS:
        return None
    detail = f"the newest fact is {min(ages)} days old" if ages else "no fact is in that is not stale"
    return TierCap(QualityTier.C, FRESHNESS, detail)


def _strict_cap(given: QualityInput) -> TierCap | None:
    if given.mode is not GroundingMode.CONTEXT_STRICT or given.saturation >= STRICT_SATURATION_MIN:
        return None
    return TierCap(QualityTier.C, STRICT_GROUNDING, f"{given.packing.tokens} of {given.budget_tokens} tokens are used")


def worst(tiers: Sequence[QualityTier]) -> QualityTier:
    """Returns the worst of one or more tiers."""
    return max(tiers)


def is_degrading(history: Sequence[QualityTier]) -> bool:
    """Tells whether the last three windows became worse and worse, as in A, B, C."""
    first, second, third = history[-3:] if len(history) >= 3 else (QualityTier.D,) * 3
    return first < second < third


def meets(tier: QualityTier, accepted: Sequence[QualityTier]) -> bool:
    """Tells whether a tier is accepted, or better than an accepted tier. If none is named, all are accepted."""
    return not accepted or tier <= worst(accepted)


def gap(quality: Quality, accepted: Sequence[QualityTier], tokens: int, budget_tokens: int) -> dict[str, object]:
    """Returns how far an envelope is from an accepted tier, for a JSON object. It has no content of facts."""
    wanted = worst(accepted) if accepted else QualityTier.D
    return {
        "best_tier": quality.tier.name,
        "accepted_tiers": [tier.name for tier in sorted(set(accepted))],
        "quality_score": quality.score,
        "quality_score_needed": SCORE_MIN.get(wanted, 0.0),
        "coverage_score": quality.coverage,
        "saturation": round(quality.saturation, SCORE_DIGITS),
        "saturation_needed": SATURATION_MIN.get(wanted, 0.0),
        "relevance_mean": quality.relevance_mean,
        "token_count": tokens,
        "token_budget": budget_tokens,
        "caps": [{"tier": cap.tier.name, "reason": cap.reason, "detail": cap.detail} for cap in quality.caps],
        "would_help": list(_would_help(quality, wanted, tokens)),
    }


_HELP: Final = {
    CRITICAL_FACT_EXCLUDED: "a larger token budget, so that the most important facts fit",
    COVERAGE: "a larger token budget, a narrower query, or sources on its subject",
    PRIMARY_COMMUNITY: "a larger token budget, so that facts of the community most relevant to the query fit",
    FRESHNESS: f"sources that were ingested in the last {FRESH_DAYS} days",
    STRICT_GROUNDING: "another grounding mode than context-strict, or sources on the subject of the query",
}


def _would_help(quality: Quality, wanted: QualityTier, tokens: int) -> Iterator[str]:
    """Yields a remedy for everything that keeps the envelope below the wanted tier."""
    if tier_of_score(quality.score) > wanted:
        yield "facts that are more relevant: sources on the subject of the query, or a narrower query"
    for cap in quality.caps:
        if cap.tier <= wanted:
            continue
        if cap.reason != SATURATION:
            yield _HELP[cap.reason]
        elif budget := math.floor(tokens / SATURATION_MIN[wanted]):
            yield f"a token budget of at most {budget}, or sources that fill the present budget"
        else:
            yield "sources on the subject of the query: no token of the budget is used"
