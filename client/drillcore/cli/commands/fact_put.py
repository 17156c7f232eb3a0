"""`drillcore fact put`."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

import click
from google.protobuf import json_format
from rich.progress import TextColumn

from drillcore._api.fact_data import NewFact, PutFactsResult
from drillcore._api.facts import FactPart
from drillcore.cli.files import INPUT_PATH_OR_STDIN, opened, size_bytes
from drillcore.cli.options import connection_options, corpus_option, set_option, write_options
from drillcore.cli.progress import FILE_COLUMNS, Bar, is_shown
from drillcore.cli.session import Session, find_corpus_id, pass_session
from drillcore.cli.text import counted, error_text
from drillcore.errors import DrillcoreError
from drillcore_formats.plugins import CommandError
from drillcore_proto.v1.facts_pb2 import FactDraft


@dataclass(slots=True)
class _Done:
    """What is stored so far."""

    request_id: str
    fact_ids: list[UUID] = field(default_factory=list)
    revisions: list[int] = field(default_factory=list)

    def take(self, result: PutFactsResult) -> None:
        self.fact_ids += result.fact_ids
        self.revisions.append(result.revision)

    def stopped(self, reason: str, message: str) -> CommandError:
        stored = f"stored before it: {counted(len(self.fact_ids), 'fact')}"
        if self.revisions:
            stored += f", up to revision {self.revisions[-1]}; to continue, run the same command again with"
            stored += f" --request-id {self.request_id}: no fact is stored twice"
        return CommandError(reason, f"{message} ({stored})", request_id=self.request_id)


@click.command()
@click.argument("file", type=INPUT_PATH_OR_STDIN, required=False)
@corpus_option
@click.option("--content", help="Instead of FILE: the text of one fact, 10 to 2048 tokens.")
@click.option("--source", "source_id", metavar="ID", default="", help="With --content: the source it comes from.")
@click.option("--location", "source_location", default="", help="With --content: page, paragraph or URL fragment.")
@click.option("--weight", type=click.FloatRange(0, 1), help="With --content: importance.  [default: by its source]")
@click.option("--ttl", default="", help="With --content: ISO 8601 duration such as P90D.")
@click.option("--chunk", "chunk_id", type=click.UUID, help="With --content: the chunk it comes from.")
@click.option("--id", "fact_id", type=click.UUID, help="With --content: an id of your own.")
@set_option
@click.option("--embedding-model", default="", help="Model that made the embeddings.  [default: the server makes them]")
@click.option(
    "--session", "session_id", metavar="ID", default="", help="Keep the facts only in this session (no-store)."
)
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
    """Store facts from the JSON lines of FILE or stdin (-), or one fact given by --content and other flags.

    Each thousand facts become one revision. If a line is wrong, none of the facts of its revision is stored. Each line
    is one fact:

    \b
      {"content": ..., "sourceId": ..., "sourceLocation": ..., "importanceWeight": 0.9, "ttl": "P90D",
       "metadata": {...}, "chunkId": UUID, "span": {"start": 0, "end": 9}, "embedding": [...], "factId": UUID}

    \b
    Examples:
      drillcore fact put facts.jsonl --corpus rules
      drillcore fact put --corpus rules --content "Records are kept for five years after the trial." --source sop-7
    """
    single = NewFact(content or "", source_id, source_location, weight, ttl, dict(metadata), chunk_id, id=fact_id)
    if (file is None) == (content is None):
        raise click.UsageError("give either a FILE or --content")
    if content is None and single != NewFact(""):
        raise click.UsageError("flags about one fact need --content: put them into the lines of FILE")
    done = _Done(request_id or str(uuid.uuid4()))
    with session.client() as client, _facts(file, single, shown=is_shown(session)) as facts, _reported(done):
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
        return f"kept {count} only in session {session_id}; `drillcore fact end-session` destroys them"
    return f"stored {count}: " + (f"revision {done.revisions[-1]}" if done.revisions else "no revision")


@contextlib.contextmanager
def _reported(done: _Done) -> Iterator[None]:
    """After a failure, reports what is stored and how to continue."""
    try:
        yield
    except DrillcoreError as error:
        if not done.revisions:
            raise
        raise done.stopped(error.reason_name, error_text(error)) from error
    except CommandError as error:
        raise done.stopped(error.reason, error.message) from error
    except KeyboardInterrupt as error:
        message = "you stopped it; the facts that were being sent may be stored or not"
        raise done.stopped("ABORTED", message) from error


@contextlib.contextmanager
def _facts(file: Path | None, single: NewFact, *, shown: bool) -> Iterator[Iterable[FactPart]]:
    if file is None:
        yield [single]
        return
    with opened(file) as lines, _Bar(size_bytes(file), shown=shown) as bar:
        yield _drafts(lines, bar.read)


def _drafts(lines: BinaryIO, read: Callable[[int], object]) -> Iterator[FactDraft]:
    """The facts of the file. `read` is called with the size of each line. Raises CommandError that names the line."""
    for number, line in enumerate(lines, 1):
        read(len(line))
        if line.strip():
            yield _draft(line, number)


def _draft(line: bytes, number: int) -> FactDraft:
    try:
        record = json.loads(line)
        if not isinstance(record, dict):
            raise ValueError("the line must be one JSON object")
        return json_format.ParseDict(record, FactDraft())
    except (ValueError, RecursionError, json_format.ParseError) as error:
        raise CommandError("INVALID_LINE", f"line {number}: {error}") from error


class _Bar(Bar):
    """Shows how much of a file was read, and how many facts it had so far."""

    def __init__(self, size_bytes: int | None, *, shown: bool) -> None:
        columns = TextColumn("{task.fields[facts]} facts"), *(column() for column in FILE_COLUMNS)
        super().__init__(*columns, shown=shown, total=size_bytes, facts=0)
        self._facts = 0

    def read(self, size_bytes: int) -> None:
        self._facts += 1
        self.update(advance=size_bytes, facts=self._facts)
