"""The files of the embedded engine: opens, checks, locks and compacts them, and translates LMDB's errors.

<data directory>/LOCK            who has it open
<data directory>/engine.json     what this directory is; written last when a store is made
<data directory>/kv/data.mdb     the store itself, an LMDB environment
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import struct
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

import lmdb
import lmdb.verify

from drillcore_fdb.errors import (
    DiskFullError,
    EngineError,
    StorageError,
    StoreCorruptError,
    StoreInUseError,
    UnavailableError,
)

ENGINE_FORMAT: Final = 2
"""2: databases `keys`, `tails`, `values` and `meta` as `ordered.py` and `values.py` describe them, LMDB 1.0 files.

In format 1, values were not cut. Its files are not read.
"""

VERSION_KEY: Final = b"version"
_VERSION = struct.Struct(">Q")
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_SHORT_WRITE = "MDB_SHORT_WRITE"
"""LMDB's name for a write that the disk took only in part. It has no class of its own in the binding."""
SNAPSHOTS_MAX: Final = 1024
_COPY_BYTES: Final = 16_000_000
"""Bytes copied in one transaction: large enough that the pages which each transaction copies anew do not matter."""
_READERS_SPARE = 256
"""LMDB readers in addition to the transactions' snapshots, for watches and figures, which must not be refused."""


def pack_version(version: int) -> bytes:
    return _VERSION.pack(version)


def unpack_version(value: bytes | None) -> int:
    return 0 if value is None else int(_VERSION.unpack(value)[0])


def as_engine_error(error: lmdb.Error) -> EngineError:
    """Converts an error of LMDB to one of this package."""
    code = getattr(error, "code", 0)
    if isinstance(error, lmdb.MapFullError):
        return DiskFullError("the store has reached its configured size (engine.map_size_bytes); raise it and restart")
    if code in _FULL or _SHORT_WRITE in str(error) or _is_full(error):
        return DiskFullError(f"no room left for the store: {error}; make room, nothing has been lost")
    if isinstance(error, lmdb.CorruptedError | lmdb.PageNotFoundError | lmdb.InvalidError | lmdb.VersionMismatchError):
        return StoreCorruptError(f"the store's file is damaged: {error}; restore it from a backup")
    return StorageError(f"the store's file cannot be used: {error}")


def _is_full(error: lmdb.Error) -> bool:
    return isinstance(error, lmdb.DiskError) and any(os.strerror(code) in str(error) for code in _FULL)


class DirectoryLock:
    """Locks a data directory for this process. The operating system releases the lock however the process ends."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = (path / "LOCK").open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.seek(0)
            holder = self._file.read().strip() or "another process"
            self._file.close()
            raise StoreInUseError(
                f"{path} is in use by {holder}; stop that process, or give this one another data directory"
            ) from error
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")
        self._file.flush()

    def release(self) -> None:
        self._file.close()


def open_environment(path: Path, *, map_size_bytes: int, sync: bool) -> lmdb.Environment:
    """The LMDB environment of a data directory, made if the directory is new, checked if it is not."""
    marker, data = path / "engine.json", path / "kv" / "data.mdb"
    _check_marker(marker, data)
    (path / "kv").mkdir(exist_ok=True)
    try:
        environment = lmdb.open(
            str(path / "kv"),
            map_size=max(map_size_bytes, data.stat().st_size if data.exists() else 0),
            max_dbs=8,
            max_readers=SNAPSHOTS_MAX + _READERS_SPARE,
            max_spare_txns=64,
            sync=sync,
            metasync=sync,
            readahead=False,
            mode=0o600,
            lib_version=1,
        )
        _check_whole(environment, data)
    except lmdb.Error as error:
        raise _cannot_open(data, error) from error
    if not marker.exists():
        _write_marker(marker)
    return environment


def _check_marker(marker: Path, data: Path) -> None:
    if not marker.exists():
        return
    try:
        engine_format = json.loads(marker.read_text(encoding="utf-8"))["engine_format"]
        if type(engine_format) is not int or engine_format < 1:
            raise ValueError(f"engine_format is {engine_format!r}")
    except (ValueError, KeyError, TypeError) as error:
        raise StoreCorruptError(f"{marker} cannot be read: {error}; restore the directory from a backup") from error
    if engine_format > ENGINE_FORMAT:
        raise UnavailableError(
            f"{marker.parent} was written by a newer Drillcore (engine format {engine_format}, "
            f"this one knows up to {ENGINE_FORMAT}); upgrade Drillcore"
        )
    if engine_format < ENGINE_FORMAT:
        raise UnavailableError(
            f"{marker.parent} was written by an older Drillcore (engine format {engine_format}, this one reads "
            f"{ENGINE_FORMAT}); export a core of each corpus with that release, and import the cores into a new store"
        )
    if not data.exists() or data.stat().st_size == 0:
        raise StoreCorruptError(f"{data} is missing or empty although the store was made; restore it from a backup")


def _check_whole(environment: lmdb.Environment, data: Path) -> None:
    """Refuses a file that was cut short: the first read behind its end would kill the process.

    LMDB leaves out the last pages of a file when a commit filled and freed them, so a short file is not proof. Whether
    a page that counts is missing is found by walking the file.
    """
    needed = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    if data.stat().st_size >= needed:
        return
    if problems := verify_file(data):
        environment.close()
        raise StoreCorruptError(f"{data} was cut short: {problems[0]}; restore it from a backup")
    os.truncate(data, needed)


def verify_file(data: Path) -> list[str]:
    """What is wrong with a store's file, page by page; read as bytes, so that no damage can harm this process."""
    try:
        with data.open("rb") as file:
            return list(map(str, _Verifier(file, data.stat().st_size).verify()))  # type: ignore[no-untyped-call]
    except (lmdb.verify.VerifyError, OSError) as error:
        return [str(error)]


