"""Cores over lines that are cut: both clients continue where they were, and the corpus and the file are whole."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from drillcore import AsyncClient, Client, CoreProgress, NewDocument
from tests.support.servers.cut_lines import line_to
from tests.support.servers.running import ACME, ACME_ID, OPERATOR, Running, create_tenants, running
from tests.support.stores.stores import wait_until

Do = Callable[..., Any]
SIZE_WORDS = 120_000


def sync(address: str, method: str, *args: Any, **options: Any) -> Any:
    with Client(address, token=OPERATOR, timeout_s=20) as client:
        return getattr(client, method)(*args, **options)


def asynchronous(address: str, method: str, *args: Any, **options: Any) -> Any:
    async def run() -> Any:
        async with AsyncClient(address, token=OPERATOR, timeout_s=20) as client:
            return await getattr(client, method)(*args, **options)

    return asyncio.run(run())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("data")) as found:
        create_tenants(found.client())
        yield found


@pytest.fixture(scope="module")
def corpus(server: Running) -> UUID:
    """A corpus with a document of about a megabyte that does not compress."""
    words = random.Random(7)
    text = " ".join(f"{words.getrandbits(32):08x}" + (".\n\n" if n % 40 == 39 else "") for n in range(SIZE_WORDS))
    client = server.client(ACME)
    found = client.create_corpus("rules").id
    client.add_documents(found, [NewDocument("noise.txt", text.encode(), source_id="noise")])
    return found


@pytest.fixture(scope="module")
def core(server: Running, corpus: UUID, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("core") / "rules.core"
    server.client().export_core(corpus, path, tenant_id=ACME_ID)
    return path


@pytest.fixture(params=[sync, asynchronous], ids=["Client", "AsyncClient"])
def do(request: pytest.FixtureRequest) -> Do:
    found: Do = request.param
    return found


def is_heard(server: Running) -> bool:
    """Whether the server has received some of a core, which it keeps when the line is cut."""
    return server.server.uploads._size_bytes() > 0


def test_an_export_is_the_same_over_a_cut_line(
    server: Running, corpus: UUID, core: Path, do: Do, tmp_path: Path
) -> None:
    heard: list[CoreProgress] = []
    with line_to(server.address, [200_000, 5_000, 700_000]) as line:
        result = do(line.address, "export_core", corpus, tmp_path / "a.core", tenant_id=ACME_ID, on_event=heard.append)
    assert line.cut == 3
    assert (tmp_path / "a.core").read_bytes() == core.read_bytes()
    assert result.sha256 == hashlib.sha256(core.read_bytes()).hexdigest()
    received = [progress.size_bytes for progress in heard if progress.stage == "receiving"]
    assert received == sorted(set(received)), "no byte came twice"
    assert {path.name for path in tmp_path.iterdir()} == {"a.core", "a.core.sig"}


def test_an_import_is_whole_over_a_cut_line(server: Running, core: Path, do: Do, tmp_path: Path) -> None:
    heard: list[CoreProgress] = []
    client = server.client()
    tenant = client.create_tenant(f"who has none of its ids, {do.__name__}").id
    target = client.create_corpus("moved", tenant_id=tenant).id
    with line_to(
        server.address, [300_000, 5_000, 700_000], lambda: wait_until(lambda: is_heard(server), "an upload")
    ) as line:
        result = do(line.address, "import_core", target, core, tenant_id=tenant, on_event=heard.append)
    assert line.cut == 3
    assert result.counts.documents == 1
    offsets = [progress.size_bytes for progress in heard if progress.stage == "sending"]
    assert offsets == sorted(offsets)
    assert offsets[-1] > 0, "bytes that had arrived were not sent again"
    client.export_core(target, tmp_path / "again.core", tenant_id=tenant)
    assert (tmp_path / "again.core").read_bytes() == core.read_bytes()
