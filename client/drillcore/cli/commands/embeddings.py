"""`drillcore embeddings ...`"""

from __future__ import annotations

import click
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from drillcore._api.embeddings import EmbeddingModel, MigrationProgress
from drillcore.cli.options import connection_options, corpus_option
from drillcore.cli.progress import Bar, is_shown
from drillcore.cli.session import Session, find_corpus_id, pass_session
from drillcore.cli.text import one_line, pairs, printable
from drillcore_formats.plugins import CommandError


@click.group()
def embeddings() -> None:
    """Show the embedding model of a corpus, or migrate the corpus to the server's model."""


@embeddings.command()
@corpus_option
@connection_options
@pass_session
def show(session: Session, corpus: str) -> None:
    """Show which embedding model a corpus uses, and the progress of a migration."""
    with session.client() as client:
        found = client.get_migration(find_corpus_id(client, corpus))
    rows = [
        ("current", _name(found.current)),
        ("next", _name(found.next)),
        ("done", f"{found.done:,} of {found.total:,}" if found.next else ""),
        ("begun_at", found.begun_at),
        ("finished_at", found.finished_at),
    ]
    session.emit(found, pairs((name, one_line(value)) for name, value in rows))


@embeddings.command()
@corpus_option
@connection_options
@pass_session
def migrate(session: Session, corpus: str) -> None:
    """Embed a whole corpus again with the server's model. Searches use the old vectors until all new ones are there.

    If you stop it, nothing is lost: run the same command again.
    """
    columns = TextColumn("embedding"), BarColumn(), MofNCompleteColumn(), TextColumn("ETA"), TimeRemainingColumn()
    with session.client() as client, Bar(*columns, shown=is_shown(session)) as bar:
        last: MigrationProgress | None = None
        for last in client.migrate_embeddings(find_corpus_id(client, corpus)):
            bar.update(completed=last.migration.done, total=last.migration.total)
    if last is None:
        raise CommandError(
            "UNAVAILABLE", "the server ended the migration without an answer: run the same command again"
        )
    model = _name(last.migration.current)
    session.emit(last, f"{printable(corpus)} uses {model}; revision {last.revision}")


def _name(model: EmbeddingModel | None) -> str:
    return f"{printable(model.name)} ({model.dimensions} dimensions)" if model else ""
