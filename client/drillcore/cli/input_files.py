"""Files that commands read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from drillcore.cli.session import CommandError

_MISUSED: Final = 2


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Says in one line of a file that is read meanwhile that it cannot be."""
    try:
        yield
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}"
        raise CommandError("UNREADABLE_FILE", message, exit_code=_MISUSED) from error
