"""`drillcore export`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import click
from rich.console import Console
from rich.progress import DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from drillcore._convert_nodes import AsOf
from drillcore._export_results import ExportFormat, ExportResult
from drillcore.cli.options import as_of_option, connection_options, corpus_option, write_options
from drillcore.cli.session import CommandError, Session, find_corpus_id, pass_session

_MAKING: Final = "the server makes the bundle"
_RECEIVING: Final = "receiving"


@click.command()
@corpus_option
@click.option(
    "--format",
    "format_",
    type=click.Choice([one.value for one in ExportFormat]),
    default=ExportFormat.JSON.value,
    show_default=True,
    help="Of the copy in the bundle: all three say the same.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="Where the bundle goes, a ZIP file.",
)
@click.option("--no-audit", is_flag=True, help="Leave the audit trail of the corpus out.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@as_of_option
@write_options
@connection_options
@pass_session
def export(
    session: Session,
    corpus: str,
    format_: str,
    output: Path,
    no_audit: bool,
    force: bool,
    as_of: AsOf | None,
    request_id: str | None,
) -> None:
    """Write a signed copy of a corpus: content, electronic signatures, audit trail and proofs in one ZIP file.

    The file is there when it is whole. `drillcore verify` checks it without the server, with only its public key.

    \b
    Examples:
      drillcore export --corpus rules --output rules.zip
      drillcore export --corpus rules --format pdf --output rules-2026.zip --as-of 2026-01-31
      drillcore verify rules.zip --key 'drillcore-...'
    """
    if output.exists() and not force:
        raise CommandError("FILE_EXISTS", f"{output} is there already; --force replaces it")
    shown = not session.json and sys.stderr.isatty()
    with session.client() as client, _written_whole(output) as file, _Bar(shown=shown) as bar:
        result = client.export_corpus(
            find_corpus_id(client, corpus),
            file,
            format=ExportFormat(format_),
            as_of=as_of,
            include_audit=not no_audit,
            on_bytes=bar.show,
            request_id=request_id,
            timeout_s=session.upload_timeout_s,
        )
    session.emit(result, *_summary(result, output))


def _summary(result: ExportResult, output: Path) -> list[str]:
    return [
        f"exported revision {result.revision} to {output}: {result.size_bytes} bytes, export {result.export_id}",
        f"SHA-256 {result.sha256}",
    ]


@contextlib.contextmanager
def _written_whole(output: Path) -> Iterator[BinaryIO]:
    """A file that takes its place when all of it is written, and leaves nothing behind if it is not."""
    draft = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(output)
    except OSError as error:
        raise CommandError("CANNOT_WRITE", f"{output}: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)


class _Bar:
    """Shows on stderr that the server is at work, then how much has come."""

    def __init__(self, *, shown: bool) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True, highlight=False, markup=False, emoji=False),
            disable=not shown,
            transient=True,
        )
        self._task = self._progress.add_task(_MAKING, total=None)

    def show(self, size_bytes: int) -> None:
        self._progress.update(self._task, description=_RECEIVING, completed=size_bytes)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