class _Verifier(lmdb.verify._Verifier):
    """LMDB's verifier, corrected: a value may have more overflow pages than it needs.

    A value that shrinks within a transaction keeps its pages, and LMDB reads and frees all of them. The binding's
    verifier reports such pages as damage.
    """

    _PAGES = struct.Struct("<16xQ")
    """The number of pages, in the part of a node that refers to overflow pages."""

    def _bigdata(  # type: ignore[no-untyped-def]
        self,
        tree: object,
        page: int,
        node: int,
        buffer: bytes,
        at: int,
        size: int,
        want_bytes: bool,
    ):
        if not want_bytes and at + self._PAGES.size <= len(buffer):
            (pages,) = self._PAGES.unpack_from(buffer, at)
            size = max(size, pages * self.psize - self.hdrsz)
        return super()._bigdata(tree, page, node, buffer, at, size, want_bytes)  # type: ignore[no-untyped-call]


def copy_packed(environment: lmdb.Environment, directory: Path) -> None:
    """Copies every entry to a new file, in order, so that each page is full before the next one begins.

    LMDB's own copy leaves out free pages, but keeps the others as splits left them, a third of each empty.
    """
    room = 2 * environment.info()["map_size"]
    with (
        lmdb.open(str(directory), map_size=room, max_dbs=8, sync=False, lock=False, mode=0o600, lib_version=1) as fresh,
        environment.begin() as source,
    ):
        for name in environment.dbs(source):
            from_db, to_db = environment.open_db(name, source, create=False), fresh.open_db(name)
            for batch in _batches(source.cursor(from_db)):
                with fresh.begin(write=True) as txn:
                    txn.cursor(to_db).putmulti(batch, append=True)


def _batches(entries: Iterable[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    batch: list[tuple[bytes, bytes]] = []
    size_bytes = 0
    for entry in entries:
        batch.append(entry)
        size_bytes += len(entry[0]) + len(entry[1])
        if size_bytes >= _COPY_BYTES:
            yield batch
            batch, size_bytes = [], 0
    yield batch


def _cannot_open(data: Path, error: lmdb.Error) -> EngineError:
    found = as_engine_error(error)
    if isinstance(found, StoreCorruptError):
        return StoreCorruptError(f"{data} is not a whole store: {error}; nothing was changed, restore it from a backup")
    return UnavailableError(f"{data} cannot be opened: {error}")


def _write_marker(marker: Path) -> None:
    draft = marker.with_suffix(".tmp")
    with draft.open("w", encoding="utf-8") as file:
        json.dump({"engine": "embedded", "engine_format": ENGINE_FORMAT}, file)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(marker)
    for directory in (marker.parent / "kv", marker.parent, marker.parent.parent):
        sync_directory(directory)


def sync_directory(path: Path) -> None:
    """Makes the file names of a directory durable, in addition to the files themselves."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
