"""`drillcore doctor` says what is wrong and how to fix it."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from grpc_health.v1 import health_pb2

from drillcore.cli import main
from drillcore.doctor import Check, Status
from drillcore_proto.reasons import Reason
from tests.support.servers.in_memory_server import Peer, because, running

Examine = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def peer() -> Iterator[Peer]:
    with running() as peer:
        yield peer


@pytest.fixture(autouse=True)
def no_other_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks that the server's package adds are tested with the server."""
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: EntryPoints([]))


@pytest.fixture
def examine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Examine:
    """Runs the doctor in an empty directory. Returns its exit code, and the checks by name."""
    monkeypatch.chdir(tmp_path)

    def examine(*arguments: str, **environment: str) -> tuple[int, dict[str, Any]]:
        runner = CliRunner(env={"HOME": str(tmp_path), **environment})
        result = runner.invoke(main, ["doctor", "--json", *arguments])
        assert result.stderr == ""
        return result.exit_code, {check["name"]: check for check in json.loads(result.stdout)["checks"]}

    return examine


def test_a_sound_set_up_passes_every_check(examine: Examine, peer: Peer) -> None:
    code, checks = examine("--address", peer.address, "--token", "secret")
    assert code == 0
    assert {name: check["status"] for name, check in checks.items()} == dict.fromkeys(
        ["python", "server packages", "settings", "encryption", "server", "token", "protocol"], "ok"
    )
    assert "operator" in checks["token"]["message"]
    assert "server 9.8.7 (API 1.5, embedded engine)" in checks["protocol"]["message"]


def test_every_setting_is_listed_with_its_source_and_the_token_is_not_shown(
    examine: Examine, peer: Peer, tmp_path: Path
) -> None:
    (tmp_path / "drillcore.toml").write_text('[client]\ntoken = "top-secret"')
    _, checks = examine("--address", peer.address, DRILLCORE_CLIENT_TIMEOUT_S="9")
    details = checks["settings"]["details"]
    assert f"address = {peer.address}  (the command line)" in details
    assert "timeout_s = 9.0  (environment variable DRILLCORE_CLIENT_TIMEOUT_S)" in details
    assert "token = set, not shown  (drillcore.toml)" in details
    assert "attempts = 5  (default)" in details
    assert "top-secret" not in json.dumps(checks)


def test_a_wrong_setting_fails_and_is_named(examine: Examine, tmp_path: Path) -> None:
    (tmp_path / "drillcore.toml").write_text('[client]\nadress = "x"')
    code, checks = examine()
    assert (code, checks["settings"]["status"]) == (1, "fail")
    assert 'did you mean "client.address"' in checks["settings"]["message"]


def test_a_missing_server_fails_with_a_remedy(examine: Examine) -> None:
    code, checks = examine("--address", "127.0.0.1:1")
    assert (code, checks["server"]["status"]) == (1, "fail")
    assert "drillcore serve" in checks["server"]["remedy"]
    assert "token" not in checks


def test_a_server_that_takes_no_calls_fails(examine: Examine, peer: Peer) -> None:
    peer.health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    code, checks = examine("--address", peer.address)
    assert (code, checks["server"]["status"]) == (1, "fail")
    assert "does not accept calls now" in checks["server"]["message"]


def test_a_rejected_token_fails_with_a_remedy(examine: Examine, peer: Peer) -> None:
    peer.failures = [because(Reason.UNAUTHENTICATED, "no valid token")]
    code, checks = examine("--address", peer.address)
    assert (code, checks["token"]["status"]) == (1, "fail")
    assert "operator.token" in checks["token"]["remedy"]


@pytest.mark.parametrize(
    ("theirs", "status", "code"), [("2.0", "fail", 1), ("0.9", "fail", 1), ("1.7", "ok", 0), ("1", "fail", 1)]
)
def test_versions_of_the_protocol_are_compared(
    examine: Examine, peer: Peer, theirs: str, status: str, code: int
) -> None:
    peer.api_version = theirs
    found, checks = examine("--address", peer.address)
    assert (found, checks["protocol"]["status"]) == (code, status)


def test_a_server_with_an_older_minor_version_is_a_warning(
    examine: Examine, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drillcore.doctor.api_version", lambda: "1.6")
    code, checks = examine("--address", peer.address)
    assert (code, checks["protocol"]["status"]) == (0, "warn")
    assert "upgrade the server" in checks["protocol"]["remedy"]


def test_an_unencrypted_token_fails_and_no_encryption_is_a_warning(examine: Examine) -> None:
    code, checks = examine("--address", "drillcore.invalid:7600", "--token", "secret")
    assert (code, checks["connection"]["status"]) == (1, "fail")
    _, checks = examine("--address", "drillcore.invalid:7600", "--timeout", "0.2")
    assert checks["encryption"]["status"] == "warn"


def test_tls_files_without_certificates_fail(examine: Examine, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nonsense")
    code, checks = examine("--address", "127.0.0.1:1", DRILLCORE_CLIENT_TLS_CA_FILE="ca.pem")
    assert (code, checks["encryption"]["status"]) == (1, "fail")
    assert "PEM" in checks["encryption"]["remedy"]


def test_missing_server_packages_are_named(examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drillcore.doctor._is_installed", lambda name: name != "lmdb")
    checks = examine("--address", "127.0.0.1:1")[1]
    assert checks["server packages"]["status"] == "warn"
    assert checks["server packages"]["message"] == "not installed: lmdb"
    monkeypatch.setattr("drillcore.doctor._is_installed", lambda _: False)
    assert "a client only" in examine("--address", "127.0.0.1:1")[1]["server packages"]["message"]


def test_other_packages_add_checks_and_a_broken_check_hides_no_others(
    examine: Examine, peer: Peer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def engine(environment: Mapping[str, str], file: Path | None) -> Iterable[Check]:
        yield Check("engine", Status.WARN, f"{file} {environment['HOME']}", "mend it")

    def breaks(environment: Mapping[str, str], file: Path | None) -> Iterable[Check]:
        raise OSError("disk on fire")

    loads = {"breaks": lambda: breaks, "engine": lambda: engine, "missing": lambda: __import__("not_there")}
    monkeypatch.setattr(EntryPoint, "load", lambda entry: loads[entry.name]())
    found = EntryPoints(EntryPoint(name, "x:y", "drillcore.doctor") for name in loads)
    monkeypatch.setattr(importlib.metadata, "entry_points", found.select)
    code, checks = examine("--address", peer.address)
    assert checks["engine"]["message"] == f"None {tmp_path}"
    assert (code, checks["breaks"]["status"]) == (1, "fail")
    assert "disk on fire" in checks["breaks"]["message"]
    assert "missing" not in checks


def test_people_see_a_line_for_each_check_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner(env={"HOME": str(tmp_path)}).invoke(main, ["doctor", "--address", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert "ok   python: Python 3." in result.stdout
    assert "fail server: UNAVAILABLE: no answer from 127.0.0.1:1" in result.stdout
    assert "     -> start a server with `drillcore serve`" in result.stdout
