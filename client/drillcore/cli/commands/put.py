"""`drillcore put`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import click
from google.protobuf import json_format
from rich.progress import TextColumn

from drillcore._api.hierarchy import PutProgress, PutResult
from drillcore.cli.files import INPUT_PATH_OR_STDIN, opened, size_bytes
from drillcore.cli.options import connection_options, corpus_option, write_options
from drillcore.cli.progress import FILE_COLUMNS, Bar, is_shown
from drillcore.cli.session import Session, find_corpus_id, pass_session
from drillcore.cli.text import counted
from drillcore_formats.plugins import CommandError
from drillcore_proto.v1.documents_pb2 import PutHierarchyRequest

KINDS: Final = ("document", "node")


@click.command()
@click.argument("file", type=INPUT_PATH_OR_STDIN)
@corpus_option
@click.option(
    "--embedding-model", default="", help="Model that made the chunks' embeddings.  [default: the server makes them]"
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
    """Store a whole hierarchy that you made, from the JSON lines of FILE or stdin (-).

    The next revision of the corpus is exactly this hierarchy. Earlier revisions keep the old one. If a line is wrong,
    nothing is stored. Write documents first, then nodes in any order, one on each line:

    \b
      {"document": {"id": UUID, "sourceId": ..., "title": ...}}
      {"node": {"id": UUID, "master": {"summary": ...}}}
      {"node": {"id": UUID, "parentId": UUID, "section": {"title": ..., "category": ..., "summary": ...}}}
      {"node": {"id": UUID, "parentId": UUID, "chunk": {"documentId": UUID, "summary": ..., "embedding": [...]}}}
      {"node": {"parentId": UUID, "raw": {"documentId": UUID, "span": {"start": 0, "end": 9}, "content": ...}}}

    The protocol has all fields: see HierarchyDocument and HierarchyNode.

    \b
    Examples:
      drillcore put hierarchy.jsonl --corpus rules
      make-hierarchy | drillcore put - --corpus rules --embedding-model mine-384
    """
    bar = _Bar(size_bytes(file), shown=is_shown(session))
    with session.client() as client, opened(file) as lines, bar:
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
    return f"stored {', '.join(counted(*count) for count in counts)}: revision {result.revision}"


def _parts(lines: BinaryIO, read: Callable[[int], object]) -> Iterator[PutHierarchyRequest]:
    """The documents and nodes of the file. `read` is called with the size of each line.

    Raises CommandError that names the line.
    """
    for number, line in enumerate(lines, 1):
        read(len(line))
        if line.strip():
            yield _part(line, number)


def _part(line: bytes, number: int) -> PutHierarchyRequest:
    try:
        record = json.loads(line)
        if not isinstance(record, dict) or len(record) != 1 or not set(record) <= set(KINDS):
            raise ValueError('the line must be one JSON object with either "document" or "node"')
        return json_format.ParseDict(record, PutHierarchyRequest())
    except (ValueError, RecursionError, json_format.ParseError) as error:
        raise CommandError("INVALID_LINE", f"line {number}: {error}; nothing was stored") from error


class _Bar(Bar):
    """Shows how much was sent, and how many nodes and chunks the server has."""

    def __init__(self, size_bytes: int | None, *, shown: bool) -> None:
        text = TextColumn("{task.fields[nodes]} nodes, {task.fields[chunks]} chunks ready")
        columns = (column() for column in FILE_COLUMNS)
        super().__init__(text, *columns, shown=shown, total=size_bytes, nodes=0, chunks=0)

    def read(self, size_bytes: int) -> None:
        self.update(advance=size_bytes)

    def show(self, progress: PutProgress) -> None:
        self.update(nodes=progress.nodes_received, chunks=progress.chunks_prepared)
