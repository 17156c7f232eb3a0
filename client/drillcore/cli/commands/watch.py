"""`drillcore watch`."""

from __future__ import annotations

import contextlib
import itertools
from typing import Final

import click

from drillcore._api.events import Event, EventKind
from drillcore.cli.options import connection_options, corpora_option
from drillcore.cli.session import Session, find_corpus_id, pass_session
from drillcore.cli.text import one_line

_KINDS: Final = {kind.value.replace("_", "-"): kind for kind in EventKind}


@click.command()
@corpora_option
@click.option("--kind", "kinds", type=click.Choice(list(_KINDS)), multiple=True, help="Only this kind. Repeatable.")
@click.option("--after", "resume_token", metavar="TOKEN", default="", help="Continue after the event with this token.")
@click.option("--from-beginning", is_flag=True, help="Show past events first.")
@click.option("--count", type=click.IntRange(1), help="Stop after this many events.")
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
    """Show changes as they happen, one event on each line, until you press Ctrl-C.

    With --json each line is a JSON document. Pass its resume_token to --after to continue after that event. Every event
    appears exactly once, even if the connection is lost in between.

    \b
    Examples:
      drillcore watch --kind fact-quarantined
      drillcore watch --corpus rules --from-beginning --json | jq .fact_id
    """
    if resume_token and from_beginning:
        raise click.UsageError("give either --after or --from-beginning")
    with session.client() as client, contextlib.suppress(KeyboardInterrupt):
        events = client.watch_events(
            [find_corpus_id(client, corpus) for corpus in corpora],
            kinds=[_KINDS[kind] for kind in kinds],
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
