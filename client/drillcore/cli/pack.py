"""`drillcore pack`."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from typing import Any, Final

import click
from click.core import ParameterSource
from rich.console import RenderableType

from drillcore._envelope_results import EnvelopePreview, PackedEnvelope
from drillcore.cli.busy import busy
from drillcore.cli.envelope_text import candidates_table, header_lines, pack_report, preview_report
from drillcore.cli.options import connection_options
from drillcore.cli.pack_options import question_options
from drillcore.cli.session import Session, find_corpus_id, pass_session
from drillcore.cli.text import printable, prose
from drillcore.cli.values import TextFile

_OF_A_CONTINUATION: Final = {"continuation_id", "previous_answer", "explain", "headers", "text_only"}
"""What goes with --continue: the chain remembers all else."""
_NOT_OF_A_PREVIEW: Final = {"if_match", "salted_etag", "explain", "text_only"}


@click.command()
@click.argument("query", required=False)
@question_options
@click.option("--if-match", metavar="ETAG", default="", help="Or an id: say only that it is not modified, if so.")
@click.option("--salted-etag", is_flag=True, help="An etag that tells nothing across sessions; with --session.")
@click.option("--continue", "continuation_id", metavar="ID", help="The next window, instead of a QUERY.")
@click.option("--answer-file", "previous_answer", type=TextFile(), help="With --continue: what the model said.")
@click.option("--preview", is_flag=True, help="Only what it would be, without any content.")
@click.option("--explain", is_flag=True, help="Why each candidate was included or left out.")
@click.option("--headers", is_flag=True, help="The headers of the Context Relay Protocol, too.")
@click.option("--text", "text_only", is_flag=True, help="Only the text for the prompt, to pipe into a model.")
@connection_options
@pass_session
@click.pass_context
def pack(
    context: click.Context,
    session: Session,
    query: str | None,
    corpora: tuple[str, ...],
    asked: dict[str, Any],
    if_match: str,
    salted_etag: bool,
    continuation_id: str | None,
    previous_answer: str | None,
    preview: bool,
    explain: bool,
    headers: bool,
    text_only: bool,
) -> None:
    """Pack the facts that a language model should see for QUERY into a budget of tokens, and show what went in.

    The budget is --budget, or what the context window of --model has left. The same question on the same state gives
    the same envelope. Counts as an access of each fact that is in it.

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
        asked["corpus_ids"] = [find_corpus_id(client, one) for one in corpora]
        if continuation_id is not None:
            found = client.continue_envelope(continuation_id, previous_answer or "", explain=explain)
        elif preview:
            found = client.preview_envelope(query or "", **asked)
        else:
            asked |= {"if_match": if_match, "salted_etag": salted_etag, "explain": explain}
            found = client.pack_envelope(query or "", **asked)
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
    """Refuse what does not go together, before any call."""
    given = _given(context)
    if (query is None) == ("continuation_id" not in given):
        raise click.UsageError("give either a QUERY or --continue")
    if "continuation_id" in given:
        _refuse(context, "--continue", given - _OF_A_CONTINUATION)
    if "previous_answer" in given and "continuation_id" not in given:
        raise click.UsageError("--answer-file goes with --continue")
    if "preview" in given:
        _refuse(context, "--preview", given & _NOT_OF_A_PREVIEW)
    if "text_only" in given:
        _refuse(context, "--text", given & {"explain", "headers"})
        if session.json:
            raise click.UsageError("--text goes without --json, which has the text in it")


def _given(context: click.Context) -> set[str]:
    """Names of what the command line says, but for which server to call and how."""
    named = {one.name for one in context.command.params if one.name and one.expose_value}
    return {one for one in named if context.get_parameter_source(one) is ParameterSource.COMMANDLINE}


def _refuse(context: click.Context, flag: str, others: Collection[str]) -> None:
    flags = sorted(one.opts[0] for one in context.command.params if one.name in others)
    if flags:
        raise click.UsageError(f"{flag} goes without {', '.join(flags)}")


def _emit_text(found: PackedEnvelope) -> None:
    """The text and nothing else on stdout: as it is into a pipe, with its control characters visible in a terminal."""
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
