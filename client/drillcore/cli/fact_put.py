"""`drillcore fact put`."""

from __future__ import annotations

import contextlib
import json
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

import click
from google.protobuf import json_format
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from drillcore._fact_calls import FactPart
from drillcore._fact_results import NewFact, PutFactsResult
from drillcore.cli.input_files import opened, size_bytes
from drillcore.cli.options import connection_options, corpus_option, set_option, write_options
from drillcore.cli.session import CommandError, Session, find_corpus_id, pass_session
from drillcore.cli.text import counted
from drillcore.errors import DrillcoreError
from drillcore_proto.v1.facts_pb2 import FactDraft


@dataclass(slots=True)
class _Done:
    """What was stored so far."""

    request_id: str
    fact_ids: list[UUID] = field(default_factory=list)
    revisions: list[int] = field(default_factory=list)

    def take(self, result: PutFactsResult) -> None:
        self.fact_ids += result.fact_ids
        self.revisions.append(result.revision)

    def stopped(self, reason: str, message: str) -> CommandError:
        stored = f"stored before it: {counted(len(self.fact_ids), 'fact')}"
        if self.revisions:
            stored += f", up to revision {self.revisions[-1]}; to go on run the same command again with"
            stored += f" --request-id {self.request_id}, what is stored is not stored twice"
        return CommandError(reason, f"{message} ({stored})", request_id=self.request_id)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path), required=False)
@corpus_option
@click.option("--content", help="Instead of a FILE: the one fact's text, 10 to 2048 tokens.")
@click.option("--source", "source_id", metavar="ID", default="", help="With --content: where it comes from.")
@click.option("--location", "source_location", default="", help="With --content: page, paragraph, URL fragment.")
@click.option("--weight", type=click.FloatRange(0, 1), help="With --content: importance.  [default: by its source]")
@click.option("--ttl", default="", help="With --content: ISO 8601 duration such as P90D.")
@click.option("--chunk", "chunk_id", type=click.UUID, help="With --content: the chunk that it is drawn from.")
@click.option("--id", "fact_id", type=click.UUID, help="With --content: an id of your own.")
@set_option
@click.option("--embedding-model", default="", help="What made the embeddings.  [default: the server makes them]")
@click.option("--session", "session_id", metavar="ID", default="", help="Keep them in this session only (no-store).")
@write_options
@connection_options
@pass_session
def put(
    session: Session,
    file: Path | None,
    corpus: str,
    content: str | None,
    source_id: str,
    source_location: str,
    weight: float | None,
    ttl: str,
    chunk_id: UUID | None,
    fact_id: UUID | None,
    metadata: tuple[tuple[str, str], ...],
    embedding_model: str,
    session_id: str,
    request_id: str | None,
) -> None:
    """Store facts from JSON lines in FILE or, with -, from stdin; or one fact by --content and what goes with it.

    A thousand facts go in as one revision, more as several; if a line is wrong, the facts of the revision that it would
    be in are not stored. A line is one fact:

    \b
      {"content": ..., "sourceId": ..., "sourceLocation": ..., "importanceWeight": 0.9, "ttl": "P90D",
       "metadata": {...}, "chunkId": UUID, "span": {"start": 0, "end": 9}, "embedding": [...], "factId": UUID}

    \b
    Examples:
      drillcore fact put facts.jsonl --corpus rules
      drillcore fact put --corpus rules --content "Records are kept for five years after the trial." --source sop-7
    """
    one = NewFact(content or "", source_id, source_location, weight, ttl, dict(metadata), chunk_id, id=fact_id)
    if (file is None) == (content is None):
        raise click.UsageError("give either a FILE or --content")
    if content is None and one != NewFact(""):
        raise click.UsageError("what is said of a fact by flags goes with --content: a FILE says it in its lines")
    done = _Done(request_id or str(uuid.uuid4()))
    shown = not session.json and sys.stderr.isatty()
    with session.client() as client, _facts(file, one, shown=shown) as facts, _said(done):
        for result in client.put_fact_batches(
            find_corpus_id(client, corpus),
            facts,
            embedding_model=embedding_model,
            cache_control="no-store" if session_id else "",
            session_id=session_id,
            request_id=done.request_id,
            timeout_s=session.long_timeout_s,
        ):
            done.take(result)
    document = {"fact_ids": done.fact_ids, "revisions": done.revisions}
    ids = [f"fact {done.fact_ids[0]}"] if content is not None else []
    session.emit(document, *ids, _summary(done, session_id))


def _summary(done: _Done, session_id: str) -> str:
    count = counted(len(done.fact_ids), "fact")
    if session_id:
        return f"kept {count} in session {session_id}, not in the corpus; drillcore fact end-session forgets them"
    return f"stored {count}: " + (f"revision {done.revisions[-1]}" if done.revisions else "no revision")


@contextlib.contextmanager
def _said(done: _Done) -> Iterator[None]:
    """Says of a failure what is stored and how to go on."""
    try:
        yield
    except DrillcoreError as error:
        if not done.revisions:
            raise
        raise done.stopped(error.reason_name, error.message) from error
    except CommandError as error:
        raise done.stopped(error.reason, error.message) from error
    except KeyboardInterrupt as error:
        message = "stopped at the user's wish; the facts under way may be stored or not"
        raise done.stopped("ABORTED", message) from error


@contextlib.contextmanager
def _facts(file: Path | None, one: NewFact, *, shown: bool) -> Iterator[Iterable[FactPart]]:
    if file is None:
        yield [one]
        return
    with opened(file) as lines, _Bar(size_bytes(file), shown=shown) as bar:
        yield _drafts(lines, bar.read)


def _drafts(lines: BinaryIO, read: Callable[[int], object]) -> Iterator[FactDraft]:
    """The facts. `read` hears how many bytes were. Raises CommandError, which names the line."""
    for number, line in enumerate(lines, 1):
        read(len(line))
        if line.strip():
            yield _draft(line, number)


def _draft(line: bytes, number: int) -> FactDraft:
    try:
        record = json.loads(line)
        if not isinstance(record, dict):
            raise ValueError("it must be one object")
        return json_format.ParseDict(record, FactDraft())
    except (ValueError, RecursionError, json_format.ParseError) as error:
        raise CommandError("INVALID_LINE", f"line {number}: {error}") from error


class _Bar:
    """Shows on stderr how much of a file was read, as its facts are sent."""

    def __init__(self, size_bytes: int | None, *, shown: bool) -> None:
        self._progress = Progress(
            TextColumn("{task.fields[facts]} facts"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=Console(stderr=True, highlight=False, markup=False, emoji=False),
            disable=not shown,
            transient=True,
        )
        self._task = self._progress.add_task("", total=size_bytes, facts=0)
        self._facts = 0

    def read(self, size_bytes: int) -> None:
        self._facts += 1
        self._progress.update(self._task, advance=size_bytes, facts=self._facts)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
