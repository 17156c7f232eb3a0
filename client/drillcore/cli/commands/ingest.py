"""`drillcore ingest`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import UUID

import click
from rich.progress import (
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from drillcore._api.documents import AddEvent, AddResult, DocumentOutcome, OutcomeKind
from drillcore._client import Client
from drillcore.cli.commands.ingest_files import (
    Batch,
    Given,
    InputFile,
    Item,
    batches,
    find_inputs,
    new_documents,
    request_id,
    unreadable,
)
from drillcore.cli.options import connection_options, corpus_option, set_option
from drillcore.cli.progress import FILE_COLUMNS, Bar, is_shown
from drillcore.cli.session import Session, find_corpus_id, pass_session
from drillcore.cli.text import error_text, printable
from drillcore.errors import DrillcoreError, Unavailable
from drillcore_formats.plugins import CommandError

MEGABYTE: Final = 1_000_000
_FIRST_PAUSE_S: Final = 0.5


@dataclass(slots=True)
class _Done:
    """What is stored so far."""

    corpus_id: UUID
    revision: int
    batches: int = 0
    outcomes: list[DocumentOutcome] = field(default_factory=list)

    def count(self, kind: OutcomeKind) -> int:
        return sum(outcome.kind is kind for outcome in self.outcomes)

    def take(self, result: AddResult) -> None:
        self.revision = result.revision
        self.batches += 1
        self.outcomes += result.outcomes


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@corpus_option
@click.option("--name", help="Name of the document from stdin.")
@click.option(
    "--base",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Folder that the names of documents are relative to.  [default: the current folder]",
)
@click.option("--media-type", default="", help="Hint to the format of all documents. The content decides.")
@set_option
@click.option(
    "--batch-mb",
    type=click.FloatRange(min=0, min_open=True),
    default=16.0,
    show_default=True,
    help="Size of a batch.",
)
@click.option("--atomic", is_flag=True, help="Add everything as one revision, whatever its size is.")
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
    """Add documents to a corpus. PATH is a file, a folder, a quoted pattern, or - for stdin.

    Folders are read with all their subfolders; hidden files are left out unless you name them. Documents travel in
    batches, and each batch becomes one revision. After an interruption, run the same command again: it skips documents
    that the corpus has already. Exit code 1 if a document failed; the others are added nevertheless.

    \b
    Examples:
      drillcore ingest ./regulations --corpus rules
      drillcore ingest 'reports/**/*.pdf' --corpus trials --set phase=2
      pdftotext report.pdf - | drillcore ingest - --name report.txt --corpus trials
    """
    if name is not None and "-" not in paths:
        raise click.UsageError("--name is for the document from stdin: add - to the paths")
    inputs = find_inputs(paths, base=Path(os.path.abspath(base)), stdin_name=name)
    given = Given(media_type, dict(metadata))
    size_bytes_max = None if atomic else int(batch_mb * MEGABYTE)
    with session.client() as client:
        done = _start(client, corpus, inputs.unusable)
        total_bytes = sum(file.size_bytes for file in inputs.files)
        with IngestProgress(total_bytes, len(inputs.files), shown=is_shown(session)) as progress:
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
    """Sends one batch after the other. Each becomes one revision."""

    def __init__(self, session: Session, client: Client, given: Given, done: _Done, progress: IngestProgress) -> None:
        self._client = client
        self._given = given
        self._done = done
        self._progress = progress
        self._timeout_s = session.upload_timeout_s

    def send_all(self, all_batches: Iterator[Batch]) -> None:
        """Raises CommandError if a batch fails or the user stops it. It says what is stored and how to continue."""
        try:
            for batch in all_batches:
                self._progress.begin(batch)
                self._done.take(self._send(batch))
                self._progress.end(batch)
        except DrillcoreError as error:
            if not self._done.batches:
                raise
            raise self._stopped(error.reason_name, error_text(error), error.request_id) from error
        except CommandError as error:
            raise self._stopped(error.reason, error.message) from error
        except OSError as error:
            raise self._stopped("UNREADABLE", f"a file can no longer be read: {error}") from error
        except KeyboardInterrupt as error:
            message = "you stopped it; the batch that was being sent may be stored or not"
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
        advice = "to continue, run the same command again: it skips documents that the corpus has"
        return CommandError(reason, f"{message} ({stored}; {advice})", request_id=name)


def _summarise(session: Session, done: _Done) -> None:
    counts = {kind.value: done.count(kind) for kind in OutcomeKind}
    failures = [outcome for outcome in done.outcomes if outcome.kind is OutcomeKind.FAILED]
    document = {
        "corpus_id": done.corpus_id,
        "revision": done.revision,
        "batches": done.batches,
        **counts,
        "documents": done.outcomes,
    }
    lines = [
        Text(printable(f"failed: {failure.name}: {failure.reason}: {failure.message}"), "red") for failure in failures
    ]
    summary = ", ".join(f"{number:,} {kind}" for kind, number in counts.items())
    session.emit(document, *lines, f"{summary}; revision {done.revision}")


class IngestProgress(Bar):
    """Shows how many bytes of documents the server has processed, how fast, and the time left.

    Bytes that are only sent do not count: sending is quick, and then the server works. Within a batch the server
    reports characters, which stand for bytes; at the end of the batch the number of bytes is known.
    """

    def __init__(self, total_bytes: int, documents: int, *, shown: bool) -> None:
        super().__init__(
            TextColumn("{task.fields[documents]}/{task.fields[of]} documents"),
            *(column() for column in FILE_COLUMNS),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            shown=shown,
            total=total_bytes,
            documents=0,
            of=documents,
        )
        self._documents = 0
        self._finished_bytes = 0
        self._begin(())

    def _begin(self, batch: Batch) -> None:
        self._sizes = {item.file.name: item.file.size_bytes for item in batch}
        self._sent_bytes = 0
        self._settled_bytes = 0
        self._prepared = 0

    def begin(self, batch: Batch) -> None:
        """Starts a batch, or starts it again."""
        self._begin(batch)
        self._show(0)

    def sent(self, size_bytes: int) -> None:
        self._sent_bytes += size_bytes

    def event(self, event: AddEvent) -> None:
        if not isinstance(event, DocumentOutcome):
            self._prepared = event.characters_prepared
        elif event.kind in {OutcomeKind.UNCHANGED, OutcomeKind.FAILED}:
            # The server did not process these. A file of several documents has several outcomes; the first one counts.
            self._settled_bytes += self._sizes.pop(event.name, 0)
        self._show(min(self._settled_bytes + self._prepared, self._sent_bytes))

    def end(self, batch: Batch) -> None:
        """Ends a batch that was added."""
        self._documents += len(batch)
        self._finished_bytes += sum(item.file.size_bytes for item in batch)
        self._show(0)

    def _show(self, in_batch_bytes: int) -> None:
        completed = self._finished_bytes + in_batch_bytes
        self.update(completed=completed, documents=self._documents)
