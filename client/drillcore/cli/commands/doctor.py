"""`drillcore doctor`."""

from __future__ import annotations

from typing import Final

import click
from rich.text import Text

from drillcore.cli.options import connection_options
from drillcore.cli.session import Session, pass_session
from drillcore.cli.text import printable
from drillcore.doctor import examine
from drillcore_formats.plugins import Check, Status

_STYLES: Final = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "bold red"}


@click.command()
@connection_options
@pass_session
@click.pass_context
def doctor(context: click.Context, session: Session) -> None:
    """Check this set-up and say how to fix what is wrong.

    The checks cover the installation, the settings and where each came from, the connection, the token and the
    versions. On the server's machine they also cover its engine and data directory. Exit code 1 if a check fails.
    """
    checks = list(examine(session.named_file, session.environment, session.overrides))
    healthy = all(check.status is not Status.FAIL for check in checks)
    session.emit({"ok": healthy, "checks": list(map(_document, checks))}, *map(_lines, checks))
    context.exit(0 if healthy else 1)


def _document(check: Check) -> dict[str, object]:
    return {
        "name": check.name,
        "status": check.status.value,
        "message": check.message,
        "remedy": check.remedy,
        "details": check.details,
    }


def _lines(check: Check) -> Text:
    text = Text.assemble(
        (f"{check.status.value:<5}", _STYLES[check.status]), (check.name, "bold"), f": {printable(check.message)}"
    )
    if check.remedy:
        text.append(f"\n     -> {printable(check.remedy)}")
    for detail in check.details:
        text.append(f"\n     {printable(detail)}", "dim")
    return text
