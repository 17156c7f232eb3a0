"""Files that commands read and write."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import click

from drillcore import _files
from drillcore_formats.plugins import CommandError

MISUSED: Final = 2
"""The exit code for wrong usage."""
INPUT_PATH: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
INPUT_PATH_OR_STDIN: Final = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
OUTPUT_PATH: Final = click.Path(dir_okay=False, path_type=Path)
force_option: Final = click.option("--force", is_flag=True, help="Replace an existing file.")


def opened(path: Path) -> contextlib.AbstractContextManager[BinaryIO]:
    """Opens the file. `-` means stdin."""
    return contextlib.nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb")


def size_bytes(path: Path) -> int | None:
    """The size of the file, None for stdin."""
    return None if str(path) == "-" else path.stat().st_size


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turns an OSError in the block into a CommandError that names the file."""
    try:
        yield
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}"
        raise CommandError("UNREADABLE_FILE", message, exit_code=MISUSED) from error


def check_new(output: Path, *, force: bool) -> None:
    """Raises CommandError if the file exists and may not be replaced."""
    if output.exists() and not force:
        raise CommandError("FILE_EXISTS", f"{output} exists already; replace it with --force")


def cannot_write(output: Path, error: OSError) -> CommandError:
    return CommandError("CANNOT_WRITE", f"{output}: {error.strerror or error}")


@contextlib.contextmanager
def written_whole(output: Path, failed: Callable[[Path, OSError], CommandError] = cannot_write) -> Iterator[BinaryIO]:
    """Opens a file that appears at `output` only once it is complete. `failed` makes the error from an OSError."""
    try:
        with _files.written_whole(output) as file:
            yield file
    except OSError as error:
        raise failed(output, error) from error
