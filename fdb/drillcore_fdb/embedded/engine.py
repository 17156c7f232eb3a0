"""The embedded engine: FoundationDB's semantics in one process, on one directory."""

from __future__ import annotations

import contextlib
import enum
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import lmdb

from drillcore_fdb import directory
from drillcore_fdb.embedded.committer import Committer
from drillcore_fdb.embedded.ordered import OrderedStore
from drillcore_fdb.embedded.snapshots import Snapshots
from drillcore_fdb.embedded.storage import (
    VERSION_KEY,
    DirectoryLock,
    as_engine_error,
    copy_packed,
    open_environment,
    sync_directory,
    unpack_version,
    verify_file,
)
from drillcore_fdb.embedded.transaction import EmbeddedTransaction
from drillcore_fdb.embedded.watches import Watches
from drillcore_fdb.engine import Attempts, Engine, Figures, Options
from drillcore_fdb.errors import UnavailableError
from drillcore_fdb.tuples import Subspace


class Durability(enum.Enum):
    """FULL: a commit returns when it is on disk. RELAXED, for tests: it survives the process, not the machine."""

    FULL = "full"
    RELAXED = "relaxed"


@dataclass(frozen=True, slots=True)
class EmbeddedSettings:
    path: Path
    durability: Durability = Durability.FULL
    map_size_bytes: int = 1 << 40
    """The largest size of the store. It reserves address space, not memory or disk."""
    default_timeout_s: float = 30.0


class EmbeddedEngine(Engine):
    def __init__(self, settings: EmbeddedSettings, lock: DirectoryLock, environment: lmdb.Environment) -> None:
        self.store = OrderedStore(environment)
        self.watches = Watches(self._read_committed)
        self.default_timeout_s = settings.default_timeout_s
        self._settings = settings
        self._lock = lock
        self._environment = environment
        with environment.begin() as txn:
            version = unpack_version(txn.get(VERSION_KEY, db=self.store.meta))
        self.committer = Committer(environment, self.store, self.watches, version)
        self.snapshots = Snapshots(environment, self.store)
        self._closing = threading.Event()

    @classmethod
    def open(cls, settings: EmbeddedSettings) -> EmbeddedEngine:
        """Opens a data directory, making it if it is not there.

        Raises `StoreInUseError`, `StoreCorruptError` or `UnavailableError`; a directory it refuses is left as it was.
        """
        with _locked(settings.path) as lock:
            sync = settings.durability is Durability.FULL
            environment = open_environment(settings.path, map_size_bytes=settings.map_size_bytes, sync=sync)
            try:
                return cls(settings, lock, environment)
            except lmdb.Error as error:
                environment.close()
                raise as_engine_error(error) from error

    def begin(self, options: Options) -> Attempts:
        timeout_s = self.default_timeout_s if options.timeout_s is None else options.timeout_s
        return EmbeddedTransaction(self.store, self.snapshots, self.committer, self.watches, options, timeout_s)

    def directories(self, paths: Sequence[tuple[str, ...]]) -> list[Subspace]:
        return self.run(lambda tr: [directory.create_or_open(tr, path) for path in paths])

    def list_directories(self, *path: str) -> list[str]:
        return self.run(lambda tr: directory.list_names(tr, path))

    def remove_directory(self, *path: str) -> bool:
        return self.run(lambda tr: directory.remove(tr, path))

    def describe(self) -> dict[str, str | int | float]:
        return {
            "engine": "embedded",
            "path": str(self._settings.path),
            "durability": self._settings.durability.value,
            "library": "LMDB " + ".".join(map(str, self._environment.lib_version())),
            **self.space(),
        }

    def space(self) -> dict[str, int]:
        """Bytes of the file, of live pages in it, and of pages free for reuse; and the number of keys."""
        if self._closing.is_set():
            raise UnavailableError("the store is closed")
        page = self._environment.stat()["psize"]
        with self._environment.begin() as txn:
            stats = [txn.stat(database) for database in self.store.databases()]
            version = unpack_version(txn.get(VERSION_KEY, db=self.store.meta))
        pages = sum(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats)
        file_bytes = (self._settings.path / "kv" / "data.mdb").stat().st_size
        return {
            "file_bytes": file_bytes,
            "live_bytes": pages * page,
            "free_bytes": max(file_bytes - pages * page, 0),
            "limit_bytes": self._environment.info()["map_size"],
            "keys": stats[1]["entries"] + stats[2]["entries"],
            "version": version,
        }

    def figures(self) -> Figures:
        counts = self.committer.counts
        totals = {"commits": counts.commits, "conflicts": counts.conflicts, "commit_groups": counts.groups}
        return Figures(self.space(), totals)

    def close(self) -> None:
        if self._closing.is_set():
            return
        self._closing.set()
        self.snapshots.refuse()
        self.committer.close()
        self.watches.cancel_all()
        self.snapshots.close()
        self._environment.close()
        self._lock.release()

    def _read_committed(self, key: bytes) -> bytes | None:
        with self._environment.begin() as txn:
            return self.store.get(txn, key)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[DirectoryLock]:
    """Makes and locks the directory. Releases the lock if the block fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = DirectoryLock(path)
    except OSError as error:
        raise UnavailableError(f"the data directory {path} cannot be used: {error.strerror}") from error
    try:
        yield lock
    except OSError as error:
        lock.release()
        raise UnavailableError(f"the data directory {path} cannot be used: {error}") from error
    except BaseException:
        lock.release()
        raise


def verify(path: Path) -> list[str]:
    """Lists what is wrong with the file of a store that nobody has open. Empty if it is sound."""
    with _locked(path) as lock:
        problems = verify_file(path / "kv" / "data.mdb")
        lock.release()
        return problems


def compact(path: Path) -> tuple[int, int]:
    """Rewrites the file of a store that nobody has open, with full pages only. Returns its bytes before and after.

    The new file replaces the old one in one step once it is on disk, so a crash leaves one or the other.
    """
    with _locked(path) as lock:
        data, fresh = path / "kv" / "data.mdb", path / "compacting"
        environment = open_environment(path, map_size_bytes=0, sync=True)
        before = data.stat().st_size
        try:
            for leftover in fresh.glob("*"):
                leftover.unlink()
            fresh.mkdir(exist_ok=True)
            copy_packed(environment, fresh)
        except lmdb.Error as error:
            raise as_engine_error(error) from error
        finally:
            environment.close()
        with (fresh / "data.mdb").open("rb") as file:
            os.fsync(file.fileno())
        (fresh / "data.mdb").replace(data)
        sync_directory(path / "kv")
        fresh.rmdir()
        lock.release()
        return before, data.stat().st_size
