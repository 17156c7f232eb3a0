"""A server whose store goes away says so, loses nothing, and goes on by itself when the store is back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from drillcore import Client, Reason, Unavailable
from drillcore_fdb import directory
from drillcore_fdb.engine import Attempts, Engine, Options, Transaction
from drillcore_fdb.errors import TransactionTimedOutError
from drillcore_fdb.format import STORE_PATH
from drillcore_server.app import background
from drillcore_server.app.keepers import StoreKeeper
from drillcore_server.storage.store import open_store
from tests.support.servers.running import Running, running
from tests.support.stores.faulty_engine import Faults, FaultyEngine
from tests.support.stores.stores import wait_until

_STATUS = health_pb2.HealthCheckResponse


class Leaving(FaultyEngine):
    """Does not answer while it is away, as a cluster that cannot be reached."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner, Faults(0, {}))
        self.away = False

    def begin(self, options: Options) -> Attempts:
        if self.away:
            raise TransactionTimedOutError
        return self.inner.begin(options)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreKeeper, "every_s", 0.05)
    monkeypatch.setattr(background, "RETRY_MAX_S", 0.2)


def health_of(server: Running, service: str = "") -> Any:
    with grpc.insecure_channel(server.address) as channel:
        return health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service)).status


def test_health_says_that_the_store_is_away_and_that_it_is_back(tmp_path: Path) -> None:
    engines: list[Leaving] = []

    def wrap(inner: Engine) -> Engine:
        engines.append(Leaving(inner))
        return engines[0]

    with running(tmp_path, wrap=wrap) as server:
        client, service = server.client(), "drillcore_proto.v1.TenantService"
        made = client.create_tenant("before")
        engines[0].away = True
        for name in ("", service, "drillcore.keeper.store"):
            wait_until(lambda n=name: health_of(server, n) == _STATUS.NOT_SERVING, f"{name} is away")  # type: ignore[misc]
        with pytest.raises(Exception, match="DEADLINE_EXCEEDED"):
            client.create_tenant("while it is away")
        engines[0].away = False
        for name in ("", service, "drillcore.keeper.store"):
            wait_until(lambda n=name: health_of(server, n) == _STATUS.SERVING, f"{name} is back")  # type: ignore[misc]
        assert [tenant.name for tenant in client.iter_tenants()] == ["before"]
        assert client.get_tenant(made.id) == made
        client.create_tenant("afterwards")


def rename(engine: Engine, path: tuple[str, ...], new: tuple[str, ...]) -> None:
    """Moves a directory, as the directory layer does: its prefix stays the same."""

    def work(tr: Transaction) -> None:
        (old_parent, old_name), (new_parent, new_name) = (_parent(tr, path), _parent(tr, new))
        prefix = tr.get(old_parent[0].pack((old_name,)))
        assert prefix is not None
        tr.clear(old_parent[0].pack((old_name,)))
        tr.set(new_parent[0].pack((new_name,)), prefix)

    engine.run(work)


def _parent(tr: Transaction, path: tuple[str, ...]) -> tuple[Any, str]:
    parent = directory._find(tr, path[:-1])
    assert parent is not None
    return parent, path[-1]


@pytest.mark.parametrize(
    ("path", "new", "named"),
    [
        ((*STORE_PATH, "indexes", "members"), (*STORE_PATH, "indexes", "moved"), "drillcore/indexes/members is gone"),
        (STORE_PATH, ("moved",), "the directory drillcore is gone"),
    ],
    ids=["one of its directories", "the whole store"],
)
def test_a_store_whose_directory_was_moved_is_not_served_until_it_is_moved_back(
    server: Running, operator: Client, path: tuple[str, ...], new: tuple[str, ...], named: str
) -> None:
    made = operator.create_tenant("before")
    rename(server.engine, path, new)
    wait_until(lambda: health_of(server) == _STATUS.NOT_SERVING, "the server notices")
    with pytest.raises(Unavailable) as caught:
        operator.create_tenant("meanwhile")
    assert caught.value.reason is Reason.STORE_UNAVAILABLE
    assert any(named in line.get("message", "") for line in server.log_lines() if line.get("keeper") == "store")
    rename(server.engine, new, path)
    wait_until(lambda: health_of(server) == _STATUS.SERVING, "the server goes on")
    assert list(operator.iter_tenants()) == [made]


def test_a_server_does_not_take_a_new_store_for_its_own(server: Running, operator: Client) -> None:
    """Somebody removed the store, and another server has begun a new one under the same name."""
    operator.create_tenant("before")
    rename(server.engine, STORE_PATH, ("moved",))
    open_store(server.engine)
    wait_until(lambda: health_of(server) == _STATUS.NOT_SERVING, "the server notices")
    with pytest.raises(Unavailable):
        operator.list_tenants()
