"""The store's header is made once, kept, and checked at every open."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from drillcore_fdb import codec
from drillcore_fdb.embedded import EmbeddedEngine
from drillcore_fdb.errors import StoreCorruptError, UnavailableError
from drillcore_fdb.format import FORMAT_VERSION, STORE_PATH
from drillcore_server.storage.store import open_store
from tests.support.stores.stores import opened

STORE_ID = UUID(int=7)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with opened(tmp_path) as opened_engine:
        yield opened_engine


def write_header(engine: EmbeddedEngine, record: dict[str, Any]) -> None:
    key = engine.directory(*STORE_PATH).pack((0,))
    engine.run(lambda tr: codec.write(tr, key, codec.encode(record)))


def everything(engine: EmbeddedEngine) -> dict[bytes, bytes]:
    return engine.run(lambda tr: dict(tr.range(b"", b"\xff")))


def test_the_header_is_made_once_and_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        directories, header = open_store(engine)
        made = everything(engine)
        assert header.format_version == FORMAT_VERSION
        assert open_store(engine) == (directories, header)
    with opened(tmp_path) as engine:
        assert open_store(engine) == (directories, header)
        assert everything(engine) == made


def test_two_stores_have_different_ids(tmp_path: Path) -> None:
    with opened(tmp_path / "one") as first, opened(tmp_path / "two") as second:
        assert open_store(first)[1].store_id != open_store(second)[1].store_id


def test_concurrent_opens_get_the_same_header(engine: EmbeddedEngine) -> None:
    with ThreadPoolExecutor(8) as threads:
        headers = list(threads.map(lambda _: open_store(engine), range(16)))
    assert len({header.store_id for _, header in headers}) == 1
    assert all(directories == headers[0][0] for directories, _ in headers)


def test_a_newer_format_is_refused_and_left_unchanged(engine: EmbeddedEngine) -> None:
    write_header(engine, {"format": FORMAT_VERSION + 1, "store": str(STORE_ID), "new in that format": True})
    before, version = everything(engine), engine.space()["version"]
    with pytest.raises(UnavailableError, match=r"format 8, this Drillcore knows up to 7; upgrade Drillcore") as refused:
        open_store(engine)
    assert not isinstance(refused.value, StoreCorruptError)
    assert everything(engine) == before
    assert engine.space()["version"] == version


@pytest.mark.parametrize("version", [1, 6])
def test_an_older_format_is_refused_with_how_to_move_it_and_unchanged(engine: EmbeddedEngine, version: int) -> None:
    """As the releases of these formats made a store: no list in its header, and keys that begin with numbers."""
    write_header(engine, {"format": version, "store": str(STORE_ID)})
    root = engine.directory(*STORE_PATH)
    engine.run(lambda tr: [tr.set(root.pack((number, "a key")), b"a value") for number in range(1, 89)])
    before = everything(engine)
    with pytest.raises(UnavailableError, match=f"format {version}, this Drillcore reads 7. .*export a core of each"):
        open_store(engine)
    assert everything(engine) == before


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"format": 1},
        {"store": str(STORE_ID)},
        {"format": None, "store": str(STORE_ID)},
        {"format": "one", "store": str(STORE_ID)},
        {"format": float("inf"), "store": str(STORE_ID)},
        {"format": 0, "store": str(STORE_ID)},
        {"format": 1, "store": None},
        {"format": 1, "store": 5},
        {"format": 1, "store": "not an id"},
        {"format": 1, "store": STORE_ID.bytes},
        {"format": FORMAT_VERSION, "store": str(STORE_ID)},
        {"format": FORMAT_VERSION, "store": str(STORE_ID), "directories": ["master"]},
        {"format": FORMAT_VERSION, "store": str(STORE_ID), "directories": {"master": "a prefix"}},
    ],
)
def test_an_unreadable_header_is_damage_and_left_unchanged(engine: EmbeddedEngine, header: dict[str, Any]) -> None:
    write_header(engine, header)
    before = everything(engine)
    with pytest.raises(StoreCorruptError, match="header"):
        open_store(engine)
    assert everything(engine) == before


def test_a_header_with_changed_bytes_is_damage(engine: EmbeddedEngine) -> None:
    open_store(engine)
    key = engine.directory(*STORE_PATH).pack((0,))
    engine.run(lambda tr: tr.set(key, (tr.get(key) or b"")[:-1]))
    with pytest.raises(StoreCorruptError):
        open_store(engine)
