"""Fixtures for all tests: a server or an engine of its own for every test, and one server that is shared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from drillcore import Client
from drillcore_fdb.engine import Engine
from tests.support.callers.knowledge import Caller
from tests.support.data.texts import REGULATIONS
from tests.support.servers.running import ACME, GLOBEX, Running, create_tenants, running
from tests.support.servers.trees import Tree, walk
from tests.support.stores.engines import cluster_file, open_engine, remove_stores

TenantFactory = Callable[[str], Client]


@pytest.fixture(autouse=cluster_file() is not None)
def no_store_left(tmp_path: Path) -> Iterator[None]:
    """Removes what the test kept on a cluster. What it kept in its directory, pytest removes."""
    yield
    remove_stores(tmp_path)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    opened = open_engine(tmp_path / "store")
    yield opened
    opened.close()


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
    """One server for tests that make many calls and do not look at what is stored."""
    with running(tmp_path_factory.mktemp("shared")) as found:
        create_tenants(found.client())
        yield found


@pytest.fixture(scope="session")
def library(shared: Running) -> Iterator[Caller]:
    """A caller of the shared server's services for documents and nodes, in the tenant acme."""
    caller = Caller(shared.address, ACME)
    yield caller
    caller.close()


def new_corpus(server: Running, token: str = ACME) -> str:
    with server.client(token) as client:
        return str(client.create_corpus(f"corpus {uuid4()}").id)


@pytest.fixture
def corpus(shared: Running) -> str:
    """An empty corpus of acme on the shared server."""
    return new_corpus(shared)


@dataclass(frozen=True)
class Filled:
    """A corpus with all the regulations, which tests only read."""

    corpus: str
    ids: Mapping[str, str]
    """The ids of its documents, by name."""
    tree: Tree


@pytest.fixture(scope="session")
def filled(shared: Running, library: Caller) -> Filled:
    corpus = new_corpus(shared)
    ids = library.add_texts(corpus, REGULATIONS)
    return Filled(corpus, ids, walk(library, corpus))
