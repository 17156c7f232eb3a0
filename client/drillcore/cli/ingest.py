"""`drillcore ingest`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import UUID

import click
from rich.text import Text

from drillcore._client import Client
from drillcore._document_results import AddResult, DocumentOutcome, OutcomeKind
from drillcore.cli.ingest_batches import Batch, Given, Item, batches, new_documents, request_id
from drillcore.cli.ingest_files import InputFile, find_inputs, unreadable
from drillcore.cli.ingest_progress import IngestProgress
from drillcore.cli.options import connection_options, corpus_option, set_option
from drillcore.cli.session import CommandError, Session, find_corpus_id, pass_session
from drillcore.cli.text import printable
from drillcore.errors import DrillcoreError, Unavailable

MEGABYTE: Final = 1_000_000
_FIRST_PAUSE_S: Final = 0.5


@dataclass(slots=True)
class _Done:
    """What was done so far."""

    corpus_id: UUID
    revision: int
    batches: int = 0
    outcomes: list[DocumentOutcome] = field(default_factory=list)

    def count(self, kind: OutcomeKind) -> int:
        return sum(one.kind is kind for one in self.outcomes)

    def take(self, result: AddResult) -> None:
        self.revision = result.revision
        self.batches += 1
        self.outcomes += result.outcomes


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@corpus_option
@click.option("--name", help="Name of what comes from stdin.")
@click.option(
    "--base",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Documents are named by their path below this folder.  [default: the current one]",
)
@click.option("--media-type", default="", help="Hint to the format of all documents; the content decides.")
@set_option
@click.option(
    "--batch-mb",
    type=click.FloatRange(min=0, min_open=True),
    default=16.0,
    show_default=True,
    help="Size of a revision.",
)
@click.option("--atomic", is_flag=True, help="Add everything as one revision, whatever its size.")
@connection_options
@pass_session
@click.pass_context
def ingest(
    context: click.Context,
    session: Session,
    paths: tuple[str, ...],
    corpus: str,
    name: str | None,
    base: Path,
    media_type: str,
    metadata: tuple[tuple[str, str], ...],
    batch_mb: float,
    atomic: bool,
) -> None:
    """Add documents to a corpus: files, folders with all that is in them, quoted patterns, and - for stdin.

    Hidden files are left out unless they are named. Documents travel in batches, each of which becomes one revision.
    After an interruption run the same command again: documents that the corpus has already are skipped. Exit code 1 if
    a document failed; the others are added all the same.

    \b
    Examples:
      drillcore ingest ./regulations --corpus rules
      drillcore ingest 'reports/**/*.pdf' --corpus trials --set phase=2
      pdftotext report.pdf - | drillcore ingest - --name report.txt --corpus trials
    """
    if name is not None and "-" not in paths:
        raise click.UsageError("--name is for what comes from stdin: add -")
    inputs = find_inputs(paths, base=Path(os.path.abspath(base)), stdin_name=name)
    given = Given(media_type, dict(metadata))
    size_bytes_max = None if atomic else int(batch_mb * MEGABYTE)
    with session.client() as client:
        done = _start(client, corpus, inputs.unusable)
        shown = not session.json and sys.stderr.isatty()
        total_bytes = sum(one.size_bytes for one in inputs.files)
        with IngestProgress(total_bytes, len(inputs.files), shown=shown) as progress:
            sender = _Sender(session, client, given, done, progress)
            sender.send_all(batches(_hashed(inputs.files, done), size_bytes_max))
    _summarise(session, done)
    context.exit(1 if done.count(OutcomeKind.FAILED) else 0)


def _start(client: Client, corpus: str, unusable: Sequence[DocumentOutcome]) -> _Done:
    corpus_id = find_corpus_id(client, corpus)
    newest = client.history(corpus_id, page_size=1).items
    return _Done(corpus_id, newest[0].revision if newest else 0, outcomes=list(unusable))


def _hashed(files: Sequence[InputFile], done: _Done) -> Iterator[Item]:
    for file in files:
        try:
            yield Item(file, file.digest())
        except OSError as error:
            done.outcomes.append(unreadable(file.name, error))


class _Sender:
    """Sends batches one after the other, each as one revision."""

    def __init__(self, session: Session, client: Client, given: Given, done: _Done, progress: IngestProgress) -> None:
        self._client = client
        self._given = given
        self._done = done
        self._progress = progress
        self._timeout_s = session.upload_timeout_s

    def send_all(self, all_batches: Iterator[Batch]) -> None:
        """Raises CommandError, which says what is stored and how to go on, if a batch fails or the user stops it."""
        try:
            for batch in all_batches:
                self._progress.begin(batch)
                self._done.take(self._send(batch))
                self._progress.end(batch)
        except DrillcoreError as error:
            if not self._done.batches:
                raise
            raise self._stopped(error.reason_name, error.message, error.request_id) from error
        except CommandError as error:
            raise self._stopped(error.reason, error.message) from error
        except OSError as error:
            raise self._stopped("UNREADABLE", f"a file can no longer be read: {error}") from error
        except KeyboardInterrupt as error:
            message = "stopped at the user's wish; the batch under way may be stored or not"
            raise self._stopped("ABORTED", message) from error

    def _send(self, batch: Batch) -> AddResult:
        name = request_id(self._done.corpus_id, self._done.revision, batch, self._given)
        for attempt in range(self._client.settings.attempts - 1):
            try:
                return self._send_once(batch, name)
            except Unavailable:
                time.sleep(_FIRST_PAUSE_S * 2**attempt)
                self._progress.begin(batch)
        return self._send_once(batch, name)

    def _send_once(self, batch: Batch, name: str) -> AddResult:
        return self._client.add_documents(
            self._done.corpus_id,
            new_documents(batch, self._given, self._progress.sent),
            on_event=self._progress.event,
            request_id=name,
            timeout_s=self._timeout_s,
        )

    def _stopped(self, reason: str, message: str, name: str | None = None) -> CommandError:
        stored = f"batches stored before it: {self._done.batches}, up to revision {self._done.revision}"
        go_on = "to go on run the same command again, what the corpus has is skipped"
        return CommandError(reason, f"{message} ({stored}; {go_on})", request_id=name)


def _summarise(session: Session, done: _Done) -> None:
    counts = {kind.value: done.count(kind) for kind in OutcomeKind}
    failures = [one for one in done.outcomes if one.kind is OutcomeKind.FAILED]
    document = {
        "corpus_id": done.corpus_id,
        "revision": done.revision,
        "batches": done.batches,
        **counts,
        "documents": done.outcomes,
    }
    lines = [Text(printable(f"failed: {one.name}: {one.reason}: {one.message}"), "red") for one in failures]
    summary = ", ".join(f"{number:,} {kind}" for kind, number in counts.items())
    session.emit(document, *lines, f"{summary}; revision {done.revision}")
