"""`drillcore engine directories` shows what the store holds, by name."""

from __future__ import annotations

from pathlib import Path

from drillcore_server.storage.spaces import Space
from tests.support.processes.drillcore_process import drillcore
from tests.support.servers.running import create_tenants, running


def test_the_directories_are_listed_with_their_keys_and_bytes(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        create_tenants(server.client())
        stored = server.engine.run(lambda tr: dict(tr.range(b"", b"\xfe")))
        prefixes = {space: place.prefix for space, place in server.server._unit.keys._spaces.items()}
    ended = drillcore(tmp_path, "engine", "directories", "--json", "--data-dir", "data")
    assert ended.exit_code == 0, ended
    listed = {directory["name"]: directory for directory in ended.document["directories"]}
    assert listed.keys() == {*Space, *(space.split("/")[0] for space in Space)}
    for space, prefix in prefixes.items():
        assert listed[space]["prefix"] == prefix.hex()
    written = [key for key in stored if key.startswith(prefixes[Space.TENANTS])]
    assert listed["tenants"]["keys"] == len(written) == 2
    assert listed["tenants"]["bytes"] == sum(len(key) + len(stored[key]) for key in written)
    tops = [figures for name, figures in listed.items() if "/" not in name]
    assert ended.document["store"] == "drillcore"
    assert ended.document["keys"] == 1 + sum(figures["keys"] for figures in tops), "the header and all directories"
    assert listed["audit"]["keys"] == sum(figures["keys"] for name, figures in listed.items() if "audit/" in name) > 0


def test_people_see_a_tree(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server:
        create_tenants(server.client())
    ended = drillcore(tmp_path, "engine", "directories", "--data-dir", "data")
    assert ended.exit_code == 0, ended
    lines = [line.rstrip() for line in ended.output.splitlines()]
    assert lines[0].split() == ["directory", "keys", "bytes"]
    assert lines[1].startswith("drillcore ")
    assert lines[2].startswith("  audit ")
    assert lines[3].startswith("    checkpoints ")
    (tenants,) = (line.split() for line in lines if line.startswith("  tenants "))
    assert tenants[1] == "2"
