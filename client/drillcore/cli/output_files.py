"""Files that commands write."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from drillcore.cli.session import CommandError

OUTPUT_PATH = click.Path(dir_okay=False, path_type=Path)
force_option = click.option("--force", is_flag=True, help="Replace a file that is there.")


def check_new(output: Path, *, force: bool) -> None:
    """Raises CommandError for a file that is there, unless it may be replaced."""
    if output.exists() and not force:
        raise CommandError("FILE_EXISTS", f"{output} is there already; --force replaces it")


@contextlib.contextmanager
def written_whole(output: Path) -> Iterator[BinaryIO]:
    """A file that takes its place when all of it is written, and leaves nothing behind if it is not."""
    draft = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(output)
    except OSError as error:
        raise cannot_write(output, error) from error
    finally:
        draft.unlink(missing_ok=True)


def cannot_write(output: Path, error: OSError) -> CommandError:
    return CommandError("CANNOT_WRITE", f"{output}: {error.strerror or error}")
