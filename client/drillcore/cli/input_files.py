"""Files that commands read."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from drillcore.cli.session import CommandError

_MISUSED: Final = 2


def opened(path: Path) -> contextlib.AbstractContextManager[BinaryIO]:
    """The file; - stands for stdin."""
    return contextlib.nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb")


def size_bytes(path: Path) -> int | None:
    """None of stdin."""
    return None if str(path) == "-" else path.stat().st_size


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Says in one line of a file that is read meanwhile that it cannot be."""
    try:
        yield
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}"
        raise CommandError("UNREADABLE_FILE", message, exit_code=_MISUSED) from error
