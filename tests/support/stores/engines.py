"""The engine that the stores of tests are on: the embedded one, or the cluster that the environment names.

On a cluster each data directory has a directory of the cluster to itself, whoever opens it: the test, or a process that
it starts. It is removed with the test.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from drillcore_fdb.embedded import Durability, EmbeddedEngine, EmbeddedSettings
from drillcore_fdb.engine import Engine
from drillcore_server.app.config import ClusterTable, EngineKind, EngineSettings
from tests.support.stores.part_of_cluster import PartOfCluster

CLUSTER_FILE_VARIABLE: Final = "DRILLCORE_FDB_CLUSTER_FILE"
_RUN_VARIABLE: Final = "TESTS_OF_DRILLCORE_RUN"
_TESTS: Final = "drillcore-tests"


def cluster_file() -> Path | None:
    """The file of the cluster that tests run on; None if there is none."""
    named = os.environ.get(CLUSTER_FILE_VARIABLE)
    return Path(named) if named else None


embedded_only = pytest.mark.skipif(cluster_file() is not None, reason="of the embedded engine, and not of a cluster")
"""Marks what looks into the files of an embedded store."""


def engine_settings(path: Path, durability: Durability = Durability.RELAXED) -> EngineSettings:
    """Settings of a server in this process whose store `open_engine` opens."""
    file = cluster_file()
    if file is None:
        return EngineSettings(data_dir=path, durability=durability)
    return EngineSettings(kind=EngineKind.CLUSTER, data_dir=path, cluster=ClusterTable(cluster_file=file))


def open_engine(path: Path, durability: Durability = Durability.RELAXED) -> Engine:
    """The engine with the store of a data directory. By default without waiting for the disk: no test loses power."""
    file = cluster_file()
    if file is None:
        return EmbeddedEngine.open(EmbeddedSettings(path=path, durability=durability))
    return PartOfCluster(open_cluster(file), *_place(path))


def open_cluster(file: Path) -> Engine:
    from drillcore_fdb.cluster import ClusterEngine, ClusterSettings

    return ClusterEngine.open(ClusterSettings(cluster_file=file))


def begin_run() -> None:
    """Gives this run of the tests, and every process that it starts, a place on the cluster."""
    os.environ.setdefault(_RUN_VARIABLE, uuid4().hex)


def remove_stores(path: Path | None = None) -> None:
    """Removes from the cluster the stores of `path` and of all below it; by default everything of this run."""
    file = cluster_file()
    if file is None:
        return
    cluster = open_cluster(file)
    run = _place(Path())[:-1]
    with suppress(KeyError):  # a test may have made no store
        for name in cluster.list_directories(*run):
            if path is None or Path(name).is_relative_to(path.absolute()):
                cluster.remove_directory(*run, name)
    if path is None:
        cluster.remove_directory(*run)
    cluster.close()


def _place(path: Path) -> tuple[str, ...]:
    return (_TESTS, os.environ[_RUN_VARIABLE], str(path.absolute()))
