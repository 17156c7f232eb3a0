"""`[envelopes]`: how context envelopes are packed and scored, and how long they are kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from drillcore_server.envelopes.model import WINDOWS_MAX_DEFAULT
from drillcore_server.tokenizers.settings import DEFAULT_MODEL, ModelSettings

KEEP_DAYS_MAX = 36_500

COSINE: Final = "cosine-1"
"""The policy of the specification: relevance is the cosine of a fact and the nearest sub-query."""
FUSED: Final = "fused-1"
"""The default policy: relevance comes from words and vectors together."""
POLICIES: Final = (COSINE, FUSED)
WEIGHT_MAX: Final = 1_000.0
HORIZON_DAYS_MAX: Final = 36_500
CANDIDATES_PER_QUERY_MAX: Final = 1_000
WEIGHTS: Final = ("relevance_weight", "importance_weight", "freshness_weight", "diversity_weight")
ALL_ZERO: Final = f"at least one of {', '.join(WEIGHTS)} must be more than 0"

_SHARES: Final = ("relevance_floor", "duplicate_similarity")
_COUNTS: Final = {
    "freshness_horizon_days": HORIZON_DAYS_MAX,
    "time_sensitive_horizon_days": HORIZON_DAYS_MAX,
    "candidates_per_query": CANDIDATES_PER_QUERY_MAX,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringSettings:
    """`[envelopes.scoring]`: how candidates are scored unless the request says otherwise."""

    policy: str = FUSED
    """The way to compute relevance: cosine-1 or fused-1."""
    relevance_weight: float | None = None
    importance_weight: float | None = None
    freshness_weight: float | None = None
    diversity_weight: float | None = None
    """By default each weight is the policy's own. Only their proportions matter: they need not sum to 1."""
    freshness_horizon_days: int = 365
    """The age at which a fact has no freshness left."""
    time_sensitive_horizon_days: int = 90
    """The same for queries that ask for what holds now."""
    relevance_floor: float = 0.50
    """A candidate with at least this relevance counts as relevant."""
    duplicate_similarity: float = 0.95
    """Of two facts that are more similar than this, only the better is packed. With 1, both are."""
    candidates_per_query: int = 50
    """The candidates that are selected for each sub-query."""

    def __post_init__(self) -> None:
        given = [name for name in self.__dataclass_fields__ if getattr(self, name) is not None]
        if problem := next(filter(None, (scoring_problem(self, name) for name in given)), None):
            raise ValueError(problem)
        if all(getattr(self, name) == 0 for name in WEIGHTS):
            raise ValueError(ALL_ZERO)


def scoring_problem(given: object, name: str) -> str:
    """Returns what is wrong with a value of scoring settings or options; empty if it is good. NaN is wrong."""
    value = getattr(given, name)
    if name in WEIGHTS and not 0 <= value <= WEIGHT_MAX:
        return f"{name} must be 0 to {WEIGHT_MAX:.0f}"
    if name in _SHARES and not 0 <= value <= 1:
        return f"{name} must be 0 to 1"
    if name in _COUNTS and not 1 <= value <= _COUNTS[name]:
        return f"{name} must be 1 to {_COUNTS[name]}"
    if name == "policy" and value not in POLICIES:
        return f"policy must be one of {', '.join(POLICIES)}, not {value[:50]!r}"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeSettings:
    model: str = DEFAULT_MODEL
    """The model whose tokenizer and context window are used if the caller names no model."""
    models: tuple[ModelSettings, ...] = ()
    """`[[envelopes.models]]`: tokenizers and context windows of further models."""
    scoring: ScoringSettings = field(default_factory=ScoringSettings)
    """`[envelopes.scoring]`."""
    windows_max: int = WINDOWS_MAX_DEFAULT
    """The most windows in one chain of continuations."""
    community_header: bool = True
    """Whether CRP-Memory-CKF-Community is sent. The header tells which domain of knowledge a query is about."""
    keep_days: int = 400
    """How long the server keeps what it needs to build an envelope again. The audit record is kept for ever."""

    def __post_init__(self) -> None:
        if self.windows_max < 1:
            raise ValueError("windows_max must be 1 or more")
        if not 1 <= self.keep_days <= KEEP_DAYS_MAX:
            raise ValueError(f"keep_days must be 1 to {KEEP_DAYS_MAX}")
