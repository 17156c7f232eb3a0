"""Directories are stored as FoundationDB's directory layer stores them, and no prefix is ever given twice."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from drillcore_fdb.embedded import EmbeddedEngine
from drillcore_fdb.errors import EngineError
from drillcore_fdb.tuples import unpack
from tests.support.paths import GOLDEN_FILES
from tests.support.stores.stores import opened

GOLDEN = GOLDEN_FILES / "keys_directory.txt"
VERSION_KEY = bytes.fromhex("fe01fe00 0176657273696f6e00")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with opened(tmp_path) as opened_engine:
        yield opened_engine


def golden() -> list[tuple[bytes, bytes]]:
    lines = [line for line in GOLDEN.read_text("utf-8").splitlines() if not line.startswith("#")]
    return [(bytes.fromhex(key), bytes.fromhex(value)) for key, _, value in (line.partition("=") for line in lines)]


def nodes(engine: EmbeddedEngine) -> list[tuple[bytes, bytes]]:
    return engine.run(lambda tr: list(tr.range(b"\xfe", b"\xff")))


def test_the_stored_keys_are_those_of_foundationdb(engine: EmbeddedEngine) -> None:
    engine.directory("drillcore")
    engine.directory("a", "b")
    assert nodes(engine) == golden()


def test_opening_again_writes_nothing(engine: EmbeddedEngine) -> None:
    engine.directory("a", "b")
    version = engine.space()["version"]
    engine.directory("a", "b")
    assert engine.space()["version"] == version


def test_a_removed_directory_leaves_only_the_allocators_records(engine: EmbeddedEngine) -> None:
    engine.directory("drillcore")
    before = nodes(engine)
    below = engine.directory("a", "b")
    engine.run(lambda tr: [tr.set(below.pack((number,)), b"") for number in range(5)])
    assert engine.remove_directory("a")
    allocator = bytes.fromhex("fe01fe00 0168636100")
    assert [entry for entry in nodes(engine) if not entry[0].startswith(allocator)] == [
        entry for entry in before if not entry[0].startswith(allocator)
    ]
    assert engine.run(lambda tr: list(tr.range(b"", b"\xfe"))) == []


def check_distinct(prefixes: list[bytes]) -> None:
    assert len(set(prefixes)) == len(prefixes), "a prefix was given twice"
    for prefix, following in pairwise(sorted(prefixes)):
        assert not following.startswith(prefix), "a prefix begins with another"


def test_no_prefix_is_given_again_even_after_removals(engine: EmbeddedEngine) -> None:
    dice = random.Random(1)
    prefixes: list[bytes] = []
    living: list[str] = []
    for number in range(500):
        living.append(f"directory {number}")
        prefixes.append(engine.directory(living[-1]).prefix)
        if dice.random() < 0.5:
            engine.remove_directory(living.pop(dice.randrange(len(living))))
    check_distinct(prefixes)
    assert engine.list_directories() == sorted(living)
    numbers = [unpack(prefix)[0] for prefix in prefixes]
    assert min(numbers) == 0
    assert max(numbers) > 255, "the larger windows were never reached"
    assert max(map(len, prefixes)) <= 3


def test_directories_made_at_once_have_different_prefixes(engine: EmbeddedEngine) -> None:
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda number: engine.directory(f"directory {number}").prefix, range(80)))
    check_distinct(made)


def test_a_prefix_with_keys_that_no_directory_owns_is_not_given_away(engine: EmbeddedEngine) -> None:
    engine.run(lambda tr: tr.set(b"\x14 somebody wrote here", b""))
    with pytest.raises(EngineError, match="which no directory owns"):
        engine.directory("drillcore")
    assert nodes(engine) == []


def test_no_directory_is_added_to_those_of_a_newer_layer(engine: EmbeddedEngine) -> None:
    engine.directory("drillcore")
    engine.run(lambda tr: tr.set(VERSION_KEY, struct.pack("<III", 1, 1, 0)))
    with pytest.raises(EngineError, match="newer directory layer"):
        engine.directory("another")
    assert engine.directory("drillcore").prefix == b"\x14"


def test_directories_of_a_layer_with_another_layout_are_not_opened(engine: EmbeddedEngine) -> None:
    engine.directory("drillcore")
    engine.run(lambda tr: tr.set(VERSION_KEY, struct.pack("<III", 2, 0, 0)))
    with pytest.raises(EngineError, match="newer directory layer"):
        engine.directory("drillcore")
