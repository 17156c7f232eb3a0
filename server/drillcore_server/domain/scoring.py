"""What the parts of a score weigh: as the deployment is set, as the query and the mode want it, as the request says."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.domain.envelopes import GroundingMode, Weights
from drillcore_server.domain.errors import BadInput

COSINE: Final = "cosine-1"
"""Relevance is the cosine of a fact and the nearest sub-query, as the specification has it."""
FUSED: Final = "fused-1"
"""Relevance is made of the cosine and of the words in common."""
POLICIES: Final = (COSINE, FUSED)
OWN_WEIGHTS: Final = {COSINE: (0.50, 0.25, 0.15, 0.10), FUSED: (0.70, 0.18, 0.10, 0.02)}
"""Of relevance, importance, freshness and diversity, where neither settings nor request give others: those of the
specification; and for fused-1 those that found most evidence on the development sets. Its relevance tells documents
apart, which the specification leaves to diversity."""
WEIGHT_MAX: Final = 1_000.0
HORIZON_DAYS_MAX: Final = 36_500
CANDIDATES_PER_QUERY_MAX: Final = 1_000
WEIGHTS: Final = ("relevance_weight", "importance_weight", "freshness_weight", "diversity_weight")

_SHARES: Final = ("relevance_floor", "duplicate_similarity")
_COUNTS: Final = {
    "freshness_horizon_days": HORIZON_DAYS_MAX,
    "time_sensitive_horizon_days": HORIZON_DAYS_MAX,
    "candidates_per_query": CANDIDATES_PER_QUERY_MAX,
}
_FIELD: Final = "scoring"

_TIME_SENSITIVE_FRESHNESS: Final = 0.25 / 0.15
_TIME_SENSITIVE_RELEVANCE: Final = 0.40 / 0.50
_STRICT_IMPORTANCE: Final = 0.35 / 0.25
_OPEN_RELEVANCE: Final = 0.35 / 0.50
_OPEN_IMPORTANCE: Final = 0.15 / 0.25
"""How many times the policy's own weight is meant: the specification's values, in proportion to its weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringSettings:
    """`[envelopes.scoring]`: how candidates are scored where the request does not say."""

    policy: str = FUSED
    """How relevance is found: cosine-1 or fused-1."""
    relevance_weight: float | None = None
    importance_weight: float | None = None
    freshness_weight: float | None = None
    diversity_weight: float | None = None
    """Each by default the policy's own. They are put in proportion to each other: they need not sum to 1."""
    freshness_horizon_days: int = 365
    """After which a fact has no freshness left."""
    time_sensitive_horizon_days: int = 90
    """The same for queries that ask for what holds now."""
    relevance_floor: float = 0.50
    """From which on a candidate counts as relevant."""
    duplicate_similarity: float = 0.95
    """Of two facts that are more similar than this only the better one is taken. 1: both are."""
    candidates_per_query: int = 50
    """Of each sub-query."""

    def __post_init__(self) -> None:
        given = [name for name in self.__dataclass_fields__ if getattr(self, name) is not None]
        if problem := next(filter(None, (_problem(self, name) for name in given)), None):
            raise ValueError(problem)
        if all(getattr(self, name) == 0 for name in WEIGHTS):
            raise ValueError(_ALL_ZERO)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringAsked:
    """What a request says of it; None where it says nothing. Raises `BadInput` for what can never be."""

    policy: str | None = None
    relevance_weight: float | None = None
    importance_weight: float | None = None
    freshness_weight: float | None = None
    diversity_weight: float | None = None
    freshness_horizon_days: int | None = None
    relevance_floor: float | None = None
    duplicate_similarity: float | None = None
    candidates_per_query: int | None = None

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if getattr(self, name) is not None and (problem := _problem(self, name)):
                raise _wrong(name, problem)
        if all(getattr(self, name) == 0 for name in WEIGHTS):
            raise _wrong(WEIGHTS[0], _ALL_ZERO)


@dataclass(frozen=True, slots=True)
class Scoring:
    """All that scoring goes by, for one request."""

    policy: str
    weights: Weights
    relevance_floor: float
    duplicate_similarity: float
    candidates_per_query: int


def scoring(settings: ScoringSettings, asked: ScoringAsked, mode: GroundingMode, time_sensitive: bool) -> Scoring:
    """What the request says, and the settings for the rest. Raises `BadInput` as `weights` does."""
    return Scoring(
        settings.policy if asked.policy is None else asked.policy,
        weights(settings, asked, mode, time_sensitive),
        settings.relevance_floor if asked.relevance_floor is None else asked.relevance_floor,
        settings.duplicate_similarity if asked.duplicate_similarity is None else asked.duplicate_similarity,
        settings.candidates_per_query if asked.candidates_per_query is None else asked.candidates_per_query,
    )


