"""`drillcore serve` and the other commands of the server, each run as a process."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from drillcore import NewDocument
from drillcore_fdb.format import FORMAT_VERSION
from tests.support.data.texts import notice
from tests.support.processes.children import IGNORING_CTRL_C
from tests.support.processes.drillcore_process import COMMAND, drillcore, is_running, processes_of, serving
from tests.support.servers.running import create_tenants, running
from tests.support.stores.engines import embedded_only
from tests.support.stores.stores import wait_until


def test_a_server_prints_its_address_answers_and_stops(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert server.document.keys() == {"serving"}
        assert server.document["serving"]["token_file"] == str(tmp_path / "data" / "operator.token")
        with server.client() as client:
            assert client.create_tenant("acme").name == "acme"
        assert server.stop(signal.SIGTERM) == 0
        assert server.process.stdout is not None
        assert server.process.stdout.read() == "", "the output is a single JSON document"
    events = [json.loads(line)["event"] for line in (tmp_path / "serve.log").read_text().splitlines()]
    assert (events[-2:], "call" in events) == (["stopping", "stopped"], True)


def test_ctrl_c_stops_a_server_as_well(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert server.stop(signal.SIGINT) == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_server_started_in_the_background_stops_at_either_signal(tmp_path: Path, how: signal.Signals) -> None:
    """It starts with SIGINT ignored, and so do its worker processes."""
    with serving(tmp_path, command=[*IGNORING_CTRL_C, *COMMAND]) as server:
        with server.client() as client:
            tenant = client.create_tenant("acme").id
            corpus = client.create_corpus("rules", tenant_id=tenant).id
            document = NewDocument("a.txt", notice(1).encode())
            assert client.add_documents(corpus, [document], tenant_id=tenant).added == 1
        started = processes_of(server.process.pid)
        assert started, "the server started no worker processes"
        assert server.stop(how) == 0
    wait_until(lambda: not any(is_running(pid) for pid in started), "its processes end with it")


def test_written_records_are_there_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path) as server, server.client() as client:
        made = client.create_tenant("acme", metadata={"region": "eu"})
        server.stop()
    with serving(tmp_path) as server, server.client() as client:
        assert client.get_tenant(name="acme") == made


def test_a_second_server_on_a_directory_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with serving(tmp_path) as first, first.client() as client:
        second = drillcore(tmp_path, "serve", "--json", "--data-dir", "data", "--listen", "127.0.0.1:0")
        assert second.exit_code == 1
        assert second.error["reason"] == "STORE_IN_USE"
        assert f"process {first.process.pid} " in second.error["message"]
        assert client.create_tenant("acme").name == "acme"
        assert first.stop() == 0


def test_a_port_that_is_taken_is_refused_and_the_store_is_free_again(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        second = drillcore(tmp_path, "serve", "--json", "--data-dir", "other", "--listen", server.address)
        assert (second.exit_code, second.error["reason"]) == (2, "INVALID_SETTINGS")
        assert server.address in second.error["message"]
    assert drillcore(tmp_path, "engine", "check", "--json", "--data-dir", "other").document["ok"]


@pytest.mark.parametrize(
    ("text", "wrong", "close"),
    [
        ("[server]\nlisten_on = '127.0.0.1:0'\n", "server.listen_on", "server.listen"),
        ("[engine]\ndata_directory = 'data'\n", "engine.data_directory", "engine.data_dir"),
        ("[sever]\nlisten = '127.0.0.1:0'\n", "sever", "server"),
        ("[[server.tokens]]\nname = 'a'\ntokn = 'x'\n", "server.tokens[0].tokn", "server.tokens[0].token"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_closest_name(tmp_path: Path, text: str, wrong: str, close: str) -> None:
    (tmp_path / "drillcore.toml").write_text(text)
    ended = drillcore(tmp_path, "serve", "--json")
    assert (ended.exit_code, ended.error["reason"]) == (2, "INVALID_SETTINGS")
    assert f'"{wrong}"' in ended.error["message"]
    assert f'did you mean "{close}"' in ended.error["message"]
    assert os.listdir(tmp_path) == ["drillcore.toml"], "no file was made"


def test_an_unknown_variable_is_refused_with_the_closest_name(tmp_path: Path) -> None:
    ended = drillcore(tmp_path, "serve", "--json", DRILLCORE_SERVER_LISTN="127.0.0.1:0")
    assert (ended.exit_code, ended.error["reason"]) == (2, "INVALID_SETTINGS")
    assert 'did you mean "DRILLCORE_SERVER_LISTEN"' in ended.error["message"]


def test_listening_to_other_machines_without_tls_is_refused(tmp_path: Path) -> None:
    ended = drillcore(tmp_path, "serve", "--json", "--listen", "0.0.0.0:0")
    assert (ended.exit_code, ended.error["reason"]) == (2, "INVALID_SETTINGS")
    assert "[server.tls]" in ended.error["message"]


def test_a_data_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    ended = drillcore(tmp_path, "serve", "--json", "--data-dir", "file/data", "--listen", "127.0.0.1:0")
    assert (ended.exit_code, ended.error["reason"]) == (1, "STORE_UNAVAILABLE")
    assert "file/data" in ended.error["message"]


@embedded_only
def test_engine_info_describes_the_store(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        create_tenants(server.client())
    ended = drillcore(tmp_path, "engine", "info", "--json", "--data-dir", "data")
    assert ended.exit_code == 0
    assert ended.document.items() >= {"engine": "embedded", "path": "data", "format_version": FORMAT_VERSION}.items()
    assert ended.document["keys"] > 2


def test_engine_commands_never_create_a_store(tmp_path: Path) -> None:
    for command in ("info", "directories", "compact", "check"):
        ended = drillcore(tmp_path, "engine", command, "--json", "--data-dir", "data")
        assert (ended.exit_code, ended.error["reason"]) == (2, "STORE_NOT_FOUND")
    assert not (tmp_path / "data").exists()


@embedded_only
def test_compacting_frees_disk_space_and_keeps_everything(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        client = server.client()
        create_tenants(client)
        tenants = list(client.iter_tenants())
        large = {f"key {number}": "x" * 4_000 for number in range(100)}
        for number in range(20):
            made = client.create_tenant(f"large {number}", metadata=large)
            client.update_tenant(made.id, remove_metadata=list(large))
            client.delete_tenant(made.id)
    ended = drillcore(tmp_path, "engine", "compact", "--json", "--data-dir", "data")
    assert ended.exit_code == 0
    assert ended.document["after_bytes"] < ended.document["before_bytes"]
    assert (tmp_path / "data" / "kv" / "data.mdb").stat().st_size == ended.document["after_bytes"]
    with running(tmp_path / "data") as server:
        assert list(server.client().iter_tenants()) == tenants


@embedded_only
def test_a_sound_store_passes_the_check(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        create_tenants(server.client())
    ended = drillcore(tmp_path, "engine", "check", "--json", "--data-dir", "data")
    assert (ended.exit_code, ended.document) == (0, {"ok": True, "problems": []})


@embedded_only
def test_engine_commands_leave_a_store_in_use_alone(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        for command in ("info", "compact", "check"):
            ended = drillcore(tmp_path, "engine", command, "--json", "--data-dir", "data")
            assert (ended.exit_code, ended.error["reason"]) == (1, "STORE_IN_USE")
        assert list(server.client().iter_tenants()) == []


def test_the_demo_shows_a_session_and_can_be_repeated(tmp_path: Path) -> None:
    for _ in range(2):
        ended = drillcore(tmp_path, "demo", "--json", "--no-stay", "--data-dir", "demo")
        assert ended.exit_code == 0
        codes = [shown["exit_code"] for shown in ended.document["session"]]
        assert codes == [0] * 12 + [1] + [0] * 4, "the 13th command shows a refusal; the last packs an envelope"


def test_the_doctor_finds_nothing_wrong_with_a_good_set_up(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        ended = drillcore(
            tmp_path,
            "doctor",
            "--json",
            DRILLCORE_CLIENT_ADDRESS=server.address,
            DRILLCORE_CLIENT_TOKEN_FILE=server.document["serving"]["token_file"],
            DRILLCORE_ENGINE_DATA_DIR=str(tmp_path / "data"),
        )
    assert (ended.exit_code, ended.document["ok"]) == (0, True)
    found = {check["name"]: check["status"] for check in ended.document["checks"]}
    assert found.keys() >= {"python", "settings", "server", "token", "protocol", "server settings", "store"}
    assert set(found.values()) <= {"ok", "warn"}


def test_the_doctor_says_that_no_server_answers(tmp_path: Path) -> None:
    ended = drillcore(tmp_path, "doctor", "--json", "--address", "127.0.0.1:1")
    assert (ended.exit_code, ended.document["ok"]) == (1, False)
    (server,) = [check for check in ended.document["checks"] if check["name"] == "server"]
    assert (server["status"], "drillcore serve" in server["remedy"]) == ("fail", True)


def test_a_killed_server_leaves_a_store_that_opens_again(tmp_path: Path) -> None:
    with serving(tmp_path) as server, server.client() as client:
        made = client.create_tenant("acme")
        server.process.kill()
        server.process.wait(timeout=30)
    with serving(tmp_path) as server, server.client() as client:
        assert list(client.iter_tenants()) == [made]
