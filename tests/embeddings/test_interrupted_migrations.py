"""A migration survives the loss of its server or its model in the middle of the migration."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from uuid import UUID

import pytest

import drillcore
from drillcore import Client, NewFact
from drillcore_server.app.config import EmbedderKind, FormerSettings, IngestSettings
from drillcore_server.embeddings import migration as migrating
from drillcore_server.vectors.embedding.openai_embedder import OpenAISettings
from tests.embeddings.test_migrate_embeddings import SOUGHT, fill
from tests.support.callers.knowledge import refused
from tests.support.processes.drillcore_process import drillcore as command
from tests.support.processes.drillcore_process import serving as process
from tests.support.servers.migrations import OLD, STATIC, finished, problems, serving
from tests.support.servers.model_servers import ModelServer

FACTS = 600
NEW = """
[ingest]
embedder = "minilm"

[[ingest.former]]
embedder = "static"
"""


def fact(number: int) -> NewFact:
    content = f"Rule {number}: the operator of machine {number} signs its log after every shift, and dates the entry."
    return NewFact(content, source_id="handbook")


def done(client: Client, tenant: UUID, corpus: UUID) -> int:
    return client.get_migration(corpus, tenant_id=tenant).done


def test_a_migration_goes_on_by_itself_when_its_killed_server_is_back(tmp_path: Path) -> None:
    with process(tmp_path) as server, server.client() as client:
        tenant = client.create_tenant("acme").id
        corpus = client.create_corpus("rules", tenant_id=tenant).id
        client.put_facts(corpus, [fact(number) for number in range(FACTS)], tenant_id=tenant)
        before = client.get_migration(corpus, tenant_id=tenant).current
        assert server.stop() == 0
    (tmp_path / "drillcore.toml").write_text(NEW)
    with process(tmp_path) as server, server.client() as client:
        progress = iter(client.migrate_embeddings(corpus, tenant_id=tenant))
        while next(progress).migration.done == 0:
            pass
        server.stop(signal.SIGKILL)
    assert command(tmp_path, "fsck", "--data-dir", str(tmp_path / "data")).exit_code == 0
    with process(tmp_path) as server, server.client() as client:
        kept = done(client, tenant, corpus)
        assert kept > 0, "finished work is not lost"
        assert client.search_facts("who signs the log", corpus_ids=[corpus], tenant_id=tenant).hits
        deadline = time.monotonic() + 120
        while client.get_migration(corpus, tenant_id=tenant).finished_at is None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        now = client.get_migration(corpus, tenant_id=tenant)
        assert now.current != before
        assert (now.next, now.done, now.total) == (None, FACTS, FACTS)
        hits = client.search_facts(fact(77).content, corpus_ids=[corpus], tenant_id=tenant).hits
        assert hits[0].fact.content == fact(77).content
        assert hits[0].score > 0.99
        server.stop()
    assert command(tmp_path, "fsck", "--data-dir", str(tmp_path / "data")).exit_code == 0


def remote(url: str) -> IngestSettings:
    model = OpenAISettings(base_url=url, model="embed", dimensions=32, attempts_max=1, revision="one")
    former = (FormerSettings(embedder=EmbedderKind.STATIC),)
    return IngestSettings(workers=0, embedder=EmbedderKind.OPENAI, embeddings=model, former=former)


def test_a_model_that_goes_down_during_a_migration_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrating, "SLICE_MAX", 5)
    with serving(tmp_path, OLD) as caller:
        corpus = caller.corpus()
        fill(caller, corpus)
    with ModelServer() as model, serving(tmp_path, remote(model.url)) as caller:
        before = caller.answers(corpus, SOUGHT)
        model.fail_after(7)
        with refused(drillcore.Reason.MODEL_UNAVAILABLE):
            caller.migrate(corpus)
        now = caller.migration(corpus)
        assert 0 < now.done < now.total
        assert caller.answers(corpus, SOUGHT) == before
        assert caller.models(corpus) == {STATIC}
        assert problems(caller) == []
        model.fail_after(None)
        assert caller.migrate(corpus)[-1].finished
        assert caller.models(corpus) == {"openai/embed/32@one"}
        assert problems(caller) == []


def test_a_migration_whose_model_came_back_goes_on_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrating, "SLICE_MAX", 5)
    with serving(tmp_path, OLD) as caller:
        corpus = caller.corpus()
        fill(caller, corpus)
    with ModelServer() as model:
        model.fail_after(7)
        with serving(tmp_path, remote(model.url)) as caller, refused(drillcore.Reason.MODEL_UNAVAILABLE):
            caller.migrate(corpus)
        model.fail_after(None)
        with serving(tmp_path, remote(model.url)) as caller:
            finished(caller, corpus)
            assert caller.models(corpus) == {"openai/embed/32@one"}
