"""`drillcore pack` and `drillcore envelope ...`"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from functools import wraps
from typing import Any, Final
from uuid import UUID

import click
from click.core import ParameterSource
from rich.console import RenderableType

from drillcore._api.envelope_data import (
    EnvelopePreview,
    GroundingMode,
    PackedEnvelope,
    QualityTier,
    RenderFormat,
    Replay,
    ScoringOptions,
)
from drillcore._api.fact_data import FactFilter
from drillcore.cli.commands.envelope_text import (
    candidates_table,
    header_lines,
    issued_report,
    pack_report,
    preview_report,
)
from drillcore.cli.options import applied, as_of_option, connection_options, corpora_option, fact_filter_options
from drillcore.cli.progress import busy
from drillcore.cli.session import Session, find_corpus_id, pass_session
from drillcore.cli.text import printable, prose
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
    corpora_option,
    click.option(
        "--model", default="", help="Model whose tokenizer and context window count.  [default: the server's]"
    ),
    click.option(
        "--budget",
        "budget_tokens",
        type=_TOKENS,
        help="Tokens for the envelope.  [default: what the context window has left]",
    ),
    click.option("--context-window", type=_TOKENS, help="Tokens of the context window.  [default: the model's]"),
    click.option(
        "--system-prompt-file",
        "system_prompt",
        type=TextFile(),
        help="File with the system prompt, to count its tokens.",
    ),
    click.option(
        "--response-tokens",
        "expected_response_tokens",
        type=_MAYBE_TOKENS,
        help="Tokens to leave for the answer.  [default: 2048]",
    ),
    click.option(
        "--margin-tokens",
        "safety_margin_tokens",
        type=_MAYBE_TOKENS,
        help="Tokens to leave as a margin.  [default: 512]",
    ),
    click.option(
        "--grounding",
        type=click.Choice([*GROUNDING]),
        default="preferred",
        show_default=True,
        help="How closely the answer must keep to the facts.",
    ),
    click.option(
        "--accept", "accept_tiers", type=Tiers(), default=(), help="Quality tiers to accept, as in S,A.  [default: all]"
    ),
    click.option("--scoring-policy", "policy", default="", help="cosine-1 or fused-1.  [default: the server's]"),
    click.option(
        "--weight", "weights", type=Weight(), multiple=True, help="Weight of a score, as in relevance=0.6. Repeatable."
    ),
    click.option("--horizon-days", "freshness_horizon_days", type=_COUNT, help="Facts older than this are not fresh."),
    click.option("--relevance-floor", type=_SHARE, help="Least relevance of a relevant candidate."),
    click.option("--duplicate-similarity", type=_SHARE, help="Least similarity of duplicates."),
    click.option("--candidates", "candidates_per_query", type=_COUNT, help="Candidates for each sub-query."),
    click.option("--cache-control", default="", help="no-cache, no-store, only-if-ckf, max-age=SECONDS, reuse-ckf."),
    click.option("--session", "session_id", metavar="ID", default="", help="Pack in this session, with its facts."),
    click.option(
        "--in-window",
        "window_fact_ids",
        type=click.UUID,
        multiple=True,
        help="Fact that is in your window already. Repeatable.",
    ),
    click.option(
        "--memory-tier-max", type=click.IntRange(0, 3), help="Deepest memory tier to search.  [default: 3, the store]"
    ),
    click.option("--exact", is_flag=True, help="Compare every vector."),
    click.option(
        "--format",
        "rendered",
        type=click.Choice([known.value for known in RenderFormat]),
        default=RenderFormat.MARKDOWN.value,
        show_default=True,
        help="Format of the text for the prompt.",
    ),
)


def _question_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What to pack. The command gets `corpora`, and the arguments of `pack_envelope` as `question`."""

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
        filters: FactFilter,
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
        question = {
            "system_prompt": system_prompt or "",
            "grounding_mode": GROUNDING[grounding],
            "accept_tiers": accept_tiers,
            "scoring": None if scoring == ScoringOptions() else scoring,
            "filters": filters,
            "window_fact_ids": window_fact_ids,
            "format": RenderFormat(rendered),
        }
        return command(*args, question=question | {name: others.pop(name) for name in _UNCHANGED}, **others)

    return applied(as_of_option(fact_filter_options(with_question)), *_FLAGS)


