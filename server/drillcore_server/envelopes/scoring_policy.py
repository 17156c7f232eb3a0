"""How candidates are scored: the weights of a request, whether newer facts weigh more, and relevance by `fused-1`.

A query is time-sensitive if it asks for what holds now. Signs are words ("current", "latest", "this year") and the
number of this year or the one before. Words in quotation marks are the subject of the query and do not count. Nor do
years that are part of a name or number: of a regulation (2025/1234), a section (21 CFR 2026.5), an edition (ISO
27001:2025), an act (Data Act 2025) or an amount.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

import numpy as np

from drillcore_proto.reasons import Reason
from drillcore_server.envelopes.model import GroundingMode, Weights
from drillcore_server.envelopes.settings import ALL_ZERO, COSINE, FUSED, WEIGHTS, ScoringSettings, scoring_problem
from drillcore_server.facts.lexical.lexical_index import LexicalIndex
from drillcore_server.facts.lexical.relevance import Cosines, Scores, WordShares, fused
from drillcore_server.facts.lexical.segments import run_starts
from drillcore_server.facts.words import Question
from drillcore_server.kernel.errors import BadInput
from drillcore_server.storage.ids import FactId, NodeId
from drillcore_server.vectors.vector_index import Id, VectorIndex
from drillcore_server.vectors.vector_log import Labels, Row, Units, units

CHARACTERS_MAX: Final = 20_000
"""Only the beginning of a longer query is checked."""

_QUOTED: Final = re.compile(r'"[^"]{0,500}"|“[^”]{0,500}”|«[^»]{0,500}»|„[^“”]{0,500}[“”]')
_NOT_NOW: Final = re.compile(
    r"\bat the latest\b"
    r"|\b(?:electric(?:al)?|alternating|direct|eddy|leakage|inrush|rated)[ -]currents?\b"
    r"|\bcurrent (?:accounts?|assets?|liabilit(?:y|ies))\b"
    r"|\b(?:keep|keeps|keeping|kept|stay|stays|staying|remain|remains|remaining|maintain|maintains|maintained"
    r"|maintaining|is|are|be|being)\b(?: [^ ,.;?]+){0,4} (?:current|up[ -]to[ -]date)(?=$|[,.;?]| with\b)"
)
"""Uses of these words with another meaning: deadlines, physics, book-keeping, and duties to keep something current."""
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
    """Tells whether a query asks for what holds now. The same query on the same day gives the same answer."""
    text = _NOT_NOW.sub(" ", _plain(query))
    return bool(_NOW.search(text)) or _is_as_of_now(text, today) or _names_a_recent_year(text, today)


def _plain(query: str) -> str:
    return " ".join(_QUOTED.sub(" ", query[:CHARACTERS_MAX]).lower().split())


def _is_as_of_now(text: str, today: date) -> bool:
    """Tells whether the query says "as of" a recent time. "As of" a day long ago does not count."""
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


OWN_WEIGHTS: Final = {COSINE: (0.50, 0.25, 0.15, 0.10), FUSED: (0.70, 0.18, 0.10, 0.02)}
"""Each policy's own weights of relevance, importance, freshness and diversity. Those of cosine-1 are the
specification's. Those of fused-1 found the most evidence on the development sets: its relevance tells documents apart,
which the specification leaves to diversity."""

_FIELD: Final = "scoring"
_TIME_SENSITIVE_FRESHNESS: Final = 0.25 / 0.15
_TIME_SENSITIVE_RELEVANCE: Final = 0.40 / 0.50
_STRICT_IMPORTANCE: Final = 0.35 / 0.25
_OPEN_RELEVANCE: Final = 0.35 / 0.50
_OPEN_IMPORTANCE: Final = 0.15 / 0.25
"""Factors for a policy's own weights: the specification's shifted weights, divided by its normal ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringOptions:
    """How a request wants candidates to be scored; None where it leaves that to the settings.

    Raises `BadInput` for a value out of range.
    """

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
            if getattr(self, name) is not None and (problem := scoring_problem(self, name)):
                raise _wrong(name, problem)
        if all(getattr(self, name) == 0 for name in WEIGHTS):
            raise _wrong(WEIGHTS[0], ALL_ZERO)


@dataclass(frozen=True, slots=True)
class ScoringRules:
    """Everything that decides the scores of one request."""

    policy: str
    weights: Weights
    relevance_floor: float
    duplicate_similarity: float
    candidates_per_query: int


def scoring_rules(
    settings: ScoringSettings, asked: ScoringOptions, mode: GroundingMode, time_sensitive: bool
) -> ScoringRules:
    """Returns the request's options, and the settings for what it leaves open. Raises `BadInput` as `score_weights`."""
    return ScoringRules(
        settings.policy if asked.policy is None else asked.policy,
        score_weights(settings, asked, mode, time_sensitive),
        settings.relevance_floor if asked.relevance_floor is None else asked.relevance_floor,
        settings.duplicate_similarity if asked.duplicate_similarity is None else asked.duplicate_similarity,
        settings.candidates_per_query if asked.candidates_per_query is None else asked.candidates_per_query,
    )


def score_weights(
    settings: ScoringSettings, asked: ScoringOptions, mode: GroundingMode, time_sensitive: bool
) -> Weights:
    """Returns the weights of the parts of the score. They sum to 1.

    The weights start from the settings, or from the policy's own weights where the settings give none. Then:

    - A time-sensitive query raises freshness (for cosine-1 to .25) and lowers relevance (to .40) and the horizon (to 90
      days).
    - The mode context-strict raises importance (to .35).
    - The mode open lowers relevance (to .35) and importance (to .15).

    For fused-1 the own weights change by the same factors. A weight that is already beyond such a value stays. If query
    and mode both lower relevance, the lower value is used. A weight or horizon from the request is used as it is.
    Raises `BadInput` if all weights are 0.
    """
    own = Weights(*OWN_WEIGHTS[asked.policy or settings.policy], settings.freshness_horizon_days)
    known = _with_settings(settings, own)
    if time_sensitive:
        known = _time_sensitive(known, own, settings.time_sensitive_horizon_days)
    return _normalised(_with_options(_for_mode(known, own, mode), asked))


