"""Directories: a path of names has a short prefix of its own, which never changes."""

import itertools
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from drillcore_fdb.engine import Engine
from tests.conformance.staging import fill, value_at


@pytest.fixture
def root(engine: Engine) -> Iterator[str]:
    name = f"conformance-{uuid.uuid4().hex}"
    yield name
    engine.remove_directory(name)


def test_a_path_has_the_same_prefix_again(engine: Engine, root: str) -> None:
    first = engine.directory(root, "corpora")
    assert engine.directory(root, "corpora") == first
    assert first.prefix


def test_no_paths_prefix_begins_with_another_paths_prefix(engine: Engine, root: str) -> None:
    paths = [(root,), (root, "a"), (root, "b"), (root, "a", "b"), (root, "b", "a"), (root, "ab"), (root, "a", "b", "c")]
    prefixes = sorted(engine.directory(*path).prefix for path in paths)
    assert len(set(prefixes)) == len(paths)
    for prefix, next_one in itertools.pairwise(prefixes):
        assert not next_one.startswith(prefix)


def test_a_prefix_is_short_however_long_the_path(engine: Engine, root: str) -> None:
    assert len(engine.directory(root, "name" * 20, "name" * 20, "name" * 20).prefix) <= 12


def test_names_may_be_any_text(engine: Engine, root: str) -> None:
    names = ["ünïcode ✓", "with/slash", "with\0zero", " ", "UPPER", "upper"]
    prefixes = {engine.directory(root, name).prefix for name in names}
    assert len(prefixes) == len(names)
    assert engine.list_directories(root) == sorted(names)


def test_listing_gives_the_names_below_a_path_and_no_deeper(engine: Engine, root: str) -> None:
    for path in (("b",), ("a", "x"), ("a", "y"), ("c", "x", "deep")):
        engine.directory(root, *path)
    assert engine.list_directories(root) == ["a", "b", "c"]
    assert engine.list_directories(root, "a") == ["x", "y"]
    assert engine.list_directories(root, "a", "x") == []
    assert root in engine.list_directories()


def test_listing_a_missing_path_raises_key_error(engine: Engine, root: str) -> None:
    with pytest.raises(KeyError):
        engine.list_directories(root)
    engine.directory(root)
    with pytest.raises(KeyError):
        engine.list_directories(root, "missing")


def test_removing_a_directory_clears_its_keys_and_those_below_it(engine: Engine, root: str) -> None:
    gone, below, kept = (engine.directory(root, *path) for path in (("a",), ("a", "b"), ("c",)))
    keys = [space.pack((1,)) for space in (gone, below, kept)]
    fill(engine, dict.fromkeys(keys, b"1"))
    assert engine.remove_directory(root, "a") is True
    assert [value_at(engine, key) for key in keys] == [None, None, b"1"]
    assert engine.list_directories(root) == ["c"]
    with pytest.raises(KeyError):
        engine.list_directories(root, "a")


def test_removing_a_directory_removes_its_prefix_itself(engine: Engine, root: str) -> None:
    prefix = engine.directory(root).prefix
    fill(engine, {prefix: b"1", prefix + b"\xff\xff": b"1"})
    engine.remove_directory(root)
    assert value_at(engine, prefix) is None
    assert value_at(engine, prefix + b"\xff\xff") is None


def test_removing_a_missing_path_returns_false(engine: Engine, root: str) -> None:
    assert engine.remove_directory(root) is False
    engine.directory(root)
    assert engine.remove_directory(root, "missing") is False
    assert engine.remove_directory(root) is True
    assert engine.remove_directory(root) is False


def test_a_directory_made_again_is_empty(engine: Engine, root: str) -> None:
    fill(engine, {engine.directory(root, "a").pack((1,)): b"1"})
    engine.remove_directory(root, "a")
    again = engine.directory(root, "a")
    assert engine.run(lambda tr: list(tr.range(*again.range()))) == []


def test_threads_that_make_the_same_path_at_once_get_the_same_prefix(engine: Engine, root: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        prefixes = list(pool.map(lambda _: engine.directory(root, "same").prefix, range(16)))
    assert len(set(prefixes)) == 1


def test_threads_that_make_different_paths_at_once_get_different_prefixes(engine: Engine, root: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        prefixes = list(pool.map(lambda number: engine.directory(root, str(number)).prefix, range(24)))
    assert len(set(prefixes)) == 24
