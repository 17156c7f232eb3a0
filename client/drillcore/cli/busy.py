"""What is shown on stderr while one call of a command takes long."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from drillcore.cli.session import Session


@contextlib.contextmanager
def busy(session: Session, what: str) -> Iterator[None]:
    """Says what the server is at, and for how long, in a terminal; nothing with --json."""
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=Console(stderr=True, highlight=False, markup=False, emoji=False),
        disable=session.json or not sys.stderr.isatty(),
        transient=True,
    )
    progress.add_task(what, total=None)
    with progress:
        yield
