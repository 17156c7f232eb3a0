"""The engine on a FoundationDB cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeVar

import fdb

from drillcore_fdb.cluster.binding import API_VERSION, NETWORK, client_version, translate, translated
from drillcore_fdb.cluster.cluster_file import ClusterFile, find_cluster_file, read_cluster_file
from drillcore_fdb.cluster.lifetime import Lifetime
from drillcore_fdb.cluster.settings import ClusterSettings
from drillcore_fdb.cluster.status import read_status
from drillcore_fdb.cluster.transaction import ClusterAttempts
from drillcore_fdb.cluster.watch import when_ready
from drillcore_fdb.engine import Engine, Options, Transaction
from drillcore_fdb.errors import ClusterUnreachableError, InvalidUseError
from drillcore_fdb.tuples import Subspace

T = TypeVar("T")

# The directory layer's work can be run again after a commit with an unknown result: it finds what it made.
_DIRECTORY_OPTIONS = Options(idempotent=True)
_DIRECTORIES_MAX = 16
"""Directories made in one transaction. The directory layer waits several times for each: too many take over 5 s."""


class ClusterEngine(Engine):
    """A store on a FoundationDB cluster. Made by `ClusterEngine.open`."""

    def __init__(self, database: fdb.Database, settings: ClusterSettings, cluster_file: ClusterFile) -> None:
        self._database = database
        self._settings = settings
        self._cluster_file = cluster_file
        self._lifetime = Lifetime()

    @classmethod
    def open(cls, settings: ClusterSettings) -> ClusterEngine:
        """Connects to a cluster and waits for its first answer, at most `settings.connect_timeout_s`.

        Raises `ClusterUnreachableError`, saying what to do, if the client library, the cluster file or the
        cluster is missing, and `InvalidUseError` for settings that cannot be used.
        """
        settings.check_paths()
        cluster_file = read_cluster_file(find_cluster_file(settings.cluster_file))
        database = NETWORK.open_database(cluster_file.path, settings.network_options())
        with translated():
            database.options.set_max_watches(settings.max_watches)
        _await_answer(database, cluster_file, settings.connect_timeout_s)
        return cls(database, settings, cluster_file)

    def begin(self, options: Options) -> ClusterAttempts:
        self._lifetime.check_open()
        return ClusterAttempts(self._database, self._settings, options, self._lifetime)

    def directories(self, paths: Sequence[tuple[str, ...]]) -> list[Subspace]:
        if not all(paths):
            raise InvalidUseError(2255, "The root directory has no keys of its own: name a path")

        def open_batch(tr: fdb.Transaction, batch: Sequence[tuple[str, ...]]) -> list[Subspace]:
            return [Subspace(fdb.directory.create_or_open(tr, path).key()) for path in batch]

        batches = [paths[start : start + _DIRECTORIES_MAX] for start in range(0, len(paths), _DIRECTORIES_MAX)]
        opened = [self._with_directories(lambda tr, b=batch: open_batch(tr, b)) for batch in batches]  # type: ignore[misc]
        return list(chain.from_iterable(opened))

    def list_directories(self, *path: str) -> list[str]:
        def names(tr: fdb.Transaction) -> list[str]:
            if not fdb.directory.exists(tr, path):
                raise KeyError("/".join(path))
            return sorted(fdb.directory.list(tr, path))

        return self._with_directories(names)

    def remove_directory(self, *path: str) -> bool:
        if not path:
            raise InvalidUseError(2267, "The root directory cannot be removed: name a path")
        # Asked in a transaction of its own, since a removal that is run again no longer finds what it removed.
        if not self._with_directories(lambda tr: fdb.directory.exists(tr, path)):
            return False
        self._with_directories(lambda tr: fdb.directory.remove_if_exists(tr, path))
        return True

    def _with_directories(self, work: Callable[[fdb.Transaction], T]) -> T:
        """Runs the directory layer with our limits and retries. Without them it would retry for ever."""

        def on_native(tr: Transaction) -> T:
            assert isinstance(tr, ClusterAttempts)
            with translated():
                return work(tr.native)

        return self.run(on_native, _DIRECTORY_OPTIONS)

    def describe(self) -> dict[str, str | int | float]:
        self._lifetime.check_open()
        return {
            "engine": "cluster",
            "client_version": client_version(),
            "api_version": API_VERSION,
            "cluster": self._cluster_file.description,
            "cluster_file": str(self._cluster_file.path),
            # FoundationDB rewrites the file when coordinators move; where it cannot, a later start finds none.
            "cluster_file_writable": os.access(self._cluster_file.path, os.W_OK),
            "coordinators": ",".join(self._cluster_file.coordinators),
            **read_status(self._database, self._settings.connect_timeout_s),
        }

    def close(self) -> None:
        self._lifetime.close()


def _await_answer(database: fdb.Database, cluster_file: ClusterFile, timeout_s: float) -> None:
    place = f"{cluster_file.path} (coordinators {', '.join(cluster_file.coordinators)})"
    try:
        # Held until the answer is there: a transaction that is let go cancels its reads.
        transaction = database.create_transaction()
        version = transaction.get_read_version()
        if not when_ready(version).wait(timeout_s):
            raise ClusterUnreachableError(
                f"The cluster of {place} did not answer within {timeout_s:g} s. Check that it runs "
                "(fdbcli --exec status), that this machine reaches it, that TLS is set on both sides or on neither, "
                f"and that its version fits the client library {client_version()}"
            )
        version.wait()
    except fdb.FDBError as error:
        raise ClusterUnreachableError(f"The cluster of {place} cannot be used: {translate(error)}") from error
