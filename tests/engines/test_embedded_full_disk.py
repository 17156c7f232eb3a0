"""A full disk or a full map refuses commits that do not fit, loses nothing, and recovers when there is room."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from drillcore_fdb.embedded import EmbeddedEngine, verify
from drillcore_fdb.engine import Transaction
from drillcore_fdb.errors import DiskFullError
from tests.support.processes.killed import process
from tests.support.stores.stores import commit_as_group, opened

MAP_BYTES = 1 << 20


@pytest.mark.parametrize("room_bytes", [0, 8_192, 100_000], ids=lambda room: f"{room} bytes left")
def test_a_full_disk_refuses_the_commit_keeps_stored_data_and_recovers(tmp_path: Path, room_bytes: int) -> None:
    with process("-m", "tests.support.processes.full_disk", str(tmp_path), str(room_bytes)) as writer:
        assert writer.stdout is not None
        result = json.loads(writer.stdout.read())
    for outcome in result["full"]:
        assert outcome.startswith("DiskFullError: no room left for the store"), outcome
    assert result["readable"]
    assert result["with room"] == "committed"
    assert result["keys"] == 20
    assert verify(tmp_path) == []


def fill(engine: EmbeddedEngine) -> list[bytes]:
    """Writes until the map is full. Returns the keys that fit."""
    kept: list[bytes] = []

    def write_on() -> None:
        while True:
            engine.run(lambda tr: tr.set(b"fill/%04d" % len(kept), bytes(20_000)))
            kept.append(b"fill/%04d" % len(kept))

    with pytest.raises(DiskFullError, match="map_size_bytes"):
        write_on()
    return kept


def keys(engine: EmbeddedEngine) -> list[bytes]:
    return engine.run(lambda tr: [key for key, _ in tr.range(b"", b"\xff")])


def test_a_full_map_names_the_setting_and_keeps_everything(tmp_path: Path) -> None:
    with opened(tmp_path, map_size_bytes=MAP_BYTES) as engine:
        kept = fill(engine)
        assert kept
        assert keys(engine) == kept
        with pytest.raises(DiskFullError):
            engine.run(lambda tr: tr.set(b"large", bytes(90_000)))
        assert keys(engine) == kept


def test_deletes_make_room_in_a_full_map(tmp_path: Path) -> None:
    with opened(tmp_path, map_size_bytes=MAP_BYTES) as engine:
        kept = fill(engine)
        for key in kept[:4]:
            engine.run(lambda tr, key=key: tr.clear(key))  # type: ignore[misc]
        engine.run(lambda tr: tr.set(b"new", bytes(20_000)))
        assert keys(engine) == [*kept[4:], b"new"]


def test_a_full_store_needs_only_a_larger_map(tmp_path: Path) -> None:
    with opened(tmp_path, map_size_bytes=MAP_BYTES) as engine:
        kept = fill(engine)
    with opened(tmp_path, map_size_bytes=4 * MAP_BYTES) as engine:
        engine.run(lambda tr: tr.set(b"new", bytes(90_000)))
        assert keys(engine) == [*kept, b"new"]
        assert engine.space()["limit_bytes"] == 4 * MAP_BYTES


def test_a_store_opens_with_a_map_smaller_than_its_file(tmp_path: Path) -> None:
    with opened(tmp_path, map_size_bytes=4 * MAP_BYTES) as engine:
        engine.run(lambda tr: [tr.set(b"%d" % number, bytes(90_000)) for number in range(20)])
    with opened(tmp_path, map_size_bytes=MAP_BYTES) as engine:
        assert len(keys(engine)) == 20


def write_too_much(tr: Transaction) -> None:
    for number in range(20):
        tr.set(b"much/%d" % number, bytes(90_000))


def test_a_transaction_that_does_not_fit_does_not_fail_the_others_of_its_group(tmp_path: Path) -> None:
    with opened(tmp_path, map_size_bytes=MAP_BYTES) as engine:
        small = [lambda tr, n=number: tr.add(b"small/%d" % n, 1) for number in range(6)]
        futures = commit_as_group(engine, [*small[:3], write_too_much, *small[3:]])
        assert isinstance(futures[3].exception(), DiskFullError)
        assert [future.exception() for future in futures[:3] + futures[4:]] == [None] * 6
        assert engine.run(lambda tr: [value for _, value in tr.range(b"small/", b"small0")]) == [b"\1" + bytes(7)] * 6
        assert engine.run(lambda tr: list(tr.range(b"much/", b"much0"))) == []


def test_reads_before_a_full_map_are_still_checked_after_it(tmp_path: Path) -> None:
    """A transaction commits if it read before another's failed commit and its reads have not changed."""
    with opened(tmp_path, map_size_bytes=MAP_BYTES) as engine:
        engine.run(lambda tr: tr.set(b"a", b"1"))
        runs: list[None] = []

        def work(tr: Transaction) -> None:
            runs.append(None)
            assert tr.get(b"a") == b"1"
            if len(runs) == 1:
                with pytest.raises(DiskFullError):
                    engine.run(write_too_much)
            tr.set(b"b", b"2")

        engine.run(work)
        assert engine.run(lambda tr: tr.get(b"b")) == b"2"
