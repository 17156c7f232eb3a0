"""Whether a query asks for what holds now: then newer facts weigh more.

Found by words ("current", "latest", "this year") and by this year or the one before it as a number. Words between
quotation marks are what is asked about, and do not count. Nor do years that are part of a name or of a number: of a
regulation (2025/1234), a section (21 CFR 2026.5), an edition (ISO 27001:2025), an act (Data Act 2025), an amount.

What the parts of a score weigh: as the deployment is set, as the query and the mode want it, as the request says.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_server.envelopes.model import GroundingMode, Weights
from drillcore_server.kernel.errors import BadInput

CHARACTERS_MAX: Final = 20_000
"""Of a query that are looked at."""

_QUOTED: Final = re.compile(r'"[^"]{0,500}"|“[^”]{0,500}”|«[^»]{0,500}»|„[^“”]{0,500}[“”]')
_NOT_NOW: Final = re.compile(
    r"\bat the latest\b"
    r"|\b(?:electric(?:al)?|alternating|direct|eddy|leakage|inrush|rated)[ -]currents?\b"
    r"|\bcurrent (?:accounts?|assets?|liabilit(?:y|ies))\b"
    r"|\b(?:keep|keeps|keeping|kept|stay|stays|staying|remain|remains|remaining|maintain|maintains|maintained"
    r"|maintaining|is|are|be|being)\b(?: [^ ,.;?]+){0,4} (?:current|up[ -]to[ -]date)(?=$|[,.;?]| with\b)"
)
"""What has the words and means something else: deadlines, physics, book-keeping, and a duty to keep things so."""
_NOW: Final = re.compile(
    r"\b(?:current|currently|latest|recent|recently|newest|nowadays|today|now|up[ -]to[ -]date)\b"
    r"|\b(?:this|the present) (?:year|quarter|month|week)\b"
    r"|\blast (?:year|quarter|month|week)\b(?! of\b)"
    r"|\bat (?:present|the moment)\b"
    r"|\b(?:aktuell(?:e[mnrs]?)?|derzeit(?:ig(?:e[mnrs]?)?)?|heute|neueste[mnrs]?|dieses jahr)\b"
    r"|\b(?:actuel(?:le)?s?|actuellement|récente?s?|aujourd['\u2019]hui|cette année)(?!\w)"
)
_AS_OF: Final = re.compile(r"\bas of (?P<when>(?:[^ ]+ ?){1,4})")
_YEAR: Final = re.compile(r"(?<![\w$€£§.,:/+#])(?P<year>(?:19|20)[0-9]{2})(?![\w%€]|[/.,:][0-9])")
_ANY_YEAR: Final = re.compile(r"\b(?:19|20)[0-9]{2}\b")
_NAMED_BEFORE: Final = re.compile(
    r"(?:\b(?:cfr|usc|article|art|section|sec|paragraph|para|rule|clause|page|no|number|nr|item|line|version|iso|iec"
    r"|act|bill|ordinance|directive|regulations?|order)\.?|§|[$€£]|[a-z]-)\s*\(?$"
)
_COUNTED_AFTER: Final = re.compile(
    r"\s?(?:tokens?|facts?|documents?|items?|records?|people|persons?|employees|customers|clients|euros?|dollars?|eur"
    r"|usd|gbp|aed|mg|kg|g|ml|mm|cm|km|m|hours?|days?|minutes?|seconds?|units?|times|bytes?)\b"
)


def is_time_sensitive(query: str, today: date) -> bool:
    """By the query alone and the day: the same query on the same day gives the same answer."""
    text = _NOT_NOW.sub(" ", _plain(query))
    return bool(_NOW.search(text)) or _is_as_of_now(text, today) or _names_a_recent_year(text, today)


def _plain(query: str) -> str:
    return " ".join(_QUOTED.sub(" ", query[:CHARACTERS_MAX]).lower().split())


def _is_as_of_now(text: str, today: date) -> bool:
    """As of a day of long ago is no wish for news."""
    for found in _AS_OF.finditer(text):
        years = [int(year) for year in _ANY_YEAR.findall(found["when"])]
        if all(_is_recent(year, today) for year in years):
            return True
    return False


def _names_a_recent_year(text: str, today: date) -> bool:
    for found in _YEAR.finditer(text):
        before, after = text[max(found.start() - 20, 0) : found.start()], text[found.end() : found.end() + 12]
        counted = _COUNTED_AFTER.match(after)
        if _is_recent(int(found["year"]), today) and not counted and not _NAMED_BEFORE.search(before):
            return True
    return False


def _is_recent(year: int, today: date) -> bool:
    return today.year - 1 <= year <= today.year


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
