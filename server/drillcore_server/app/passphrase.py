"""The passphrase of an invitation to a cluster: from a file, from the environment, or typed at the terminal."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from drillcore_formats.plugins import Session

VARIABLE: Final = "DRILLCORE_INVITATION_PASSPHRASE"

passphrase_option: Final = click.option(
    "--passphrase-file",
    type=click.File("r", encoding="utf-8"),
    metavar="FILE",
    help=f"File with the passphrase of the invitation; - for stdin.  [default: ${VARIABLE}, or you are asked]",
)
"""There is no flag for the passphrase itself: other users could see it."""


def obtain_passphrase(session: Session, file: Any, *, twice: bool = False) -> str:
    """The first line of the file, else the variable, else what the user types. With `twice`, they type it twice."""
    if file is not None:
        passphrase = str(file.readline()).rstrip("\r\n")
        if not passphrase:
            raise click.UsageError(f"the first line of {file.name} must be the passphrase")
        return passphrase
    if passphrase := session.environment.get(VARIABLE, ""):
        return passphrase
    if session.json or not sys.stdin.isatty():
        raise click.UsageError(f"nobody can be asked for the passphrase here: give --passphrase-file or {VARIABLE}")
    return str(click.prompt("Passphrase of the invitation", hide_input=True, confirmation_prompt=twice, err=True))
