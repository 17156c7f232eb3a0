"""What an operator watches: health, metrics, and where the server listens."""

from __future__ import annotations

import socket
import urllib.request
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from drillcore import SettingsError, Unauthenticated
from drillcore_server.app.config import ServerSettings
from tests.support.servers.running import ACME, ACME_ID, Running, create_tenants, running
from tests.support.stores.engines import embedded_only

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read(), "utf-8")


def samples(text: str) -> Samples:
    families = text_string_to_metric_families(text)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def calls(method: str, outcome: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return "drillcore_calls_total", frozenset({("method", method), ("outcome", outcome)})


def test_metrics_count_calls_by_method_and_outcome(tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path, metrics_listen=f"127.0.0.1:{port}") as server:
        create_tenants(server.client())
        server.client(ACME).create_corpus("trials")
        for _ in range(3):
            with pytest.raises(Unauthenticated):
                server.client("wrong").list_tenants()
        found = samples(scrape(port))
    assert found[calls("CreateTenant", "OK")] == 2
    assert found[calls("CreateCorpus", "OK")] == 1
    assert found[calls("ListTenants", "UNAUTHENTICATED")] == 3
    assert found["drillcore_call_seconds_count", frozenset({("method", "ListTenants")})] == 3


@embedded_only
def test_metrics_show_the_engines_figures(tmp_path: Path) -> None:
    """The server also commits by itself now and then, so the metric lies between two counts of the engine."""
    port = free_port()
    with running(tmp_path, metrics_listen=f"127.0.0.1:{port}") as server:
        before = samples(scrape(port))
        server.client().create_tenant("acme")
        counted = [server.engine.figures().totals["commits"]]
        after = samples(scrape(port))
        counted.append(server.engine.figures().totals["commits"])
    commits = ("drillcore_engine_commits_total", frozenset[tuple[str, str]]())
    assert before[commits] + 1 <= counted[0] <= after[commits] <= counted[1]
    assert after["drillcore_engine_keys", frozenset()] > before["drillcore_engine_keys", frozenset()]
    assert after["drillcore_engine_file_bytes", frozenset()] > 0


def test_metrics_hold_no_ids_and_no_content(tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path, metrics_listen=f"127.0.0.1:{port}") as server:
        create_tenants(server.client())
        server.client(ACME).create_corpus(
            "marker-name", metadata={"marker-key": "marker-value"}, request_id="marker-id"
        )
        text = scrape(port)
    assert "drillcore_calls_total" in text
    assert not [word for word in ("marker", str(ACME_ID), "acme", "ann@acme", "root") if word in text]


def test_metrics_stop_with_the_server(tmp_path: Path) -> None:
    port = free_port()
    with running(tmp_path, metrics_listen=f"127.0.0.1:{port}"):
        scrape(port)
    with pytest.raises(OSError, match="refused"):
        scrape(port)


def test_a_metrics_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with (
            pytest.raises(SettingsError, match=rf"server.metrics_listen {address}"),
            running(tmp_path, metrics_listen=address),
        ):
            pass


def test_a_port_that_is_taken_is_named(tmp_path: Path, server: Running) -> None:
    with (
        pytest.raises(SettingsError, match=rf"server.listen {server.address}"),
        running(tmp_path / "other", listen=server.address),
    ):
        pass


@pytest.mark.parametrize("listen", ["0.0.0.0:7600", "[::]:7600", "192.0.2.1:7600", "example.org:7600"])
def test_listening_to_other_machines_needs_tls(listen: str) -> None:
    with pytest.raises(ValueError, match=r"no \[server.tls\]"):
        ServerSettings(listen=listen)
    assert ServerSettings(listen=listen, allow_insecure=True).listen == listen


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.0.0.53:7600", "localhost:7600", "[::1]:7600"])
def test_listening_to_this_machine_needs_no_tls(listen: str) -> None:
    assert ServerSettings(listen=listen).tls is None


def test_a_name_that_only_looks_like_this_machine_needs_tls() -> None:
    with pytest.raises(ValueError, match=r"no \[server.tls\]"):
        ServerSettings(listen="127.example.org:7600")


def test_an_unknown_service_has_no_health(server: Running) -> None:
    with grpc.insecure_channel(server.address) as channel, pytest.raises(grpc.RpcError) as caught:
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="nothing"), timeout=10)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
