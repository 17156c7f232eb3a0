"""A store is a directory with one below it for each space, and what its header lists is what must be there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drillcore_fdb import codec, directory
from drillcore_fdb import format as store_format
from drillcore_fdb.directory_sizes import DirectorySize, directory_sizes
from drillcore_fdb.embedded import EmbeddedEngine
from drillcore_fdb.errors import StoreCorruptError
from drillcore_fdb.format import STORE_PATH
from drillcore_fdb.round_trips import counted
from drillcore_fdb.tuples import Subspace
from drillcore_server.storage.spaces import Space
from drillcore_server.storage.store import open_store
from tests.support.paths import GOLDEN_FILES
from tests.support.stores.stores import opened

GOLDEN = GOLDEN_FILES / "directories.txt"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with opened(tmp_path) as opened_engine:
        yield opened_engine


def everything(engine: EmbeddedEngine) -> dict[bytes, bytes]:
    return engine.run(lambda tr: dict(tr.range(b"", b"\xff")))


def put(engine: EmbeddedEngine, place: Subspace, count: int = 1) -> None:
    engine.run(lambda tr: [tr.set(place.pack((number,)), b"value") for number in range(count)])


def refuses(engine: EmbeddedEngine, reason: str) -> None:
    """The store cannot be opened for this reason, and trying changes nothing."""
    before = everything(engine)
    with pytest.raises(StoreCorruptError, match=reason):
        open_store(engine)
    assert everything(engine) == before


def test_the_directories_are_those_of_the_golden_file(engine: EmbeddedEngine) -> None:
    """To rename a directory is a new format, since a store has the names that it was made with."""
    open_store(engine)
    tree = engine.run(lambda tr: directory.tree(tr, STORE_PATH))
    assert ["/".join((*STORE_PATH, *path)) for path in sorted(tree)] == [
        line for line in GOLDEN.read_text("utf-8").splitlines() if not line.startswith("#")
    ]


def test_every_space_has_a_directory_with_a_short_prefix_of_its_own(engine: EmbeddedEngine) -> None:
    directories, header = open_store(engine)
    assert directories.keys() == set(Space) == header.directories.keys()
    assert all(engine.directory(*STORE_PATH, *name.split("/")) == place for name, place in directories.items())
    assert len(set(directories.values())) == len(Space)
    assert max(len(place.prefix) for place in directories.values()) == 2


def test_opening_a_store_takes_a_few_round_trips_and_writes_nothing(engine: EmbeddedEngine) -> None:
    open_store(engine)
    version = engine.space()["version"]
    with counted() as trips:
        open_store(engine)
    assert trips.count <= 8
    assert engine.space()["version"] == version


def test_two_stores_on_one_engine_do_not_touch(engine: EmbeddedEngine) -> None:
    first, second = open_store(engine, ("first",)), open_store(engine, ("second",))
    assert first[1].store_id != second[1].store_id
    assert not set(first[0].values()) & set(second[0].values())
    for place in first[0].values():
        put(engine, place)
    assert sum(size.keys for size in directory_sizes(engine, ("second",))[1:]) == 0
    assert engine.remove_directory("first"), "a whole store is removed in one step"
    assert open_store(engine, ("second",)) == second
    with pytest.raises(KeyError):
        engine.list_directories("first")
    assert not any(key.startswith(place.prefix) for key in everything(engine) for place in first[0].values())


def remove(engine: EmbeddedEngine) -> None:
    engine.remove_directory(*STORE_PATH, "indexes", "members")


def make_again(engine: EmbeddedEngine) -> None:
    remove(engine)
    engine.directory(*STORE_PATH, "indexes", "members")


def remove_with_others(engine: EmbeddedEngine) -> None:
    engine.remove_directory(*STORE_PATH, "indexes")


def swap(engine: EmbeddedEngine) -> None:
    """Gives a directory the name of another, as a move does that goes wrong."""

    def work(tr: directory.Transaction) -> None:
        tree = directory.tree(tr, STORE_PATH)
        names = directory._NODES[tree[("indexes",)]][0]
        tr.set(names.pack(("members",)), tree[("indexes", "parents")])
        tr.set(names.pack(("parents",)), tree[("indexes", "members")])

    engine.run(work)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (remove, "the directory drillcore/indexes/members is gone: it was removed or renamed. "),
        (make_again, "the directory drillcore/indexes/members is not the one that the store was made with. "),
        (remove_with_others, r"the directory drillcore/indexes/\S+ \(and \d+ more\) is gone"),
        (swap, r"the directory drillcore/indexes/members \(and 1 more\) is not the one"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_store_without_one_of_its_directories_is_refused(
    engine: EmbeddedEngine, damage: Callable[[EmbeddedEngine], None], reason: str
) -> None:
    open_store(engine)
    damage(engine)
    refuses(engine, reason)


def test_a_store_that_lost_its_header_is_refused_if_it_holds_anything(engine: EmbeddedEngine) -> None:
    directories, header = open_store(engine)
    root = engine.directory(*STORE_PATH)
    engine.run(lambda tr: codec.clear(tr, root.pack((0,))))
    put(engine, directories[Space.CHUNKS])
    refuses(engine, "the directory drillcore/chunks holds keys, but the store's header is gone")
    engine.run(lambda tr: tr.clear_range(*directories[Space.CHUNKS].range()))
    again, made = open_store(engine)
    assert (again, made.store_id == header.store_id) == (directories, False), "an interrupted first start is completed"


def test_a_release_with_more_directories_adds_them(engine: EmbeddedEngine) -> None:
    less, more = ["master", "indexes/members"], ["indexes/new", "master", "indexes/members"]
    before, header = store_format.open_store(engine, less)
    put(engine, before["master"])
    after, extended = store_format.open_store(engine, more)
    assert extended.store_id == header.store_id
    assert {name: after[name] for name in less} == before
    assert store_format.open_store(engine, more) == (after, extended)
    assert store_format.open_store(engine, less)[0] == before, "the release before still opens the store"
    engine.remove_directory(*STORE_PATH, "indexes", "new")
    with pytest.raises(StoreCorruptError, match="drillcore/indexes/new is gone"):
        store_format.open_store(engine, more)


def test_a_new_directory_does_not_take_over_keys(engine: EmbeddedEngine) -> None:
    store_format.open_store(engine, ["master"])
    put(engine, engine.directory(*STORE_PATH, "raw"))
    before = everything(engine)
    with pytest.raises(StoreCorruptError, match="the directory drillcore/raw holds keys, but"):
        store_format.open_store(engine, ["master", "raw"])
    assert everything(engine) == before


def test_sizes_count_the_keys_and_bytes_of_each_directory(
    engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories, _ = open_store(engine)
    monkeypatch.setattr("drillcore_fdb.directory_sizes._PAGE_KEYS", 7)
    put(engine, directories[Space.MEMBERS], 50)
    put(engine, directories[Space.PARENTS], 21)
    version = engine.space()["version"]
    sizes = {size.path: size for size in directory_sizes(engine, STORE_PATH)}
    assert engine.space()["version"] == version
    stored = {key: value for key, value in everything(engine).items() if key < b"\xfe"}
    for name, place in directories.items():
        held = {key: value for key, value in stored.items() if key.startswith(place.prefix)}
        size = sum(len(key) + len(value) for key, value in held.items())
        assert sizes[tuple(name.split("/"))] == DirectorySize(tuple(name.split("/")), place.prefix, len(held), size)
    assert sizes[("indexes",)].keys == 71
    assert sizes[()].keys == len(stored) == 72
    assert sizes[()].size_bytes == sum(len(key) + len(value) for key, value in stored.items())


def test_there_are_no_sizes_without_a_store_and_none_is_made(engine: EmbeddedEngine) -> None:
    assert directory_sizes(engine, STORE_PATH) == []
    assert everything(engine) == {}
