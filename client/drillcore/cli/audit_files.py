"""`drillcore audit export`, `proof`, `checkpoint` and `consistency`: files that can be verified without the server."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO
from uuid import UUID

import click
from rich.console import Console
from rich.progress import DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from drillcore._audit_results import AuditFormat
from drillcore.audit.checkpoints import Checkpoint
from drillcore.audit.failures import VerificationFailed
from drillcore.audit.keys import KeyChain
from drillcore.audit.notes import NOTE_CHARACTERS_MAX, Note
from drillcore.audit.pairs import make_pair
from drillcore.cli.audit_options import Wanted, filter_options, output_option, server_log_option
from drillcore.cli.options import connection_options
from drillcore.cli.session import CommandError, Session, pass_session


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice([one.value for one in AuditFormat]),
    default=AuditFormat.NDJSON.value,
    show_default=True,
    help="ndjson can be verified offline; ocsf is for other tools.",
)
@filter_options
@server_log_option
@connection_options
@pass_session
def export(session: Session, file: Path, form: str, wanted: Wanted, server_log: bool) -> None:
    """Write records to FILE, oldest first: all of the log, or those that match.

    \b
    Examples:
      drillcore audit export audit.ndjson
      drillcore audit export rules.ndjson --corpus rules
      drillcore verify audit.ndjson --key server.vkey
    """
    shown = not session.json and sys.stderr.isatty()
    with session.client() as client, _bar(shown) as progress, _written(file) as opened:
        task = progress.add_task("", total=None)
        size_bytes = client.export_audit(
            opened,
            wanted.filter(client),
            format=AuditFormat(form),
            on_bytes=lambda so_far: progress.update(task, completed=so_far),
            server_log=server_log,
            timeout_s=session.upload_timeout_s,
        )
    session.emit({"file": file, "size_bytes": size_bytes}, f"wrote {size_bytes:,} bytes to {file}")


def _bar(shown: bool) -> Progress:
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    columns = (TextColumn("received"), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, console=console, disable=not shown, transient=True)


@contextlib.contextmanager
def _written(path: Path) -> Iterator[BinaryIO]:
    """A file that is there under its name when it is whole, and not before. Only its owner may read it."""
    try:
        descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        Path(draft).replace(path)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        Path(draft).unlink(missing_ok=True)


def _cannot_write(path: Path, error: OSError) -> CommandError:
    return CommandError("FILE_NOT_WRITTEN", f"{path} cannot be written: {error.strerror or error}", exit_code=2)


@click.command()
@click.argument("record", type=click.UUID, required=False)
@click.option("--of-request", metavar="ID", help="Instead of a record: that of a request of your own.")
@click.option("--without-content", is_flag=True, help="Prove that it is there without showing what it says.")
@output_option
@server_log_option
@connection_options
@pass_session
def proof(
    session: Session,
    record: UUID | None,
    of_request: str | None,
    without_content: bool,
    output: Path | None,
    server_log: bool,
) -> None:
    """Show the proof that RECORD is in the log, as soon as it is: a file for drillcore verify.

    Example: drillcore audit proof 5f0c… -o record.tlog-proof
    """
    if (record is None) == (of_request is None):
        raise click.UsageError("name either a record or, with --of-request, a request")
    with session.client() as client:
        made = client.wait_proof(record, of_request=of_request, without_content=without_content, server_log=server_log)
    _show(session, {"index": made.index, "tree_size": made.tree_size, "proof": made.proof}, made.proof, output)


@click.command()
@click.option("--size", type=click.IntRange(0), help="Of a log of this size, if it was published.")
@output_option
@server_log_option
@connection_options
@pass_session
def checkpoint(session: Session, size: int | None, output: Path | None, server_log: bool) -> None:
    """Show the newest checkpoint of the log. Keep it: the log must continue it for ever."""
    with session.client() as client:
        found = client.get_checkpoint(size=size, server_log=server_log)
    document = {"checkpoint": found.checkpoint, "keys": json.loads(found.keys)}
    _show(session, document, found.checkpoint, output)


@click.command()
@click.argument("earlier", metavar="CHECKPOINT", type=click.File("r", encoding="utf-8"))
@click.option("--to", "size", type=click.IntRange(0), metavar="SIZE", help="By default the newest checkpoint.")
@output_option
@server_log_option
@connection_options
@pass_session
def consistency(session: Session, earlier: TextIO, size: int | None, output: Path | None, server_log: bool) -> None:
    """Show that the log continues a CHECKPOINT, a file that you have kept: a file for drillcore verify.

    Example: drillcore audit consistency checkpoint-of-january -o pair.json
    """
    note = _read_note(earlier)
    with session.client() as client:
        later = client.get_checkpoint(size=size, server_log=server_log)
        hashes = client.consistency_proof(_size(note), _size(later.checkpoint), server_log=server_log)
    chain = KeyChain.parse(json.loads(later.keys))
    pair = make_pair(note, later.checkpoint, hashes, chain)
    _show(session, json.loads(pair), pair.decode(), output)


def _read_note(file: TextIO) -> str:
    try:
        note = file.read(NOTE_CHARACTERS_MAX + 1)
        _size(note)
    except (VerificationFailed, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file.name} is no checkpoint: {error}") from error
    return note


def _size(note: str) -> int:
    """Raises `VerificationFailed` for what is no checkpoint."""
    return Checkpoint.parse(Note.parse(note).text).size


def _show(session: Session, document: object, text: str, output: Path | None) -> None:
    """Shows what was made, or writes it to a file, byte by byte."""
    if output is None:
        session.emit(document, text.rstrip("\n"))
        return
    with _written(output) as file:
        file.write(text.encode())
    session.emit(document, f"wrote {output}")