def _with_settings(settings: ScoringSettings, own: Weights) -> Weights:
    return Weights(
        own.relevance if settings.relevance_weight is None else settings.relevance_weight,
        own.importance if settings.importance_weight is None else settings.importance_weight,
        own.freshness if settings.freshness_weight is None else settings.freshness_weight,
        own.diversity if settings.diversity_weight is None else settings.diversity_weight,
        own.horizon_days,
    )


def _time_sensitive(known: Weights, own: Weights, horizon_days: int) -> Weights:
    return Weights(
        min(known.relevance, own.relevance * _TIME_SENSITIVE_RELEVANCE),
        known.importance,
        max(known.freshness, own.freshness * _TIME_SENSITIVE_FRESHNESS),
        known.diversity,
        min(known.horizon_days, horizon_days),
    )


def _for_mode(known: Weights, own: Weights, mode: GroundingMode) -> Weights:
    relevance, importance = known.relevance, known.importance
    if mode is GroundingMode.CONTEXT_STRICT:
        importance = max(importance, own.importance * _STRICT_IMPORTANCE)
    if mode is GroundingMode.OPEN:
        relevance = min(relevance, own.relevance * _OPEN_RELEVANCE)
        importance = min(importance, own.importance * _OPEN_IMPORTANCE)
    return Weights(relevance, importance, known.freshness, known.diversity, known.horizon_days)


def _with_options(known: Weights, asked: ScoringOptions) -> Weights:
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
        raise _wrong(WEIGHTS[0], ALL_ZERO)
    relevance, importance, freshness, diversity = (part / total for part in parts)
    return Weights(relevance, importance, freshness, diversity, given.horizon_days)


def _wrong(name: str, problem: str) -> BadInput:
    return BadInput(Reason.INVALID_ARGUMENT, problem, field=f"{_FIELD}.{name}")


_NO_VECTOR: Final = -1.0
"""The cosine of something that has no vector: not above any other."""


def fused_relevance(
    words: LexicalIndex,
    facts: VectorIndex[FactId],
    chunks: VectorIndex[NodeId],
    asked: Question,
    vector: Row,
    wanted: Sequence[FactId],
    shares: WordShares | None = None,
) -> dict[FactId, float]:
    """Returns the relevance of facts to a question by `fused-1`, from 0 to 1. All indexes are of the same revision.

    `shares` are the question's word shares for all labels of `words`, if the caller has them. A fact without a chunk is
    compared by its passage instead. A fact that is not in `words`, because it was erased meanwhile, has relevance 0.
    """
    labels = words.labels(wanted)
    if not len(labels):
        return dict.fromkeys(wanted, 0.0)
    ids = words.ids(labels)
    query: Units = units(np.asarray(vector)[np.newaxis])[0]
    own = _cosines_of(facts, query, ids)
    by_passage = _passage_cosines(words, facts, query, words.facts["passage"][labels].astype(np.int64))
    chunk_ids = [NodeId(chunk) for chunk in words.chunk_ids(words.facts["chunk"][labels])]
    by_chunk = _cosines_of(chunks, query, chunk_ids)
    cosines = Cosines(own, by_passage, np.where(by_chunk == _NO_VECTOR, by_passage, by_chunk))
    own_shares = words.shares(asked, labels) if shares is None else shares.of(labels)
    scores = fused(own_shares, cosines).tolist()
    return dict.fromkeys(wanted, 0.0) | dict(zip(ids, scores, strict=True))


def _passage_cosines(words: LexicalIndex, facts: VectorIndex[FactId], query: Units, passages: Labels) -> Scores:
    """Returns the cosine of the query with the mean vector of all facts of each passage."""
    numbers, back = np.unique(passages, return_inverse=True)
    inside = words.inside("passage", numbers)
    inside = inside[np.lexsort((words.facts["id"][inside], words.facts["passage"][inside]))]
    rows = _rows(facts, words.ids(inside), len(query))
    return _cosines(np.add.reduceat(rows, run_starts(words.facts["passage"][inside])), query)[back]


def _rows(index: VectorIndex[Id], ids: Sequence[Id], dimensions: int) -> Scores:
    """Returns rows of length 1; zeros for ids that were erased since the other index was made."""
    there = np.array([id_ in index for id_ in ids], np.bool_)
    rows = np.zeros((len(ids), dimensions))
    rows[there] = index.rows([id_ for id_, is_there in zip(ids, there.tolist(), strict=True) if is_there])
    return rows


def _cosines_of(index: VectorIndex[Id], query: Units, ids: Sequence[Id]) -> Scores:
    known = [id_ for id_ in dict.fromkeys(ids) if id_ in index]
    if not known:
        return np.full(len(ids), _NO_VECTOR)
    found = dict(zip(known, _cosines(index.rows(known).astype(np.float64), query).tolist(), strict=True))
    return np.array([found.get(id_, _NO_VECTOR) for id_ in ids])


def _cosines(rows: Scores, query: Units) -> Scores:
    lengths = np.maximum(np.sqrt(np.einsum("ij,ij->i", rows, rows)), 1e-12)
    return np.asarray(np.einsum("ij,j->i", rows, query.astype(np.float64)) / lengths, np.float64)
