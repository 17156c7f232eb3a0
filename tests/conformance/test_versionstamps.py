"""Versionstamps: ten bytes that a commit writes into keys and values, in the order of commits."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from drillcore_fdb.engine import VERSIONSTAMP_BYTES, Committed, Engine, KeySelector, Reader, Transaction
from drillcore_fdb.errors import InvalidUseError
from drillcore_fdb.tuples import Versionstamp
from tests.conformance.staging import Space, contents, value_at, versionstamp_template


def test_a_versionstamped_key_holds_the_commits_versionstamp(engine: Engine, space: Space) -> None:
    template = versionstamp_template(space.key(b"before/"), b"/after")
    committed = engine.commit(lambda tr: tr.set_versionstamped_key(template, b"value"))
    assert committed.versionstamp is not None
    assert len(committed.versionstamp) == VERSIONSTAMP_BYTES
    assert contents(engine, space) == [(space.key(b"before/" + committed.versionstamp + b"/after"), b"value")]


def test_a_versionstamped_value_holds_the_commits_versionstamp(engine: Engine, space: Space) -> None:
    template = versionstamp_template(b"before/", b"/after")
    committed = engine.commit(lambda tr: tr.set_versionstamped_value(space.key(b"a"), template))
    assert committed.versionstamp is not None
    assert value_at(engine, space.key(b"a")) == b"before/" + committed.versionstamp + b"/after"


def test_a_versionstamp_begins_with_the_committed_version(engine: Engine, space: Space) -> None:
    committed = engine.commit(lambda tr: tr.set(space.key(b"a"), b""))
    assert committed.versionstamp is not None
    assert int.from_bytes(committed.versionstamp[:8], "big") == committed.version


def test_a_versionstamp_in_a_tuple_is_unpacked_with_its_user_version(engine: Engine, space: Space) -> None:
    template = space.pack_with_versionstamp(("log", Versionstamp(user_version=7), "x"))
    committed = engine.commit(lambda tr: tr.set_versionstamped_key(template, b""))
    [(key, _)] = contents(engine, space)
    name, stamp, rest = space.unpack(key)
    assert (name, stamp.tr_version, stamp.user_version, rest) == ("log", committed.versionstamp, 7, "x")


def test_user_versions_order_the_keys_of_one_transaction(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> None:
        for user_version in (2, 0, 300, 1):
            template = space.pack_with_versionstamp((Versionstamp(user_version=user_version),))
            tr.set_versionstamped_key(template, str(user_version).encode())

    committed = engine.commit(work)
    stamps = [space.unpack(key)[0] for key, _ in contents(engine, space)]
    assert [stamp.user_version for stamp in stamps] == [0, 1, 2, 300]
    assert {stamp.tr_version for stamp in stamps} == {committed.versionstamp}


def test_commits_one_after_another_have_rising_versions_and_versionstamps(engine: Engine, space: Space) -> None:
    commits = [engine.commit(lambda tr: tr.set(space.key(b"a"), b"")) for _ in range(20)]
    for earlier, next_one in itertools.pairwise(commits):
        assert earlier.version < next_one.version
        assert (earlier.versionstamp or b"") < (next_one.versionstamp or b"")


def test_the_order_of_versionstamps_is_the_order_of_commits_across_threads(engine: Engine, space: Space) -> None:
    last = space.key(b"last")

    def append(name: bytes) -> Committed[bytes | None]:
        def work(tr: Transaction) -> bytes | None:
            tr.set_versionstamped_key(versionstamp_template(space.key(b"log/")), name)
            before = tr.get(last)
            tr.set(last, name)
            return before

        return engine.commit(work)

    names = [f"{number:03}".encode() for number in range(60)]
    with ThreadPoolExecutor(6) as pool:
        commits = dict(zip(names, pool.map(append, names), strict=True))
    logged = [value for _, value in engine.run(lambda tr: list(tr.range(space.key(b"log/"), space.key(b"log0"))))]
    assert logged == sorted(names, key=lambda name: commits[name].versionstamp or b"")
    assert [commits[name].value for name in logged] == [None, *logged[:-1]]


def test_versionstamps_of_blind_writes_are_unique_across_threads(engine: Engine, space: Space) -> None:
    def append(number: int) -> bytes | None:
        template = versionstamp_template(space.prefix)
        return engine.commit(lambda tr: tr.set_versionstamped_key(template, str(number).encode())).versionstamp

    with ThreadPoolExecutor(8) as pool:
        stamps = list(pool.map(append, range(80)))
    assert len(set(stamps)) == 80
    assert dict(contents(engine, space)) == {
        space.key(stamp or b""): str(number).encode() for number, stamp in enumerate(stamps)
    }


@pytest.mark.parametrize("view", ["serializable", "snapshot"])
@pytest.mark.parametrize("reading", ["get", "get_many", "range", "reverse range", "range_many", "get_key"])
def test_a_versionstamped_value_cannot_be_read_in_its_transaction(
    engine: Engine, space: Space, view: str, reading: str
) -> None:
    def work(tr: Transaction) -> None:
        tr.set_versionstamped_value(space.key(b"a"), versionstamp_template(b""))
        reader: Reader = tr if view == "serializable" else tr.snapshot
        read_somehow(reader, space, reading)

    with pytest.raises(InvalidUseError) as raised:
        engine.run(work)
    assert raised.value.code == 1036
    assert contents(engine, space) == []


def read_somehow(reader: Reader, space: Space, reading: str) -> None:
    match reading:
        case "get":
            reader.get(space.key(b"a"))
        case "get_many":
            reader.get_many([space.key(b"b"), space.key(b"a")])
        case "range_many":
            reader.range_many([(space.key(b"b"), space.key(b"c")), space.whole])
        case "get_key":
            reader.get_key(KeySelector.first_greater_or_equal(space.prefix))
        case _:
            list(reader.range(*space.whole, reverse=reading == "reverse range"))


@pytest.mark.parametrize("reverse", [False, True])
def test_a_range_with_a_versionstamped_key_cannot_be_read_in_its_transaction(
    engine: Engine, space: Space, reverse: bool
) -> None:
    def work(tr: Transaction) -> None:
        tr.set_versionstamped_key(versionstamp_template(space.key(b"log/")), b"")
        list(tr.range(*space.whole, reverse=reverse))

    with pytest.raises(InvalidUseError) as raised:
        engine.run(work)
    assert raised.value.code == 1036


def test_the_neighbours_of_a_versionstamped_key_can_be_read(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> tuple[bytes | None, list[tuple[bytes, bytes]]]:
        tr.set(space.key(b"a"), b"1")
        tr.set_versionstamped_key(versionstamp_template(space.key(b"log/")), b"")
        tr.set_versionstamped_value(space.key(b"m"), versionstamp_template(b""))
        return tr.get(space.key(b"a")), list(tr.range(space.key(b"n"), space.key(b"z")))

    assert engine.run(work) == (b"1", [])


@pytest.mark.parametrize(
    "template",
    [b"", b"\0\0\0", b"\0" * 9 + b"\0\0\0\0", b"\0" * 10 + b"\x01\0\0\0", b"\0" * 10 + b"\xff\xff\xff\xff"],
    ids=["empty", "no position", "too short", "past the end", "negative"],
)
def test_a_template_without_room_for_the_versionstamp_is_refused(engine: Engine, space: Space, template: bytes) -> None:
    with pytest.raises(InvalidUseError) as raised:
        engine.run(lambda tr: tr.set_versionstamped_value(space.key(b"a"), template))
    assert raised.value.code == 2000
    with pytest.raises(InvalidUseError) as raised:
        engine.run(lambda tr: tr.set_versionstamped_key(template, b""))
    assert raised.value.code == 2000


def test_a_set_after_a_versionstamped_value_wins(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> None:
        tr.set_versionstamped_value(space.key(b"a"), versionstamp_template(b""))
        tr.set(space.key(b"a"), b"plain")

    engine.run(work)
    assert value_at(engine, space.key(b"a")) == b"plain"


def test_a_clear_after_a_versionstamped_value_wins(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> None:
        tr.set_versionstamped_value(space.key(b"a"), versionstamp_template(b""))
        tr.clear(space.key(b"a"))

    engine.run(work)
    assert value_at(engine, space.key(b"a")) is None
