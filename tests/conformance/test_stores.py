"""A store: a directory with named ones below it, the same on both engines."""

import uuid
from collections.abc import Iterator

import pytest

from drillcore_fdb import directory
from drillcore_fdb.directory_sizes import directory_sizes
from drillcore_fdb.engine import Engine
from drillcore_fdb.errors import StoreCorruptError
from drillcore_fdb.format import open_store
from drillcore_fdb.round_trips import counted
from tests.conformance.staging import fill

NAMES = [*(f"level {number}" for number in range(40)), *(f"indexes/{number}" for number in range(50))]


@pytest.fixture
def root(engine: Engine) -> Iterator[str]:
    name = f"conformance-{uuid.uuid4().hex}"
    yield name
    engine.remove_directory(name)


def test_a_store_has_its_directories_by_name_with_short_prefixes(engine: Engine, root: str) -> None:
    directories, header = open_store(engine, NAMES, (root,))
    assert [engine.directory(root, *name.split("/")) for name in NAMES] == [directories[name] for name in NAMES]
    assert engine.list_directories(root) == sorted({name.split("/")[0] for name in NAMES})
    assert max(len(place.prefix) for place in directories.values()) <= 4
    assert open_store(engine, NAMES, (root,)) == (directories, header)


def test_opening_a_store_takes_a_few_round_trips_however_many_directories_it_has(engine: Engine, root: str) -> None:
    open_store(engine, NAMES, (root,))
    with counted() as trips:
        open_store(engine, NAMES, (root,))
    assert trips.count <= 8
    assert trips.transactions == 1


def test_the_tree_of_a_directory_has_every_prefix_below_it(engine: Engine, root: str) -> None:
    paths = [(), ("a",), ("a", "x"), ("a", "x", "deep"), ("b",), ("b", "x")]
    made = engine.directories([(root, *path) for path in paths])
    assert engine.run(lambda tr: directory.tree(tr, (root,))) == {
        path: place.prefix for path, place in zip(paths, made, strict=True)
    }
    below = engine.run(lambda tr: directory.tree(tr, (root, "a")))
    assert below == {path[1:]: place.prefix for path, place in zip(paths, made, strict=True) if path[:1] == ("a",)}
    assert engine.run(lambda tr: directory.tree(tr, (root, "missing"))) == {}


def test_several_directories_are_opened_or_made_in_their_order(engine: Engine, root: str) -> None:
    made = engine.directory(root, "3")
    several = engine.directories([(root, str(number)) for number in range(40)])
    assert several[3] == made
    assert several == [engine.directory(root, str(number)) for number in range(40)]
    assert engine.directories([]) == []


def test_two_stores_do_not_touch_and_each_is_removed_in_one_step(engine: Engine, root: str) -> None:
    first, second = (open_store(engine, NAMES, (root, name)) for name in ("first", "second"))
    assert first[1].store_id != second[1].store_id
    fill(
        engine, {place.pack((1,)): b"value" for directories in (first[0], second[0]) for place in directories.values()}
    )
    assert engine.remove_directory(root, "first")
    assert directory_sizes(engine, (root, "first")) == []
    store, *below = directory_sizes(engine, (root, "second"))
    assert {"/".join(size.path): size.keys for size in below} == {**dict.fromkeys(NAMES, 1), "indexes": 50}
    assert store.keys == len(NAMES) + 1


def test_a_store_without_one_of_its_directories_is_refused(engine: Engine, root: str) -> None:
    open_store(engine, NAMES, (root,))
    engine.remove_directory(root, "level 7")
    with pytest.raises(StoreCorruptError, match=f"the directory {root}/level 7 is gone"):
        open_store(engine, NAMES, (root,))
    assert "level 7" not in engine.list_directories(root)
    engine.directory(root, "level 7")
    with pytest.raises(StoreCorruptError, match=f"the directory {root}/level 7 is not the one that the store was made"):
        open_store(engine, NAMES, (root,))
