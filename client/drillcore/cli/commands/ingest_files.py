"""Finds the files that `drillcore ingest` sends, and puts them into batches."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Final
from uuid import UUID

import click

from drillcore._api.documents import DocumentOutcome, NewDocument, OutcomeKind
from drillcore._transport.upload import BinaryFile
from drillcore_formats.plugins import CommandError

STDIN: Final = "-"
_READ_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to send, or the content of stdin."""

    name: str
    """Also the source: the same name with other content is an update."""
    size_bytes: int
    content: Path | BufferedIOBase
    """An open file can be read again from its beginning."""

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
    """Files to send, ordered by name, and files that cannot be sent, with the reason."""

    files: tuple[InputFile, ...]
    unusable: tuple[DocumentOutcome, ...]


def find_inputs(arguments: Iterable[str], *, base: Path, stdin_name: str | None) -> Inputs:
    """Finds the files that the arguments name: files, folders with their subfolders, patterns, `-` for stdin.

    A file is named by its path below `base`, or by its whole path if it lies elsewhere. Folders and patterns leave out
    hidden files. A file given twice is taken once. Raises click.UsageError for an argument that names nothing.
    """
    files: dict[str, InputFile] = {}
    unusable: dict[str, DocumentOutcome] = {}
    for path in _paths(arguments):
        if path == STDIN:
            if stdin_name is None:
                raise click.UsageError("give --name for the document from stdin")
            files.setdefault(stdin_name, _spooled(stdin_name))
            continue
        name = _name(path, base)
        try:
            name.encode()
            files.setdefault(name, InputFile(name, os.stat(path).st_size, Path(path)))
        except UnicodeEncodeError:
            unusable[name] = failed(name, "INVALID_NAME", "the name is not valid UTF-8")
        except OSError as error:
            unusable[name] = unreadable(name, error)
    return Inputs(tuple(files[name] for name in sorted(files)), tuple(unusable.values()))


def unreadable(name: str, error: OSError) -> DocumentOutcome:
    return failed(name, "UNREADABLE", error.strerror or str(error))


def failed(name: str, reason: str, message: str) -> DocumentOutcome:
    """The outcome of a document that was not sent."""
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
    """Every file below a folder that is not hidden. Links to folders are not followed: they may form a circle."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (os.path.join(place, name) for name in sorted(names) if _wanted(place, name))


def _wanted(place: str, name: str) -> bool:
    """Whether to send it: not if hidden, a pipe or a device. A broken link counts, so that it is reported."""
    path = os.path.join(place, name)
    return not name.startswith(".") and (os.path.isfile(path) or os.path.islink(path))


def _matching(pattern: str) -> Iterator[str]:
    found = sorted(glob.glob(pattern, recursive=True))
    if not found:
        raise click.UsageError(f"no file or folder matches {pattern!r}")
    for path in found:
        if os.path.isfile(path):
            yield path
        elif os.path.isdir(path) and "**" not in pattern:
            yield from _below(path)


def _name(path: str, base: Path) -> str:
    whole = Path(os.path.abspath(path))
    return (whole.relative_to(base) if whole.is_relative_to(base) else whole).as_posix()


def _spooled(name: str) -> InputFile:
    """Copies stdin to a temporary file: it is read twice, and may be larger than memory."""
    file = click.get_current_context().with_resource(tempfile.TemporaryFile())  # noqa: SIM115  # the context closes it
    shutil.copyfileobj(sys.stdin.buffer, file, _READ_BYTES)
    return InputFile(name, file.tell(), file)


DOCUMENTS_MAX: Final = 1_000
"""Documents in a batch at most, because many tiny files do not fill a batch. --atomic has no limit."""


@dataclass(frozen=True, slots=True)
class Given:
    """What the flags say about every document."""

    media_type: str
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Item:
    """A file of a batch, with the digest of its content when the request id was made."""

    file: InputFile
    digest: bytes


Batch = tuple[Item, ...]


def batches(items: Iterable[Item], size_bytes_max: int | None) -> Iterator[Batch]:
    """The items in order, in batches of at most this size. A larger file is a batch of its own. None: one batch."""
    batch: list[Item] = []
    size_bytes = 0
    for item in items:
        size_bytes += item.file.size_bytes
        full = size_bytes_max is not None and (size_bytes > size_bytes_max or len(batch) == DOCUMENTS_MAX)
        if batch and full:
            yield tuple(batch)
            batch, size_bytes = [], item.file.size_bytes
        batch.append(item)
    if batch:
        yield tuple(batch)


def request_id(corpus_id: UUID, head: int, batch: Batch, given: Given) -> str:
    """The same id for the same documents and the same state of the corpus, so that a repeated batch is added once.

    The head revision is part of it. Otherwise documents that were removed, or changed and changed back, would not be
    added again: the server would repeat its first answer.
    """
    digest = hashlib.sha256()
    described = [str(corpus_id), str(head), given.media_type]
    described += [text for pair in sorted(given.metadata.items()) for text in pair]
    described += [text for item in batch for text in (item.file.name, item.digest.hex())]
    for text in described:
        digest.update(hashlib.sha256(text.encode()).digest())
    return f"ingest-{digest.hexdigest()[:40]}"


def new_documents(batch: Batch, given: Given, sent: Callable[[int], object]) -> Iterator[NewDocument]:
    """The documents of a batch, opened one after the other. `sent` is called with the number of bytes read.

    Raises CommandError if a file has changed since its digest was made.
    """
    for item in batch:
        with item.file.open() as file:
            reader = _Checked(file, item, sent)
            yield NewDocument(item.file.name, reader, media_type=given.media_type, metadata=given.metadata)


class _Checked:
    """Reads a file, and checks at its end that it has not changed."""

    def __init__(self, file: BinaryFile, item: Item, sent: Callable[[int], object]) -> None:
        self._file = file
        self._item = item
        self._sent = sent
        self._digest = hashlib.sha256()

    def read(self, size: int, /) -> bytes:
        piece = self._file.read(size)
        self._digest.update(piece)
        self._sent(len(piece))
        if not piece and self._digest.digest() != self._item.digest:
            message = f"{self._item.file.name} changed while it was being sent: run the command again"
            raise CommandError("FILE_CHANGED", message)
        return piece
