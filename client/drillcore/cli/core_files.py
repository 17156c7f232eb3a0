"""`drillcore core inspect` and `verify`: what can be told of a core file without a server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import click

from drillcore._core_receiving import signature_path
from drillcore.audit import VerificationFailed, VerifierKey
from drillcore.audit.notes import ED25519, NOTE_CHARACTERS_MAX
from drillcore.cli.core_text import summary_report, verified_report
from drillcore.cli.input_files import readable
from drillcore.cli.options import common_options
from drillcore.cli.session import CommandError, Session, pass_session
from drillcore.cli.transfer_progress import TransferProgress
from drillcore.cli.verify import Keys

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_MISUSED: Final = 2


@click.command()
@click.argument("file", type=_FILE)
@common_options
@pass_session
def inspect(session: Session, file: Path) -> None:
    """Show what is in a knowledge core FILE, ours or TrustGraph's. All of it is read, and no server is asked.

    Example: drillcore core inspect rules.core
    """
    from drillcore.cores import inspect as inspected

    with _read_through(session, file, "INVALID_CORE") as opened:
        found = inspected(opened)
    session.emit(found, summary_report(found))


@click.command()
@click.argument("file", type=_FILE)
@click.option("--key", "keys", type=Keys(ED25519), multiple=True, required=True, help="The server's key, or a file.")
@click.option("--signature", type=_FILE, help="The signed note about FILE.  [default: FILE.sig]")
@common_options
@pass_session
def verify(session: Session, file: Path, keys: tuple[tuple[VerifierKey, ...], ...], signature: Path | None) -> None:
    """Verify that a knowledge core FILE is the one that a server signed, with nothing but its key: no server is asked.

    Exit codes: 0 verified, 1 something is wrong, 2 wrong usage.

    Example: drillcore core verify rules.core --key server.vkey
    """
    from drillcore.cores import verify as verified

    note = read_note(signature or signature_path(file))
    with _read_through(session, file, "NOT_VERIFIED") as opened:
        found = verified(opened, note, [key for given in keys for key in given])
    session.emit({"ok": True, "path": file, "core": found}, *verified_report(str(file), found))


def read_note(path: Path) -> str:
    """Raises CommandError for a file that is no text, or cannot be read."""
    with readable(path), path.open("rb") as file:
        content = file.read(NOTE_CHARACTERS_MAX + 1)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise CommandError("UNREADABLE_FILE", f"{path} is not UTF-8", exit_code=_MISUSED) from error


@contextlib.contextmanager
def _read_through(session: Session, path: Path, otherwise: str) -> Iterator[BinaryIO]:
    """The file, with a bar on stderr as it is read. `otherwise` is the reason if something is wrong with it."""
    try:
        bar = TransferProgress(session, "reading", path.stat().st_size)
        with readable(path), path.open("rb") as file, bar:
            yield bar.watched(file)
    except VerificationFailed as error:
        raise CommandError(otherwise, f"{path}: {error}") from error
