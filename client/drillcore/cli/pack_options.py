"""Flags that say what an envelope is asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import wraps
from typing import Any, Final
from uuid import UUID

import click

from drillcore._envelope_results import GroundingMode, QualityTier, RenderFormat, ScoringOptions
from drillcore._fact_results import FactFilter
from drillcore.cli.fact_options import fact_filter_options
from drillcore.cli.options import as_of_option
from drillcore.cli.values import TextFile, Tiers, Weight

GROUNDING: Final = {
    "strict": GroundingMode.CONTEXT_STRICT,
    "preferred": GroundingMode.CONTEXT_PREFERRED,
    "open": GroundingMode.OPEN,
}
_TOKENS: Final = click.IntRange(1, 10**9)
_MAYBE_TOKENS: Final = click.IntRange(0, 10**9)
_COUNT: Final = click.IntRange(1, 1_000_000)
_SHARE: Final = click.FloatRange(0, 1)

_FLAGS: Final = (
    click.option("--corpus", "corpora", metavar="ID|NAME", multiple=True, help="By default all. Repeatable."),
    click.option(
        "--model", default="", help="Whose tokenizer counts, and whose window it is.  [default: the server's]"
    ),
    click.option("--budget", "budget_tokens", type=_TOKENS, help="Tokens.  [default: what the window has left]"),
    click.option("--context-window", type=_TOKENS, help="Tokens, instead of the model's own."),
    click.option("--system-prompt-file", "system_prompt", type=TextFile(), help="Counted, unless there is --budget."),
    click.option(
        "--response-tokens",
        "expected_response_tokens",
        type=_MAYBE_TOKENS,
        help="Room for the answer.  [default: 2048]",
    ),
    click.option(
        "--margin-tokens", "safety_margin_tokens", type=_MAYBE_TOKENS, help="Room to be safe.  [default: 512]"
    ),
    click.option(
        "--grounding",
        type=click.Choice([*GROUNDING]),
        default="preferred",
        show_default=True,
        help="How far the answer may leave the facts.",
    ),
    click.option("--accept", "accept_tiers", type=Tiers(), default=(), help="Fail below these, as in S,A."),
    click.option("--scoring-policy", "policy", default="", help="cosine-1 or fused-1.  [default: the server's]"),
    click.option("--weight", "weights", type=Weight(), multiple=True, help="relevance=0.6 and such. Repeatable."),
    click.option("--horizon-days", "freshness_horizon_days", type=_COUNT, help="A fact older than this is not fresh."),
    click.option("--relevance-floor", type=_SHARE, help="From which on a candidate counts as relevant."),
    click.option("--duplicate-similarity", type=_SHARE, help="From which on two facts say the same."),
    click.option("--candidates", "candidates_per_query", type=_COUNT, help="Of each sub-query."),
    click.option("--cache-control", default="", help="no-cache, no-store, only-if-ckf, max-age=SECONDS, reuse-ckf."),
    click.option("--session", "session_id", metavar="ID", default="", help="Pack in this session, with its facts."),
    click.option("--in-window", "window_fact_ids", type=click.UUID, multiple=True, help="Fact you have. Repeatable."),
    click.option("--memory-tier-max", type=click.IntRange(0, 3), help="How deep to look.  [default: 3, the store]"),
    click.option("--exact", is_flag=True, help="Compare every vector."),
    click.option(
        "--format",
        "rendered",
        type=click.Choice([one.value for one in RenderFormat]),
        default=RenderFormat.MARKDOWN.value,
        show_default=True,
        help="Of the text for the prompt.",
    ),
)


def question_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What to pack: the command gets `corpora`, and the arguments of `pack_envelope` as `asked`."""

    @wraps(command)
    def with_question(
        *args: Any,
        system_prompt: str | None,
        grounding: str,
        accept_tiers: tuple[QualityTier, ...],
        policy: str,
        weights: tuple[tuple[str, float], ...],
        freshness_horizon_days: int | None,
        relevance_floor: float | None,
        duplicate_similarity: float | None,
        candidates_per_query: int | None,
        window_fact_ids: tuple[UUID, ...],
        rendered: str,
        wanted: FactFilter,
        **others: Any,
    ) -> Any:
        scoring = ScoringOptions(
            policy,
            **{f"{part}_weight": weight for part, weight in weights},
            freshness_horizon_days=freshness_horizon_days,
            relevance_floor=relevance_floor,
            duplicate_similarity=duplicate_similarity,
            candidates_per_query=candidates_per_query,
        )
        asked = {
            "system_prompt": system_prompt or "",
            "grounding_mode": GROUNDING[grounding],
            "accept_tiers": accept_tiers,
            "scoring": None if scoring == ScoringOptions() else scoring,
            "filters": wanted if _says_something(wanted) else None,
            "window_fact_ids": window_fact_ids,
            "format": RenderFormat(rendered),
        }
        return command(*args, asked=asked | {name: others.pop(name) for name in _AS_THEY_ARE}, **others)

    flagged = as_of_option(fact_filter_options(with_question))
    for flag in reversed(_FLAGS):
        flagged = flag(flagged)
    return flagged


_AS_THEY_ARE: Final = (
    "model",
    "budget_tokens",
    "context_window",
    "expected_response_tokens",
    "safety_margin_tokens",
    "cache_control",
    "session_id",
    "memory_tier_max",
    "exact",
    "as_of",
)
"""Flags that are arguments already."""


def _says_something(wanted: FactFilter) -> bool:
    return any(getattr(wanted, one.name) for one in dataclasses.fields(wanted))
