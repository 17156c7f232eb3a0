"""A change of the embedding model through the clients and from the command line, across a restart of the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from drillcore import AsyncClient, Client, MigrationProgress, NewFact
from drillcore.cli import main
from drillcore_server.embeddings import migration as migrating
from tests.support.fixtures import new_corpus
from tests.support.servers.migrations import MINILM, NEW, OLD, STATIC
from tests.support.servers.running import ACME, Running, create_tenants, running

FACTS = [f"Training records of site {number} are kept for {number} years after the trial." for number in range(30)]

Migrate = Callable[[Client, str, Callable[[], None]], list[MigrationProgress]]


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A corpus embedded with the built-in model, with so many facts that a migration takes several revisions."""
    monkeypatch.setattr(migrating, "SLICE_MAX", 5)
    with running(tmp_path / "data", OLD) as server:
        create_tenants(server.client())
        corpus = new_corpus(server)
        server.client(ACME).put_facts(corpus, [NewFact(text, "handbook") for text in FACTS])
    return corpus


def sync(client: Client, corpus: str, interrupt: Callable[[], None]) -> list[MigrationProgress]:
    found: list[MigrationProgress] = []
    with client:
        for progress in client.migrate_embeddings(corpus):
            found.append(progress)
            if len(found) == 1:
                interrupt()
    return found


def asynchronous(client: Client, corpus: str, interrupt: Callable[[], None]) -> list[MigrationProgress]:
    async def migrate() -> list[MigrationProgress]:
        found: list[MigrationProgress] = []
        async with AsyncClient.from_settings(client.settings) as own:
            async for progress in own.migrate_embeddings(corpus):
                found.append(progress)
                if len(found) == 1:
                    interrupt()
        return found

    with client:
        return asyncio.run(migrate())


@pytest.mark.parametrize("migrate", [sync, asynchronous], ids=["Client", "AsyncClient"])
def test_a_migration_continues_on_a_restarted_server(tmp_path: Path, corpus: str, migrate: Migrate) -> None:
    with ExitStack() as servers:
        address = servers.enter_context(running(tmp_path / "data", NEW)).address
        restarted: list[Running] = []

        def restart() -> None:
            servers.close()
            restarted.append(servers.enter_context(running(tmp_path / "data", NEW, listen=address)))

        found = migrate(Client(address, token=ACME, timeout_s=60), corpus, restart)
    assert "MigrateEmbeddings" in {line["method"] for line in restarted[0].logged_calls()}, (
        "the migration did not end before the restart"
    )
    assert [progress.finished for progress in found] == [False] * (len(found) - 1) + [True]
    assert found[0].migration.next is not None
    assert found[0].migration.total == len(FACTS)
    assert found[-1].migration.current is not None
    assert found[-1].migration.current.name.startswith(MINILM)
    assert found[-1].migration.next is None


def test_a_corpus_is_migrated_from_the_command_line(tmp_path: Path, corpus: str) -> None:
    with running(tmp_path / "data", NEW) as server:
        environment = {
            "HOME": str(tmp_path),
            "DRILLCORE_CLIENT_ADDRESS": server.address,
            "DRILLCORE_CLIENT_TOKEN": ACME,
        }

        def run(*arguments: str) -> str:
            result = CliRunner(env=environment).invoke(main, ["embeddings", *arguments, "--corpus", corpus])
            assert (result.exit_code, result.stderr) == (0, ""), result.output
            return result.stdout

        assert json.loads(run("show", "--json"))["current"]["name"].startswith(STATIC)
        assert f"{corpus} uses {MINILM}" in run("migrate")
        shown = json.loads(run("show", "--json"))
        assert (shown["current"]["name"].startswith(MINILM), shown["next"]) == (True, None)
        assert shown["finished_at"] is not None
