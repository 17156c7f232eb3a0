"""Where checkpoints go besides the store, so that a store which is rolled back or replaced is found out.

    a file         a line of JSON for each: {"checkpoint": note, "log": id, "size": number}
    a directory    <log>/<size>, and the newest again as <log>/latest: signed notes as they are

Both are durable when `write` returns. The same checkpoint may be there twice after a crash.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final, Protocol
from uuid import UUID

import orjson

from drillcore.settings import SettingsError

LATEST: Final = "latest"
_SIZE_DIGITS: Final = 20
_TAIL_BYTES: Final = 1 << 20


class Sink(Protocol):
    def check(self) -> None:
        """Raises `OSError` if nothing can be written there."""

    def write(self, log: UUID, size: int, note: str) -> None:
        """Adds a checkpoint, durably. Raises `OSError` if it cannot; then nothing of it is there."""


def open_sink(path: Path) -> Sink:
    """The sink of a path. Raises `SettingsError` if it cannot be written to."""
    is_file = path.suffix != "" or (path.exists() and not path.is_dir())
    sink: Sink = FileSink(path) if is_file else DirectorySink(path)
    try:
        sink.check()
    except OSError as error:
        raise SettingsError(f"audit.sink {path}: cannot write there: {error.strerror or error}") from error
    return sink


class FileSink:
    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self) -> None:
        """Takes off what a crash left half written."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            if self._path.is_file():
                _cut_to_lines(self._path)
            file.flush()

    def write(self, log: UUID, size: int, note: str) -> None:
        line = orjson.dumps({"checkpoint": note, "log": str(log), "size": size}) + b"\n"
        with self._path.open("ab", buffering=0) as file:
            end = file.tell()
            try:
                written = file.write(line)
                if written != len(line):
                    raise OSError("only a part was written")
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(end)
                raise


class DirectorySink:
    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        probe = self._path / f".probe-{os.getpid()}"
        _write_whole(probe, b"")
        probe.unlink()

    def write(self, log: UUID, size: int, note: str) -> None:
        directory = self._path / str(log)
        directory.mkdir(parents=True, exist_ok=True)
        _write_whole(directory / f"{size:0{_SIZE_DIGITS}d}", note.encode())
        _write_whole(directory / LATEST, note.encode())


def _write_whole(path: Path, content: bytes) -> None:
    draft = path.with_name(f"{path.name}.tmp")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _cut_to_lines(path: Path) -> None:
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(end - _TAIL_BYTES, 0))
        tail = file.read()
        torn = len(tail) - (tail.rfind(b"\n") + 1)
        if torn:
            file.truncate(end - torn)
