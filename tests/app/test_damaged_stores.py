"""A store that is damaged or newer than this software is refused with a reason and left exactly as it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from drillcore import Reason, Unavailable
from drillcore_fdb import codec
from drillcore_fdb.engine import Transaction
from drillcore_fdb.format import FORMAT_VERSION, STORE_PATH
from drillcore_server.storage.store import open_store as open_header
from tests.support.processes.drillcore_process import Ended, drillcore
from tests.support.servers.running import create_tenants, running
from tests.support.stores.engines import embedded_only, open_engine

pytestmark = embedded_only


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of a sound store with something in it."""
    with running(tmp_path / "data") as server:
        create_tenants(server.client())
        for number in range(20):
            server.client().create_tenant(f"tenant {number}", metadata={"key": "x" * 4_000})
    return tmp_path / "data"


def contents(data: Path) -> dict[str, bytes]:
    """Every file of the store but LOCK and lock.mdb, which only say which process has the store open."""
    files = (path for path in data.rglob("*") if path.is_file() and path.name not in {"LOCK", "lock.mdb"})
    return {str(path.relative_to(data)): path.read_bytes() for path in files}


def serve(data: Path) -> Ended:
    return drillcore(data.parent, "serve", "--json", "--data-dir", "data", "--listen", "127.0.0.1:0")


def cut_in_half(data: Path) -> None:
    file = data / "kv" / "data.mdb"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(data: Path) -> None:
    (data / "kv" / "data.mdb").write_bytes(b"")


def fill_with_garbage(data: Path) -> None:
    (data / "kv" / "data.mdb").write_bytes(b"this is not a store " * 5_000)


def overwrite_the_beginning(data: Path) -> None:
    with (data / "kv" / "data.mdb").open("r+b") as file:
        file.write(bytes(8_192))


def remove_the_file(data: Path) -> None:
    (data / "kv" / "data.mdb").unlink()


def garble_the_marker(data: Path) -> None:
    (data / "engine.json").write_text("{")


def marker_without_a_format(data: Path) -> None:
    (data / "engine.json").write_text('{"engine": "embedded"}')


DAMAGE = [
    cut_in_half,
    empty,
    fill_with_garbage,
    overwrite_the_beginning,
    remove_the_file,
    garble_the_marker,
    marker_without_a_format,
]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_a_damaged_store_is_refused_and_left_as_it_is(data: Path, damage: Callable[[Path], None]) -> None:
    damage(data)
    before = contents(data)
    ended = serve(data)
    assert ended.exit_code == 1, ended
    assert ended.error["reason"] == "STORE_CORRUPT"
    assert "backup" in ended.error["message"]
    assert contents(data) == before


@pytest.mark.parametrize("damage", [cut_in_half, empty, fill_with_garbage], ids=lambda damage: damage.__name__)
def test_the_check_finds_the_damage(data: Path, damage: Callable[[Path], None]) -> None:
    damage(data)
    before = contents(data)
    ended = drillcore(data.parent, "engine", "check", "--json", "--data-dir", "data")
    assert (ended.exit_code, ended.document["ok"]) == (1, False)
    assert ended.document["problems"]
    assert contents(data) == before


@pytest.mark.parametrize("damage", [cut_in_half, empty], ids=lambda damage: damage.__name__)
def test_a_damaged_store_is_not_compacted(data: Path, damage: Callable[[Path], None]) -> None:
    damage(data)
    before = contents(data)
    ended = drillcore(data.parent, "engine", "compact", "--json", "--data-dir", "data")
    assert (ended.exit_code, ended.error["reason"]) == (1, "STORE_CORRUPT")
    assert contents(data) == before


def test_a_damaged_record_is_found_when_it_is_read_and_others_are_served(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        client = server.client()
        hurt = client.create_tenant("hurt", metadata={"key": "MARK" * 100}, request_id="one")
        sound = client.create_tenant("sound")
    file = tmp_path / "kv" / "data.mdb"
    file.write_bytes(file.read_bytes().replace(b"MARKMARK", b"MARKmARK"))
    with running(tmp_path) as server:
        client = server.client()
        with pytest.raises(Unavailable) as caught:
            client.get_tenant(hurt.id)
        assert caught.value.reason is Reason.STORE_UNAVAILABLE
        assert client.get_tenant(sound.id) == sound


def test_the_doctor_reports_the_damage(data: Path) -> None:
    cut_in_half(data)
    ended = drillcore(data.parent, "doctor", "--json", DRILLCORE_ENGINE_DATA_DIR=str(data))
    (store,) = [check for check in ended.document["checks"] if check["name"] == "store"]
    assert (ended.exit_code, store["status"]) == (1, "fail")
    assert "backup" in store["remedy"]


def test_a_directory_of_a_newer_engine_format_is_refused_and_left_as_it_is(data: Path) -> None:
    marker = json.loads((data / "engine.json").read_text())
    (data / "engine.json").write_text(json.dumps({**marker, "engine_format": marker["engine_format"] + 1}))
    before = contents(data)
    ended = serve(data)
    assert (ended.exit_code, ended.error["reason"]) == (1, "STORE_UNAVAILABLE")
    assert "newer" in ended.error["message"]
    assert "upgrade Drillcore" in ended.error["message"]
    assert contents(data) == before


def set_store_format(data: Path, version: int) -> None:
    engine = open_engine(data)
    _, header = open_header(engine)
    key = engine.directory(*STORE_PATH).pack((0,))

    def work(tr: Transaction) -> None:
        codec.write(tr, key, codec.encode({"format": version, "store": str(header.store_id)}))

    engine.run(work)
    engine.close()


@pytest.mark.parametrize(
    ("version", "advice"), [(FORMAT_VERSION + 1, "upgrade Drillcore"), (6, "export a core of each corpus")]
)
def test_a_store_of_another_format_is_refused_and_left_as_it_is(data: Path, version: int, advice: str) -> None:
    set_store_format(data, version)
    (data / "operator.token").unlink(missing_ok=True)
    before = contents(data)
    for command in ("serve --listen 127.0.0.1:0", "engine info", "engine directories", "fsck"):
        ended = drillcore(data.parent, *command.split(), "--json", "--data-dir", "data")
        assert (ended.exit_code, ended.error["reason"]) == (1, "STORE_UNAVAILABLE")
        assert f"format {version}" in ended.error["message"]
        assert advice in ended.error["message"]
    assert contents(data) == before


def test_a_store_without_one_of_its_directories_is_refused_and_left_as_it_is(data: Path) -> None:
    engine = open_engine(data)
    engine.remove_directory(*STORE_PATH, "indexes", "members")
    engine.close()
    before = contents(data)
    for command in ("serve --listen 127.0.0.1:0", "engine info", "fsck"):
        ended = drillcore(data.parent, *command.split(), "--json", "--data-dir", "data")
        assert (ended.exit_code, ended.error["reason"]) == (1, "STORE_CORRUPT")
        assert "the directory drillcore/indexes/members is gone" in ended.error["message"]
    assert contents(data) == before
    ended = drillcore(data.parent, "engine", "directories", "--json", "--data-dir", "data")
    assert "indexes/members" not in {directory["name"] for directory in ended.document["directories"]}
