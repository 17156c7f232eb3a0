"""Several real servers, each in a process of its own, with one store on a cluster."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid4

from drillcore import Client
from drillcore_server.app.config import ClusterTable, EngineKind, EngineSettings
from drillcore_server.app.factories import open_engine, open_keyring
from drillcore_server.fsck.check_store import Fsck
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.store import open_store
from tests.support.processes.drillcore_process import Serving, drillcore, serving
from tests.support.stores.engines import open_cluster

OPERATOR = "operator-token-0123456789"
TENANT = UUID("aaaaaaaa-0000-4000-8000-000000000001")
MEMBER = "member-token-0123456789"
PASSPHRASE = "correct horse battery"
_TOKENS = f"""
[[server.tokens]]
name = "root"
token = "{OPERATOR}"

[[server.tokens]]
name = "ann"
token = "{MEMBER}"
tenant_id = "{TENANT}"
roles = ["reader", "writer", "auditor"]
"""


@dataclass
class Installation:
    """A store on a cluster in a directory of its own, and the servers of that store by name."""

    home: Path
    cluster_file: Path
    settings: str = ""
    """More settings of every server, as in its file."""
    directory: str = field(default_factory=lambda: f"drillcore-tests-{uuid4().hex}")
    servers: dict[str, Serving] = field(default_factory=dict)
    _ports: dict[str, int] = field(default_factory=dict)
    _running: dict[str, ExitStack] = field(default_factory=dict)

    def start(self, name: str) -> Client:
        """Starts a server, always on the same port. A server that is new joins with an invitation of the first."""
        home = self.home / name
        is_new = not home.exists()
        home.mkdir(exist_ok=True)
        self._write_settings(home)
        port = self._ports.setdefault(name, free_port())
        flags = ["--config", "drillcore.toml", "--listen", f"127.0.0.1:{port}"]
        variables = {}
        if is_new and self._ports.keys() != {name}:
            variables["DRILLCORE_INVITATION_PASSPHRASE"] = PASSPHRASE
            flags += ["--join", str(self._invite())]
        running = self._running[name] = ExitStack()
        self.servers[name] = running.enter_context(serving(home, *flags, **variables))
        return self.client(name)

    def kill(self, name: str) -> None:
        self._running.pop(name).close()
        del self.servers[name]

    def stop(self, name: str) -> None:
        """Stops a server as an operator does, and waits for its end."""
        assert self.servers[name].stop(signal.SIGTERM) == 0
        self.kill(name)

    def client(self, *names: str, token: str = MEMBER, **settings: object) -> Client:
        """A client of one server, or of several as one address, in the tenant."""
        addresses = ",".join(f"127.0.0.1:{self._ports[name]}" for name in names)
        return Client(f"ipv4:{addresses}", token=token, **settings)  # type: ignore[arg-type]

    def problems(self) -> tuple[str, ...]:
        """What fsck finds, which on a cluster runs beside the servers."""
        settings = self._engine_settings()
        engine = open_engine(settings)
        try:
            directories, header = open_store(engine, settings.store_path)
            with open_keyring(settings, engine) as keyring:
                return Fsck(engine, Keyspace(directories), keyring, header.store_id).run().problems
        finally:
            engine.close()

    def close(self) -> None:
        for name in list(self._running):
            self.kill(name)
        cluster = open_cluster(self.cluster_file)
        for directory in self._engine_settings().store_path + self._engine_settings().keyring_path:
            cluster.remove_directory(directory)
        cluster.close()

    def _invite(self) -> Path:
        first = next(iter(self._ports))
        file = self.home / f"invitation-{uuid4().hex}.json"
        ended = drillcore(
            self.home / first,
            *("cluster", "invite", str(file), "--config", "drillcore.toml", "--data-dir", "data"),
            DRILLCORE_INVITATION_PASSPHRASE=PASSPHRASE,
        )
        assert ended.exit_code == 0, ended.errors
        return file

    def _engine_settings(self) -> EngineSettings:
        """Those of the first server."""
        table = ClusterTable(cluster_file=self.cluster_file, directory=self.directory)
        data = self.home / next(iter(self._ports)) / "data"
        return EngineSettings(kind=EngineKind.CLUSTER, data_dir=data, cluster=table)

    def _write_settings(self, home: Path) -> None:
        engine = f'[engine]\nkind = "cluster"\n[engine.cluster]\ncluster_file = "{self.cluster_file}"\n'
        text = f'{engine}directory = "{self.directory}"\n{_TOKENS}\n{self.settings}'
        (home / "drillcore.toml").write_text(text)


@contextmanager
def installed(home: Path, cluster_file: Path, *names: str, settings: str = "") -> Iterator[Installation]:
    """An installation with the servers `names`, and a tenant. Nothing of it is left afterwards."""
    found = Installation(home, cluster_file, settings)
    try:
        for name in names:
            found.start(name)
        with found.client(names[0], token=OPERATOR) as operator:
            operator.create_tenant("acme", tenant_id=TENANT)
        yield found
    finally:
        found.close()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
