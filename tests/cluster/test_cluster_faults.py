"""A cluster that goes away and comes back, or moves, while a server works on it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from drillcore import Client, DrillcoreError, NewFact
from drillcore_proto.reasons import Reason
from tests.support.servers.installation import Installation, free_port, installed
from tests.support.servers.own_cluster import OwnCluster, own_cluster
from tests.support.stores.stores import wait_until

pytestmark = pytest.mark.timeout(600)
TEXT = "Batch record 7 is kept in the archive of the site for ten years after its release."


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[OwnCluster, int]]:
    with own_cluster(tmp_path / "cluster") as found:
        yield found


@pytest.fixture
def installation(cluster: tuple[OwnCluster, int], tmp_path: Path) -> Iterator[Installation]:
    with installed(tmp_path, cluster[0].file, "one") as found:
        yield found


def put(client: Client, corpus: UUID, **settings: object) -> UUID:
    (fact,) = client.put_facts(corpus, [NewFact(TEXT, source_id="log")], **settings).fact_ids  # type: ignore[arg-type]
    return fact


def answers(client: Client, fact: UUID) -> bool:
    try:
        return client.get_facts([fact])[0].content == TEXT
    except DrillcoreError:
        return False


def test_a_server_goes_on_when_the_cluster_is_back(cluster: tuple[OwnCluster, int], installation: Installation) -> None:
    servers, port = cluster
    with installation.client("one", attempts=1) as client:
        corpus = client.create_corpus("kept").id
        before = put(client, corpus)
        servers.kill(port)
        began_s = time.monotonic()
        with pytest.raises(DrillcoreError) as caught:
            put(client, corpus, request_id="in-the-dark", timeout_s=5.0)
        assert time.monotonic() - began_s < 10.0
        assert caught.value.reason in (Reason.STORE_UNAVAILABLE, Reason.DEADLINE_EXCEEDED)
        servers.start(port)
        wait_until(lambda: answers(client, before), "the server has the cluster again")
        during = put(client, corpus, request_id="in-the-dark")
        assert put(client, corpus, request_id="in-the-dark") == during
        assert {fact.id for fact in client.iter_facts(corpus)} == {before, during}
    assert installation.problems() == ()


def test_a_server_follows_its_coordinators(cluster: tuple[OwnCluster, int], installation: Installation) -> None:
    servers, _ = cluster
    moved = free_port()
    with installation.client("one", attempts=1) as client:
        corpus = client.create_corpus("kept").id
        before = put(client, corpus)
        servers.start(moved)
        wait_until(lambda: f":{moved}" in servers.cli("status details"), "the second server is there")
        assert "changed" in servers.cli(f"coordinators 127.0.0.1:{moved}").lower()
        wait_until(lambda: answers(client, before), "the server has the coordinator")
        wait_until(lambda: f":{moved}" in servers.file.read_text(), "the cluster file names it")
        after = put(client, corpus)
        installation.stop("one")
        installation.start("one").close()
        wait_until(lambda: answers(client, after), "the server has started with the new coordinator")
    assert installation.problems() == ()