_UNCHANGED: Final = (
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
"""Flags that become arguments of `pack_envelope` as they are."""


_WITH_CONTINUE: Final = {"continuation_id", "previous_answer", "explain", "headers", "text_only"}
"""Flags that may stand beside --continue. The chain remembers everything else."""
_NOT_WITH_PREVIEW: Final = {"if_match", "salted_etag", "explain", "text_only"}


@click.command()
@click.argument("query", required=False)
@_question_options
@click.option(
    "--if-match",
    metavar="ETAG",
    default="",
    help="Etag or id of an envelope you have: do not send it again if it is not modified.",
)
@click.option("--salted-etag", is_flag=True, help="Make the etag differ between sessions; needs --session.")
@click.option(
    "--continue", "continuation_id", metavar="ID", help="Pack the next window of a chain, instead of a QUERY."
)
@click.option(
    "--answer-file", "previous_answer", type=TextFile(), help="With --continue: file with the model's answer so far."
)
@click.option("--preview", is_flag=True, help="Show what the envelope would be like, without its content.")
@click.option("--explain", is_flag=True, help="Show why each candidate was included or left out.")
@click.option("--headers", is_flag=True, help="Also show the headers of the Context Relay Protocol.")
@click.option("--text", "text_only", is_flag=True, help="Show only the text for the prompt, to pipe into a model.")
@connection_options
@pass_session
@click.pass_context
def pack(
    context: click.Context,
    session: Session,
    query: str | None,
    corpora: tuple[str, ...],
    question: dict[str, Any],
    if_match: str,
    salted_etag: bool,
    continuation_id: str | None,
    previous_answer: str | None,
    preview: bool,
    explain: bool,
    headers: bool,
    text_only: bool,
) -> None:
    """Pack the facts that a language model should see for QUERY into a budget of tokens, and show the envelope.

    The budget is --budget, or what the context window of --model has left. The same question on the same state gives
    the same envelope. The call counts as an access of each fact in it.

    \b
    Examples:
      drillcore pack "how long are records kept and who signs them" --corpus rules --budget 2000
      drillcore pack "what changed in 2026" --corpus rules --model gpt-4o --explain
      drillcore pack "adverse events" --accept S,A --grounding strict --text --format xml
      drillcore pack --continue 0190… --answer-file answer.txt
    """
    _check_flags(context, session, query)
    found: PackedEnvelope | EnvelopePreview
    with session.client() as client, busy(session, "the server packs the envelope"):
        question["corpus_ids"] = [find_corpus_id(client, corpus) for corpus in corpora]
        if continuation_id is not None:
            found = client.continue_envelope(continuation_id, previous_answer or "", explain=explain)
        elif preview:
            found = client.preview_envelope(query or "", **question)
        else:
            question |= {"if_match": if_match, "salted_etag": salted_etag, "explain": explain}
            found = client.pack_envelope(query or "", **question)
    if text_only and isinstance(found, PackedEnvelope):
        _emit_text(found)
    else:
        session.emit(found, *_report(found, with_headers=headers))


def _report(found: PackedEnvelope | EnvelopePreview, *, with_headers: bool) -> Iterator[RenderableType]:
    if isinstance(found, PackedEnvelope):
        yield from pack_report(found)
    else:
        yield preview_report(found)
    if isinstance(found, PackedEnvelope) and found.candidates:
        yield ""
        yield candidates_table(found.candidates)
    if with_headers:
        yield ""
        yield from header_lines(found.headers)


def _check_flags(context: click.Context, session: Session, query: str | None) -> None:
    """Refuses flags that exclude each other, before any call."""
    given = _given(context)
    if (query is None) == ("continuation_id" not in given):
        raise click.UsageError("give either a QUERY or --continue")
    if "continuation_id" in given:
        _refuse(context, "--continue", given - _WITH_CONTINUE)
    if "previous_answer" in given and "continuation_id" not in given:
        raise click.UsageError("--answer-file needs --continue")
    if "preview" in given:
        _refuse(context, "--preview", given & _NOT_WITH_PREVIEW)
    if "text_only" in given:
        _refuse(context, "--text", given & {"explain", "headers"})
        if session.json:
            raise click.UsageError("--text and --json exclude each other: the JSON document includes the text")


def _given(context: click.Context) -> set[str]:
    """Names of the parameters on the command line, without the connection options."""
    names = {parameter.name for parameter in context.command.params if parameter.name and parameter.expose_value}
    return {name for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}


def _refuse(context: click.Context, flag: str, others: Collection[str]) -> None:
    flags = sorted(parameter.opts[0] for parameter in context.command.params if parameter.name in others)
    if flags:
        raise click.UsageError(f"{flag} excludes {', '.join(flags)}")


def _emit_text(found: PackedEnvelope) -> None:
    """Writes only the text to stdout: unchanged into a pipe, with control characters escaped in a terminal."""
    if found.envelope is None:
        click.echo(f"not modified: {found.envelope_id or ''}", err=True)
        return
    for warning in found.envelope.warnings:
        click.echo(f"warning: {printable(warning)}", err=True)
    text = found.envelope.text
    if sys.stdout.isatty():
        click.echo(prose(text).plain)
    else:
        click.echo(text, nl=False)


@click.group()
def envelope() -> None:
    """Show context envelopes that were issued. `drillcore pack` makes one."""


@envelope.command()
@click.argument("envelope_id", type=click.UUID, metavar="ENVELOPE")
@connection_options
@pass_session
@click.pass_context
def show(context: click.Context, session: Session, envelope_id: UUID) -> None:
    """Build an envelope again at its revisions, compare it with the one that was issued, and show it.

    Exit codes: 0 if it is the same, or if there is a known reason why it is not; 1 if the store has changed.
    """
    with session.client() as client, busy(session, "the server builds the envelope again"):
        found = client.get_envelope(envelope_id, timeout_s=session.long_timeout_s)
    session.emit(found, *issued_report(found))
    context.exit(1 if found.replay is Replay.DIFFERENT else 0)
