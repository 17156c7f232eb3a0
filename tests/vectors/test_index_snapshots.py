"""Snapshots of indexes are loaded as they were saved, reveal nothing on disk, and are discarded if damaged."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from drillcore_fdb.embedded import EmbeddedEngine
from drillcore_fdb.tuples import Subspace
from drillcore_server.kernel.telemetry import LogFormat, make_logger
from drillcore_server.storage.ids import CorpusNumber, Revision
from drillcore_server.storage.keyring import Keyring
from drillcore_server.vectors import index_keeper as index_upkeep
from drillcore_server.vectors.index_snapshots import SNAPSHOT_SCOPE, IndexName, IndexSnapshots, SavedAt
from drillcore_server.vectors.settings import VectorSettings
from drillcore_server.vectors.vector_index import VectorIndex
from tests.support.data.vectors import SMALL, index_of, items, never, numbered_id, rows
from tests.support.stores.stores import opened

CORPUS = CorpusNumber(7)
NAME = IndexName(CORPUS, "facts", 1)
AT = SavedAt(Revision(12), UUID(int=5))
QUERIES = rows(10, seed=99)
FRAME = (1 << 20) + 16


@dataclass
class Shelf:
    """A folder of snapshots and the log about them."""

    folder: Path
    keyring: Keyring
    log: io.StringIO
    settings: VectorSettings = SMALL

    @property
    def snapshots(self) -> IndexSnapshots:
        return IndexSnapshots(self.folder, self.keyring, self.settings, make_logger(LogFormat.JSON, self.log))

    @property
    def path(self) -> Path:
        (found,) = self.folder.iterdir()
        return found

    def save(self, index: VectorIndex[UUID], name: IndexName = NAME, at: SavedAt = AT) -> None:
        snapshots = self.snapshots
        snapshots.save(name, at, index, snapshots.key(name))

    def load(self, name: IndexName = NAME) -> tuple[SavedAt, VectorIndex[UUID]] | None:
        return self.snapshots.load(name)

    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.getvalue().splitlines()]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with opened(tmp_path / "keyring") as engine:
        yield engine


@pytest.fixture
def shelf(tmp_path: Path, engine: EmbeddedEngine) -> Shelf:
    return Shelf(tmp_path / "indexes", Keyring(engine, Subspace(b"keyring"), bytes(range(32))), io.StringIO())


def grown(count: int) -> VectorIndex[UUID]:
    index = index_of(items(count))
    index_upkeep.grow_graph(index, never)
    return index


def check_discarded(shelf: Shelf, level: str = "warning") -> None:
    assert shelf.load() is None
    assert not list(shelf.folder.iterdir())
    (line,) = shelf.logged()
    assert line["level"] == level
    assert "discarded" in line["event"]
    assert line["index"] == "7-facts-1"


def test_a_loaded_index_finds_what_was_saved(shelf: Shelf) -> None:
    index = grown(600).changed(dict.fromkeys(list(items(600))[:20]) | items(5, first=1_000))
    shelf.save(index)
    loaded = shelf.load()
    assert loaded is not None
    at, again = loaded
    assert at == AT
    assert sorted(again.ids()) == sorted(index.ids())
    assert len(again) == len(index)
    assert again.log.graph is not None
    assert again.log.graph.count == 600
    for query in QUERIES:
        assert again.search(query, 10) == index.search(query, 10)
        assert again.search(query, 10, exact=True) == index.search(query, 10, exact=True)
    assert not shelf.logged()


def test_a_loaded_index_goes_on_like_the_one_that_was_saved(shelf: Shelf) -> None:
    shelf.save(grown(600))
    loaded = shelf.load()
    assert loaded is not None
    changed = loaded[1].changed({numbered_id(3): None} | items(50, first=1_000))
    index_upkeep.grow_graph(changed, never)
    assert changed.log.graph is not None
    assert changed.log.graph.count == 650
    expected = index_of(
        {item_id: row for item_id, row in (items(600) | items(50, first=1_000)).items() if item_id != numbered_id(3)}
    )
    for query in QUERIES:
        assert changed.search(query, 10, exact=True) == expected.search(query, 10, exact=True)
        assert len(set(changed.search(query, 10)) & set(expected.search(query, 10, exact=True))) >= 9


def test_the_time_of_the_first_removal_is_saved_too(shelf: Shelf) -> None:
    index = index_of(items(100)).changed({numbered_id(3): None})
    shelf.save(index)
    loaded = shelf.load()
    assert loaded is not None
    assert loaded[1].log.gone_since_s == index.log.gone_since_s is not None


def test_vectors_in_several_blocks_and_frames_are_all_there(shelf: Shelf) -> None:
    index = index_of(items(10_000))
    shelf.save(index)
    loaded = shelf.load()
    assert loaded is not None
    labels = np.arange(10_000)
    assert np.array_equal(loaded[1].log.rows(labels), index.log.rows(labels))
    assert np.array_equal(loaded[1].log.units(labels), index.log.units(labels))
    assert loaded[1].search(QUERIES[0], 20) == index.search(QUERIES[0], 20)


def test_saving_again_leaves_one_file(shelf: Shelf) -> None:
    shelf.save(grown(100))
    shelf.save(grown(200), at=replace(AT, revision=Revision(13)))
    assert shelf.path.name == "7-facts-1.index"
    loaded = shelf.load()
    assert loaded is not None
    assert (loaded[0].revision, len(loaded[1])) == (13, 200)


def test_only_snapshots_of_former_models_are_removed(shelf: Shelf) -> None:
    others = [IndexName(CORPUS, "chunks", 1), IndexName(CorpusNumber(70), "facts", 1), replace(NAME, model=2)]
    for name in (NAME, *others):
        shelf.save(grown(60), name)
    shelf.snapshots.remove_former(replace(NAME, model=2))
    assert {path.stem for path in shelf.folder.iterdir()} == set(map(str, others))


def test_neither_vectors_nor_ids_are_on_the_disk(shelf: Shelf) -> None:
    index = grown(600)
    shelf.save(index)
    stored = shelf.path.read_bytes()
    labels = np.arange(600)
    for plain in (index.log.rows(labels), index.log.units(labels), index.log.ids(labels)):
        assert not any(row.tobytes()[:16] in stored for row in plain[::50])
    assert shelf.path.stat().st_mode & 0o077 == 0 or shelf.folder.stat().st_mode & 0o077 == 0


def test_loading_without_a_snapshot_gives_none(shelf: Shelf) -> None:
    assert shelf.load() is None
    assert not shelf.logged()


@pytest.mark.parametrize("place", [0, 10, 18, 24, 5_000, FRAME + 30, -1])
def test_a_damaged_snapshot_is_discarded(shelf: Shelf, place: int) -> None:
    shelf.save(index_of(items(60_000)))
    content = bytearray(shelf.path.read_bytes())
    assert len(content) > 2 * FRAME
    content[place] ^= 1
    shelf.path.write_bytes(content)
    check_discarded(shelf)


@pytest.mark.parametrize("size", [0, 5, 24, 1_000, 24 + FRAME, 24 + FRAME + 5, -1])
def test_a_truncated_snapshot_is_discarded(shelf: Shelf, size: int) -> None:
    shelf.save(index_of(items(60_000)))
    shelf.path.write_bytes(shelf.path.read_bytes()[:size])
    check_discarded(shelf)


def test_exchanged_frames_are_found(shelf: Shelf) -> None:
    shelf.save(index_of(items(60_000)))
    content = shelf.path.read_bytes()
    first, second = content[24 : 24 + FRAME], content[24 + FRAME : 24 + 2 * FRAME]
    shelf.path.write_bytes(content[:24] + second + first + content[24 + 2 * FRAME :])
    check_discarded(shelf)


@pytest.mark.parametrize(
    "name", [IndexName(CorpusNumber(8), "facts", 1), IndexName(CORPUS, "chunks", 1), IndexName(CORPUS, "facts", 2)]
)
def test_a_snapshot_of_another_index_is_discarded(shelf: Shelf, name: IndexName) -> None:
    shelf.save(grown(100), name)
    shelf.path.rename(shelf.folder / "7-facts-1.index")
    check_discarded(shelf)


def test_a_snapshot_of_another_store_is_discarded(shelf: Shelf, tmp_path: Path) -> None:
    shelf.save(grown(100))
    with opened(tmp_path / "other") as engine:
        other_shelf = Shelf(shelf.folder, Keyring(engine, Subspace(b"keyring"), bytes(32)), io.StringIO())
        other_shelf.snapshots.key(NAME)
        check_discarded(other_shelf)


def test_a_snapshot_made_with_other_settings_is_discarded(shelf: Shelf) -> None:
    shelf.save(grown(100))
    check_discarded(replace(shelf, settings=replace(SMALL, m=8)))


def test_once_its_key_is_destroyed_a_snapshot_is_discarded_and_the_next_one_has_another_key(shelf: Shelf) -> None:
    shelf.save(grown(100))
    content = shelf.path.read_bytes()
    number = shelf.snapshots.key(NAME)
    shelf.keyring.destroy(CORPUS, {number: shelf.keyring.hashed(SNAPSHOT_SCOPE)}, datetime.now(UTC))
    check_discarded(shelf, "info")
    shelf.save(grown(100))
    assert shelf.snapshots.key(NAME) != number
    assert shelf.load() is not None
    shelf.path.write_bytes(content)
    assert shelf.load() is None


def test_a_snapshot_whose_key_was_destroyed_meanwhile_is_not_saved(shelf: Shelf) -> None:
    snapshots = shelf.snapshots
    number = snapshots.key(NAME)
    shelf.keyring.destroy(CORPUS, {number: shelf.keyring.hashed(SNAPSHOT_SCOPE)}, datetime.now(UTC))
    snapshots.save(NAME, AT, grown(100), number)
    assert not list(shelf.folder.iterdir())
    (line,) = shelf.logged()
    assert line["event"] == "index not saved"


def test_a_failure_to_save_an_index_does_no_harm(shelf: Shelf) -> None:
    shelf.save(grown(100))
    shelf.path.rename(shelf.folder / "kept")
    (shelf.folder / "7-facts-1.index").mkdir()
    (shelf.folder / "7-facts-1.index" / "in the way").touch()
    shelf.save(grown(200))
    (line,) = shelf.logged()
    assert line["event"] == "index not saved"
    assert {path.name for path in shelf.folder.iterdir()} == {"kept", "7-facts-1.index"}
