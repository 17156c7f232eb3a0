"""A FoundationDB cluster that a test starts, stops and moves."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.servers.installation import free_port
from tests.support.stores.stores import wait_until

NOT_RUN = "fdbserver and fdbcli are not on the PATH"


@dataclass
class OwnCluster:
    home: Path
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    """By port."""

    @property
    def file(self) -> Path:
        return self.home / "fdb.cluster"

    def start(self, port: int) -> None:
        """Starts a server of the cluster, which keeps its data in a directory of its own."""
        data = self.home / str(port)
        data.mkdir(exist_ok=True)
        place = ["--public-address", f"127.0.0.1:{port}", "--datadir", str(data), "--logdir", str(data)]
        # Each server has a file of its own, as on a machine of its own: it rewrites it when coordinators move.
        shutil.copy(self.file, data / "fdb.cluster")
        command = ["fdbserver", "--cluster-file", str(data / "fdb.cluster"), *place]
        self.processes[port] = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def kill(self, port: int) -> None:
        process = self.processes.pop(port)
        process.kill()
        process.wait()

    def cli(self, command: str) -> str:
        arguments = ["fdbcli", "-C", str(self.file), "--timeout", "30", "--exec", command]
        return subprocess.run(arguments, capture_output=True, text=True, timeout=60).stdout

    def wait_until_available(self) -> None:
        wait_until(lambda: "The database is available" in self.cli("status minimal"), "the cluster answers")


@contextmanager
def own_cluster(home: Path) -> Iterator[tuple[OwnCluster, int]]:
    """A cluster of one process, and its port."""
    if not (shutil.which("fdbserver") and shutil.which("fdbcli")):
        pytest.skip(NOT_RUN)
    home.mkdir()
    cluster, port = OwnCluster(home), free_port()
    cluster.file.write_text(f"test:test@127.0.0.1:{port}\n")
    try:
        cluster.start(port)
        cluster.cli("configure new single memory")
        cluster.wait_until_available()
        yield cluster, port
    finally:
        for running in list(cluster.processes):
            cluster.kill(running)
