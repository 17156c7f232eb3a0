"""The files that `drillcore ingest` is to send: found, named and measured before anything is sent."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Final

import click

from drillcore._document_results import DocumentOutcome, OutcomeKind

STDIN: Final = "-"
_READ_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class InputFile:
    """Something to send: a file, or what stdin held."""

    name: str
    """Also its source: the same name with other content is an update."""
    size_bytes: int
    content: Path | BufferedIOBase
    """An open file may be read again from its beginning."""

    def open(self) -> AbstractContextManager[BufferedIOBase]:
        if isinstance(self.content, Path):
            return self.content.open("rb")
        self.content.seek(0)
        return contextlib.nullcontext(self.content)

    def digest(self) -> bytes:
        """SHA-256 of the content. Raises OSError."""
        with self.open() as file:
            return hashlib.file_digest(file, "sha256").digest()


@dataclass(frozen=True, slots=True)
class Inputs:
    """Files to send, in order of name, and what cannot be sent and why."""

    files: tuple[InputFile, ...]
    unusable: tuple[DocumentOutcome, ...]


def find_inputs(arguments: Iterable[str], *, base: Path, stdin_name: str | None) -> Inputs:
    """What the arguments name: files, folders with all that is in them, patterns, `-` for stdin.

    Files are named by their path below `base`, those outside it by their whole path. In folders and patterns what is
    hidden is left out; a file given twice is taken once. Raises click.UsageError for an argument that names nothing.
    """
    files: dict[str, InputFile] = {}
    unusable: dict[str, DocumentOutcome] = {}
    for path in _paths(arguments):
        if path == STDIN:
            if stdin_name is None:
                raise click.UsageError("name what comes from stdin: --name")
            files.setdefault(stdin_name, _spooled(stdin_name))
            continue
        name = _name(path, base)
        try:
            name.encode()
            files.setdefault(name, InputFile(name, os.stat(path).st_size, Path(path)))
        except UnicodeEncodeError:
            unusable[name] = failed(name, "INVALID_NAME", "its name is not valid UTF-8")
        except OSError as error:
            unusable[name] = unreadable(name, error)
    return Inputs(tuple(files[name] for name in sorted(files)), tuple(unusable.values()))


def unreadable(name: str, error: OSError) -> DocumentOutcome:
    return failed(name, "UNREADABLE", error.strerror or str(error))


def failed(name: str, reason: str, message: str) -> DocumentOutcome:
    """The outcome of a document that was not even sent."""
    return DocumentOutcome(name, OutcomeKind.FAILED, None, reason, message)


def _paths(arguments: Iterable[str]) -> Iterator[str]:
    for argument in arguments:
        if argument == STDIN or os.path.isfile(argument):
            yield argument
        elif os.path.isdir(argument):
            yield from _below(argument)
        else:
            yield from _matching(argument)


def _below(folder: str) -> Iterator[str]:
    """Every file below a folder but what is hidden. Links to folders are not followed: they may go round in circles."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        yield from (os.path.join(place, name) for name in sorted(names) if _wanted(place, name))


def _wanted(place: str, name: str) -> bool:
    """Not hidden, and no pipe or device, which might never end. A link that leads nowhere is wanted, to be reported."""
    path = os.path.join(place, name)
    return not name.startswith(".") and (os.path.isfile(path) or os.path.islink(path))


def _matching(pattern: str) -> Iterator[str]:
    found = sorted(glob.glob(pattern, recursive=True))
    if not found:
        raise click.UsageError(f"there is no file, folder or match of {pattern!r}")
    for path in found:
        if os.path.isfile(path):
            yield path
        elif os.path.isdir(path) and "**" not in pattern:
            yield from _below(path)


def _name(path: str, base: Path) -> str:
    whole = Path(os.path.abspath(path))
    return (whole.relative_to(base) if whole.is_relative_to(base) else whole).as_posix()


def _spooled(name: str) -> InputFile:
    """What stdin holds, in a file that ends with the command: it must be read twice, and may be larger than memory."""
    file = click.get_current_context().with_resource(tempfile.TemporaryFile())  # noqa: SIM115  # the context closes it
    shutil.copyfileobj(sys.stdin.buffer, file, _READ_BYTES)
    return InputFile(name, file.tell(), file)