def weights(settings: ScoringSettings, asked: ScoringAsked, mode: GroundingMode, time_sensitive: bool) -> Weights:
    """What each part of the score weighs. They sum to 1.

    The policy's own, or what the settings say instead, are where it starts. A time-sensitive query raises freshness (of
    cosine-1 to .25), and lowers relevance (to .40) and the horizon (to 90 days). context-strict raises importance (to
    .35). open lowers relevance (to .35) and importance (to .15). For fused-1 it is as many times its own weights.
    What is there already is left: nothing is raised downwards. Where both the query and the mode lower relevance, the
    lower value holds. A weight or a horizon that the request gives is taken as it is, whatever the query and the mode.
    Raises `BadInput` if nothing is left that weighs.
    """
    own = Weights(*OWN_WEIGHTS[asked.policy or settings.policy], settings.freshness_horizon_days)
    known = _set(settings, own)
    if time_sensitive:
        known = _for_the_time(known, own, settings.time_sensitive_horizon_days)
    return _normalised(_as_asked(_for_the_mode(known, own, mode), asked))


def _set(settings: ScoringSettings, own: Weights) -> Weights:
    return Weights(
        own.relevance if settings.relevance_weight is None else settings.relevance_weight,
        own.importance if settings.importance_weight is None else settings.importance_weight,
        own.freshness if settings.freshness_weight is None else settings.freshness_weight,
        own.diversity if settings.diversity_weight is None else settings.diversity_weight,
        own.horizon_days,
    )


def _for_the_time(known: Weights, own: Weights, horizon_days: int) -> Weights:
    return Weights(
        min(known.relevance, own.relevance * _TIME_SENSITIVE_RELEVANCE),
        known.importance,
        max(known.freshness, own.freshness * _TIME_SENSITIVE_FRESHNESS),
        known.diversity,
        min(known.horizon_days, horizon_days),
    )


def _for_the_mode(known: Weights, own: Weights, mode: GroundingMode) -> Weights:
    relevance, importance = known.relevance, known.importance
    if mode is GroundingMode.CONTEXT_STRICT:
        importance = max(importance, own.importance * _STRICT_IMPORTANCE)
    if mode is GroundingMode.OPEN:
        relevance = min(relevance, own.relevance * _OPEN_RELEVANCE)
        importance = min(importance, own.importance * _OPEN_IMPORTANCE)
    return Weights(relevance, importance, known.freshness, known.diversity, known.horizon_days)


def _as_asked(known: Weights, asked: ScoringAsked) -> Weights:
    return Weights(
        known.relevance if asked.relevance_weight is None else asked.relevance_weight,
        known.importance if asked.importance_weight is None else asked.importance_weight,
        known.freshness if asked.freshness_weight is None else asked.freshness_weight,
        known.diversity if asked.diversity_weight is None else asked.diversity_weight,
        known.horizon_days if asked.freshness_horizon_days is None else asked.freshness_horizon_days,
    )


def _normalised(given: Weights) -> Weights:
    parts = (given.relevance, given.importance, given.freshness, given.diversity)
    total = math.fsum(parts)
    if total <= 0:
        raise _wrong(WEIGHTS[0], _ALL_ZERO)
    relevance, importance, freshness, diversity = (part / total for part in parts)
    return Weights(relevance, importance, freshness, diversity, given.horizon_days)


_ALL_ZERO: Final = "one of the weights must be more than 0"


def _problem(given: ScoringSettings | ScoringAsked, name: str) -> str:
    """What is wrong with a value; nothing if it is good. Written so that a NaN is wrong."""
    value = getattr(given, name)
    if name in WEIGHTS and not 0 <= value <= WEIGHT_MAX:
        return f"{name} must be 0 to {WEIGHT_MAX:.0f}"
    if name in _SHARES and not 0 <= value <= 1:
        return f"{name} must be 0 to 1"
    if name in _COUNTS and not 1 <= value <= _COUNTS[name]:
        return f"{name} must be 1 to {_COUNTS[name]}"
    if name == "policy" and value not in POLICIES:
        return f"policy {value[:50]!r} is none of {', '.join(POLICIES)}"
    return ""


def _wrong(name: str, problem: str) -> BadInput:
    return BadInput(Reason.INVALID_ARGUMENT, problem, field=f"{_FIELD}.{name}")
