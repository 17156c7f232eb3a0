"""`drillcore embeddings ...`"""

from __future__ import annotations

import sys

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from drillcore._embedding_results import EmbeddingModel, Migration, MigrationProgress
from drillcore.cli.options import connection_options, corpus_option
from drillcore.cli.session import CommandError, Session, find_corpus_id, pass_session
from drillcore.cli.text import one_line, pairs, printable


@click.group()
def embeddings() -> None:
    """Show the embedding model of a corpus, and change it to the server's own."""


@embeddings.command()
@corpus_option
@connection_options
@pass_session
def show(session: Session, corpus: str) -> None:
    """Show which embedding model a corpus uses, and how far its change to another is."""
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
    """Embed all of a corpus anew with the server's own model. Searches use the old vectors until all are there.

    Nothing is lost if it is stopped: run the same command again.
    """
    shown = not session.json and sys.stderr.isatty()
    with session.client() as client, _Bar(shown=shown) as bar:
        last: MigrationProgress | None = None
        for last in client.migrate_embeddings(find_corpus_id(client, corpus)):
            bar.show(last.migration)
    if last is None:
        raise CommandError("UNAVAILABLE", "the server ended the migration without a word; run the same command again")
    model = _name(last.migration.current)
    session.emit(last, f"{printable(corpus)} uses {model}; revision {last.revision}")


def _name(model: EmbeddingModel | None) -> str:
    return f"{printable(model.name)} ({model.dimensions} dimensions)" if model else ""


class _Bar:
    """Shows on stderr how many chunks and facts have their new vector."""

    def __init__(self, *, shown: bool) -> None:
        self._progress = Progress(
            TextColumn("embedding anew"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=Console(stderr=True, highlight=False, markup=False, emoji=False),
            disable=not shown,
            transient=True,
        )
        self._task = self._progress.add_task("", total=None)

    def show(self, migration: Migration) -> None:
        self._progress.update(self._task, completed=migration.done, total=migration.total)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
