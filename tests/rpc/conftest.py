"""A server of its own for every test: nothing of one test is there in another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drillcore import Client
from tests.rpc.running import ACME, GLOBEX, Running, create_tenants, running

TenantFactory = Callable[[str], Client]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "data") as found:
        yield found


@pytest.fixture
def operator(server: Running) -> Client:
    """An operator's client. It names the tenant in each call that needs one."""
    return server.client()


@pytest.fixture
def tenant(server: Running, operator: Client) -> TenantFactory:
    """Makes both tenants; then `tenant("acme")` and `tenant("globex")` are their clients."""
    create_tenants(operator)
    tokens = {"acme": ACME, "globex": GLOBEX}
    return lambda name: server.client(tokens[name])


@pytest.fixture
def acme(tenant: TenantFactory) -> Client:
    return tenant("acme")


@pytest.fixture
def globex(tenant: TenantFactory) -> Client:
    return tenant("globex")


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server for tests that only make calls which are refused, and so leave nothing behind."""
    with running(tmp_path_factory.mktemp("shared")) as found:
        create_tenants(found.client())
        yield found
