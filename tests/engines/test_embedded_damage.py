"""A damaged data directory is refused with a clear error and left unchanged; no damage passes for good data."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from drillcore_fdb import codec
from drillcore_fdb.embedded import EmbeddedEngine, EmbeddedSettings, verify
from drillcore_fdb.embedded.storage import ENGINE_FORMAT
from drillcore_fdb.engine import Transaction
from drillcore_fdb.errors import StoreCorruptError, UnavailableError
from tests.support.processes.damage import PAGE_BYTES, digest
from tests.support.processes.killed import process
from tests.support.stores.stores import opened

DAMAGE_SEEDS = range(60)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    dice = random.Random(1)
    with opened(path) as engine:
        for number in range(120):
            value = dice.randbytes(300)
            engine.run(lambda tr, n=number, v=value: codec.write(tr, b"record/%04d" % n, v))  # type: ignore[misc]
        engine.run(lambda tr: codec.write(tr, b"large", dice.randbytes(100_000)))
        engine.run(lambda tr: codec.write(tr, b"long/" + b"x" * 5_000, b"a value at a long key"))
        engine.run(lambda tr: tr.clear_range(b"record/0040", b"record/0080"))
    return path


def data_of(store: Path) -> Path:
    return store / "kv" / "data.mdb"


def refused(store: Path) -> UnavailableError:
    """The error that opening raises. Asserts that the attempt changed nothing."""
    before = contents(store)
    with pytest.raises(UnavailableError) as raised:
        EmbeddedEngine.open(EmbeddedSettings(path=store))
    assert contents(store) == before
    return raised.value


def contents(store: Path) -> dict[Path, bytes]:
    files = (path for path in store.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files if path.name not in {"LOCK", "lock.mdb"}}


def test_an_undamaged_store_has_no_problems(store: Path) -> None:
    assert verify(store) == []


def test_a_value_that_shrank_within_a_transaction_is_no_damage(tmp_path: Path) -> None:
    """LMDB keeps the pages of such a value, and leaves out pages at the end of the file that a commit freed."""
    large = bytes(5_000)
    path = tmp_path / "store"

    def shrink(tr: Transaction) -> None:
        tr.set(b"shrinks", large)
        tr.set(b"shrinks", b"")

    def come_and_go(tr: Transaction) -> None:
        tr.set(b"", large)
        tr.clear(b"")

    with opened(path) as engine:
        engine.run(lambda tr: tr.set(b"", large))
        engine.run(shrink)
        engine.run(come_and_go)
    assert verify(path) == []
    with opened(path) as engine:
        assert engine.run(lambda tr: list(tr.range(b"", b"\xff"))) == [(b"shrinks", b"")]


CUTS = {
    "to nothing": 0,
    "to one byte": 1,
    "inside the first page": PAGE_BYTES - 1,
    "after the first page": PAGE_BYTES,
    "after the meta pages": 2 * PAGE_BYTES,
    "by ten pages": -10 * PAGE_BYTES,
    "by a page": -PAGE_BYTES,
    "by a byte": -1,
}
"""The new size. A negative size counts from the end."""


@pytest.mark.parametrize("cut", CUTS)
def test_a_truncated_file_is_refused(store: Path, cut: str) -> None:
    size = CUTS[cut]
    os.truncate(data_of(store), size if size >= 0 else data_of(store).stat().st_size + size)
    assert verify(store)
    error = refused(store)
    assert isinstance(error, StoreCorruptError)
    assert "backup" in error.message
    assert str(data_of(store)) in error.message


@pytest.mark.parametrize("noise", [random.Random(2).randbytes(50_000), bytes(50_000), b"a text file\n" * 4_000])
def test_a_foreign_file_is_refused(store: Path, noise: bytes) -> None:
    data_of(store).write_bytes(noise)
    assert verify(store)
    assert isinstance(refused(store), StoreCorruptError)


@pytest.mark.parametrize("pages", [[0], [1], [0, 1]])
def test_a_file_without_its_meta_pages_is_refused(store: Path, pages: list[int]) -> None:
    with data_of(store).open("r+b") as file:
        for page in pages:
            file.seek(page * PAGE_BYTES)
            file.write(bytes(PAGE_BYTES))
    assert verify(store)
    assert isinstance(refused(store), StoreCorruptError)


@pytest.mark.parametrize("missing", ["kv/data.mdb", "kv"])
def test_a_store_whose_file_is_missing_is_not_created_again(store: Path, missing: str) -> None:
    if missing == "kv":
        shutil.rmtree(store / missing)
    else:
        (store / missing).unlink()
    assert "missing" in refused(store).message
    assert not data_of(store).exists()


@pytest.mark.parametrize(
    "marker",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b"\xff\xfe",
        b'{"engine_format": null}',
        b'{"engine_format": "one"}',
        b'{"engine_format": Infinity}',
        b'{"engine_format": 0}',
        b'{"engine_format": -1}',
        b'{"engine_format": 1.5}',
    ],
)
def test_a_broken_engine_json_is_refused(store: Path, marker: bytes) -> None:
    (store / "engine.json").write_bytes(marker)
    error = refused(store)
    assert isinstance(error, StoreCorruptError)
    assert "engine.json" in error.message


def test_a_newer_engine_format_is_refused_with_a_remedy(store: Path) -> None:
    (store / "engine.json").write_text(json.dumps({"engine": "embedded", "engine_format": ENGINE_FORMAT + 1}))
    error = refused(store)
    assert not isinstance(error, StoreCorruptError)
    assert re.search(r"newer Drillcore \(engine format 3, this one knows up to 2\); upgrade", error.message)


def test_an_older_engine_format_is_refused_with_how_to_move_it_and_left_as_it_is(store: Path) -> None:
    (store / "engine.json").write_text(json.dumps({"engine": "embedded", "engine_format": ENGINE_FORMAT - 1}))
    before = (store / "kv" / "data.mdb").read_bytes()
    error = refused(store)
    assert not isinstance(error, StoreCorruptError)
    assert "export a core of each corpus" in error.message
    assert (store / "kv" / "data.mdb").read_bytes() == before


@pytest.mark.parametrize("place", ["LOCK", "engine.json", "kv/data.mdb"])
def test_a_directory_in_place_of_a_file_is_refused(store: Path, place: str) -> None:
    (store / place).unlink()
    (store / place).mkdir()
    refused(store)


def test_a_file_in_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kv").write_text("a file")
    refused(tmp_path)


@pytest.mark.parametrize("path", ["a file", "a file/below"])
def test_a_data_directory_that_cannot_be_made_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "a file").write_text("")
    with pytest.raises(UnavailableError, match=r"the data directory .* cannot be used"):
        EmbeddedEngine.open(EmbeddedSettings(path=tmp_path / path))


def test_a_store_opens_after_a_crash_during_its_first_open(store: Path) -> None:
    (store / "engine.json").unlink()
    with opened(store) as engine:
        assert engine.run(lambda tr: codec.read(tr, b"large"))
    assert (store / "engine.json").exists()


def test_no_damaged_page_passes_for_good_data(store: Path, tmp_path: Path) -> None:
    sound = digest(store)
    seeds = map(str, DAMAGE_SEEDS)
    with process(
        "-m", "tests.support.processes.damage", str(store), str(tmp_path), *seeds, stderr=subprocess.DEVNULL
    ) as reader:
        assert reader.stdout is not None
        results = [json.loads(line) for line in reader.stdout]
    assert [result["seed"] for result in results] == list(DAMAGE_SEEDS)
    for result in results:
        outcome = result["outcome"]
        assert result["problems"] or outcome == sound or outcome.startswith("refused: "), result
    assert any(result["problems"] for result in results), "no damage was found by a check of the file"
    assert any(result["outcome"].startswith("refused: ") for result in results), "no damage was found by reading"
