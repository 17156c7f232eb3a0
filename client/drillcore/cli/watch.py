"""`drillcore watch`."""

from __future__ import annotations

import contextlib
import itertools
from typing import Final

import click

from drillcore._event_results import Event, EventKind
from drillcore.cli.options import connection_options
from drillcore.cli.session import Session, find_corpus_id, pass_session
from drillcore.cli.text import one_line

_KINDS: Final = {one.value.replace("_", "-"): one for one in EventKind}


@click.command()
@click.option("--corpus", "corpora", metavar="ID|NAME", multiple=True, help="By default all you may read. Repeatable.")
@click.option("--kind", "kinds", type=click.Choice(list(_KINDS)), multiple=True, help="Only these. Repeatable.")
@click.option("--after", "resume_token", metavar="TOKEN", default="", help="Go on after the event with this token.")
@click.option("--from-beginning", is_flag=True, help="All that there is, instead of from now on.")
@click.option("--count", type=click.IntRange(1), help="End after so many events.")
@connection_options
@pass_session
def watch(
    session: Session,
    corpora: tuple[str, ...],
    kinds: tuple[str, ...],
    resume_token: str,
    from_beginning: bool,
    count: int | None,
) -> None:
    """Show what changes, as it changes, a line for each event, until you stop it (Ctrl-C).

    With --json each line is a JSON document. Its resume_token goes on after that event, with --after; no event is left
    out and none comes twice, also when the connection is lost in between.

    \b
    Examples:
      drillcore watch --kind fact-quarantined
      drillcore watch --corpus rules --from-beginning --json | jq .fact_id
    """
    if resume_token and from_beginning:
        raise click.UsageError("give either --after or --from-beginning")
    with session.client() as client, contextlib.suppress(KeyboardInterrupt):
        events = client.watch_events(
            [find_corpus_id(client, one) for one in corpora],
            kinds=[_KINDS[one] for one in kinds],
            resume_token=resume_token,
            from_beginning=from_beginning,
        )
        for event in itertools.islice(events, count):
            session.emit_line(event, _line(event))


def _line(event: Event) -> str:
    about = event.fact_id or event.document_id
    parts = [
        str(one_line(event.at)),
        event.kind.value.replace("_", " "),
        f"corpus {event.corpus_id} revision {event.revision}",
        *([f"{'fact' if event.fact_id else 'document'} {about}"] if about else []),
        *([event.fact_status.value.lower()] if event.fact_status else []),
    ]
    return "  ".join(parts)
