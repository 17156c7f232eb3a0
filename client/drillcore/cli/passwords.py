"""How commands come by a password: asked for without showing it, or from a file. Never from the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from drillcore.cli.session import Session

F = TypeVar("F", bound=Callable[..., Any])


def password_option(flag: str, text: str) -> Callable[[F], F]:
    return click.option(flag, type=click.File("r", encoding="utf-8"), metavar="FILE", help=f"{text}; - for stdin.")


def obtain(session: Session, file: Any, prompt: str, *, twice: bool = False) -> str:
    """The first line of the file, else what the user types. With --json nobody is asked."""
    if file is not None:
        password = str(file.readline()).rstrip("\r\n")
        if not password:
            raise click.UsageError(f"{file.name} has no password in its first line")
        return password
    if session.json:
        raise click.UsageError("with --json nobody is asked: name a file with the password")
    return str(click.prompt(prompt, hide_input=True, confirmation_prompt=twice, err=True))
