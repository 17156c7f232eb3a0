"""Space on the disk: old snapshots keep pages, and compaction gives pages back."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from drillcore_fdb.embedded import EmbeddedEngine, compact, transaction, verify
from drillcore_fdb.engine import KeyValue, Options
from drillcore_fdb.errors import TransactionTooOldError
from tests.support.stores.stores import opened, wait_until

FILLED = {100: 1.7, 300: 1.3, 900: 1.3, 1_500: 1.3, 3_000: 1.3}
"""By the size of values: how many times their size the pages may take. Pages with half empty ones take about twice."""


def overwrite(engine: EmbeddedEngine, times: int) -> None:
    for _ in range(times):
        value = os.urandom(90_000)
        engine.run(lambda tr, value=value: tr.set(b"a", value))  # type: ignore[misc]


def test_an_open_transaction_keeps_old_pages_only_until_it_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "TRANSACTION_AGE_S_MAX", 1.0)
    with opened(tmp_path) as engine:
        overwrite(engine, 5)
        left_open = engine.begin(Options())
        left_open.get(b"a")
        before = engine.space()["file_bytes"]
        overwrite(engine, 20)
        grown = engine.space()["file_bytes"]
        assert grown > before + 15 * 90_000, "an open snapshot keeps its pages"
        wait_until(lambda: not len(engine.snapshots), "the reaper ends the snapshot")
        overwrite(engine, 40)
        assert engine.space()["file_bytes"] <= grown + 3 * 90_000
        with pytest.raises(TransactionTooOldError):
            left_open.get(b"a")
        left_open.close()


def everything(path: Path) -> list[KeyValue]:
    with opened(path) as engine:
        return engine.run(lambda tr: list(tr.range(b"", b"\xff")))


@pytest.fixture
def half_empty(tmp_path: Path) -> Path:
    """A store with short and long keys, most of which were deleted."""
    path = tmp_path / "store"
    with opened(path) as engine:
        for number in range(100):
            key = b"long/" + b"x" * 3_000 + b"%03d" % number if number % 2 else b"short/%03d" % number
            engine.run(lambda tr, key=key: tr.set(key, os.urandom(20_000)))  # type: ignore[misc]
        engine.run(lambda tr: tr.clear_range(b"short/020", b"short0"))
        engine.run(lambda tr: tr.clear_range(b"long/" + b"x" * 3_000 + b"020", b"long0"))
    return path


def test_compaction_shrinks_the_file_and_keeps_every_key(half_empty: Path) -> None:
    kept = everything(half_empty)
    data = half_empty / "kv" / "data.mdb"
    size = data.stat().st_size
    before, after = compact(half_empty)
    assert before == size
    assert after == data.stat().st_size < size / 2
    assert verify(half_empty) == []
    assert everything(half_empty) == kept
    assert not (half_empty / "compacting").exists()


@pytest.mark.parametrize("value_bytes", [100, 300, 900, 1_500, 3_000])
def test_new_neighbours_fill_their_pages_though_other_keys_follow(tmp_path: Path, value_bytes: int) -> None:
    added, size_bytes = 0, 0
    with opened(tmp_path) as engine:
        engine.run(lambda tr: [tr.set(b"%d/" % space, b"x" * 50) for space in range(6)])
        empty = engine.space()["live_bytes"]
        for start in range(0, 1_000, 100):
            keys = [b"%d/%05d" % (space, start + number) for number in range(100) for space in range(5)]
            engine.run(lambda tr, keys=keys: [tr.set(key, os.urandom(value_bytes)) for key in keys])  # type: ignore[misc]
            added, size_bytes = added + len(keys), size_bytes + sum(len(key) + value_bytes for key in keys)
        assert engine.space()["live_bytes"] - empty < size_bytes * FILLED[value_bytes]
    assert len(everything(tmp_path)) == added + 6
    assert verify(tmp_path) == []


def test_compaction_fills_the_pages_that_splits_left_half_empty(tmp_path: Path) -> None:
    with opened(tmp_path) as engine:
        numbers = random.Random(1).sample(range(2_000), 2_000)
        for start in range(0, 2_000, 100):
            keys = [b"%d/%05d" % (space, number) for number in numbers[start : start + 100] for space in range(9)]
            engine.run(lambda tr, keys=keys: [tr.set(key, os.urandom(100)) for key in keys])  # type: ignore[misc]
        live = engine.space()["live_bytes"]
    kept = everything(tmp_path)
    _, after = compact(tmp_path)
    assert after < live * 0.8
    assert everything(tmp_path) == kept


def test_versions_continue_after_compaction(half_empty: Path) -> None:
    with opened(half_empty) as engine:
        version = engine.commit(lambda tr: tr.set(b"a", b"")).version
    compact(half_empty)
    with opened(half_empty) as engine:
        assert engine.commit(lambda tr: tr.set(b"a", b"")).version > version


@pytest.mark.parametrize("leftovers", [{}, {"data.mdb": b"half a file"}, {"data.mdb": b"", "lock.mdb": b"x"}])
def test_a_killed_compaction_does_no_harm_and_the_next_one_cleans_up(
    half_empty: Path, leftovers: dict[str, bytes]
) -> None:
    kept = everything(half_empty)
    (half_empty / "compacting").mkdir()
    for name, content in leftovers.items():
        (half_empty / "compacting" / name).write_bytes(content)
    assert everything(half_empty) == kept
    compact(half_empty)
    assert everything(half_empty) == kept
    assert not (half_empty / "compacting").exists()


def test_the_space_report_adds_up(half_empty: Path) -> None:
    with opened(half_empty) as engine:
        space = engine.space()
        assert space["file_bytes"] == (half_empty / "kv" / "data.mdb").stat().st_size
        assert space["free_bytes"] + space["live_bytes"] == space["file_bytes"]
        assert space["free_bytes"] > space["file_bytes"] / 2
        assert space.items() <= engine.describe().items()
