"""`drillcore put`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import click
from google.protobuf import json_format
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from drillcore._hierarchy import PutProgress, PutResult
from drillcore.cli.input_files import opened, size_bytes
from drillcore.cli.options import connection_options, corpus_option, write_options
from drillcore.cli.session import CommandError, Session, find_corpus_id, pass_session
from drillcore.cli.text import counted
from drillcore_proto.v1.documents_pb2 import PutHierarchyRequest

KINDS: Final = ("document", "node")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@corpus_option
@click.option(
    "--embedding-model", default="", help="What made the chunks' embeddings.  [default: the server makes them]"
)
@click.option(
    "--expected-revision", type=click.IntRange(0, 2**48 - 1), help="Refuse if the corpus is at another revision."
)
@write_options
@connection_options
@pass_session
def put(
    session: Session,
    file: Path,
    corpus: str,
    embedding_model: str,
    expected_revision: int | None,
    request_id: str | None,
) -> None:
    """Store a whole hierarchy that you made, from JSON lines in FILE or, with -, from stdin.

    It becomes the next revision of the corpus, which then consists of exactly this hierarchy; earlier revisions keep
    what was there. If a line is wrong nothing is stored. Documents come first, then nodes in any order, one a line:

    \b
      {"document": {"id": UUID, "sourceId": ..., "title": ...}}
      {"node": {"id": UUID, "master": {"summary": ...}}}
      {"node": {"id": UUID, "parentId": UUID, "section": {"title": ..., "category": ..., "summary": ...}}}
      {"node": {"id": UUID, "parentId": UUID, "chunk": {"documentId": UUID, "summary": ..., "embedding": [...]}}}
      {"node": {"parentId": UUID, "raw": {"documentId": UUID, "span": {"start": 0, "end": 9}, "content": ...}}}

    All fields: HierarchyDocument and HierarchyNode in the protocol.

    \b
    Examples:
      drillcore put hierarchy.jsonl --corpus rules
      make-hierarchy | drillcore put - --corpus rules --embedding-model mine-384
    """
    shown = not session.json and sys.stderr.isatty()
    with session.client() as client, opened(file) as lines, _Bar(size_bytes(file), shown=shown) as bar:
        result = client.put_hierarchy(
            find_corpus_id(client, corpus),
            _parts(lines, bar.read),
            embedding_model=embedding_model,
            expected_revision=expected_revision,
            on_event=bar.show,
            request_id=request_id,
            timeout_s=session.upload_timeout_s,
        )
    session.emit(result, _summary(result))


def _summary(result: PutResult) -> str:
    counts = [
        (result.documents, "document"),
        (result.sections, "section"),
        (result.chunks, "chunk"),
        (result.raws, "raw"),
    ]
    return f"stored {', '.join(counted(*one) for one in counts)}: revision {result.revision}"


def _parts(lines: BinaryIO, read: Callable[[int], object]) -> Iterator[PutHierarchyRequest]:
    """The documents and nodes. `read` hears how many bytes were. Raises CommandError, which names the line."""
    for number, line in enumerate(lines, 1):
        read(len(line))
        if line.strip():
            yield _part(line, number)


def _part(line: bytes, number: int) -> PutHierarchyRequest:
    try:
        record = json.loads(line)
        if not isinstance(record, dict) or len(record) != 1 or not set(record) <= set(KINDS):
            raise ValueError('it must be one object with "document" or with "node"')
        return json_format.ParseDict(record, PutHierarchyRequest())
    except (ValueError, RecursionError, json_format.ParseError) as error:
        raise CommandError("INVALID_LINE", f"line {number}: {error}; nothing was stored") from error


class _Bar:
    """Shows on stderr how much was sent and what the server made of it."""

    def __init__(self, size_bytes: int | None, *, shown: bool) -> None:
        self._progress = Progress(
            TextColumn("{task.fields[nodes]} nodes, {task.fields[chunks]} chunks ready"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=Console(stderr=True, highlight=False, markup=False, emoji=False),
            disable=not shown,
            transient=True,
        )
        self._task = self._progress.add_task("", total=size_bytes, nodes=0, chunks=0)

    def read(self, size_bytes: int) -> None:
        self._progress.advance(self._task, size_bytes)

    def show(self, progress: PutProgress) -> None:
        self._progress.update(self._task, nodes=progress.nodes_received, chunks=progress.chunks_prepared)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
