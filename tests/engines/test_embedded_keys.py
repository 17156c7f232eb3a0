"""Keys of any length up to 10 kB keep their bytes and their order, checked against a sorted dictionary."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sortedcontainers import SortedDict

from drillcore_fdb.embedded.ordered import PIECE_BYTES, OrderedStore
from drillcore_fdb.embedded.values import CUT_BELOW_BYTES, CUT_FROM_BYTES, MARK
from drillcore_fdb.engine import KEY_BYTES_MAX, KEYS_END, Streaming
from drillcore_fdb.errors import StoreCorruptError
from tests.support.stores.stores import opened

EDGES = sorted(
    {0, 1, 2, 3, KEY_BYTES_MAX}
    | {PIECE_BYTES * pieces + around for pieces in range(1, 6) for around in range(-3, 4)}
    # Below the first piece, a marker holds an id of eight bytes, so each later piece takes 1892 bytes of the key.
    | {PIECE_BYTES + (PIECE_BYTES - 8) * pieces + around for pieces in range(1, 5) for around in range(-2, 3)}
)
LENGTHS = st.sampled_from([length for length in EDGES if length <= KEY_BYTES_MAX]) | st.integers(0, KEY_BYTES_MAX)
ENDINGS = st.sampled_from([b"", b"\0", b"\0\0", b"\1", b"p", b"q", b"\xfe", b"\xff", b"\xff\xff"])


@st.composite
def some_keys(draw: st.DrawFn) -> bytes:
    """Long runs of few different bytes, so that keys share prefixes of every length."""
    beginning = draw(st.sampled_from([b"", b"\0", b"\0\0", b"\1", b"p", b"pp", b"\xfe"]))
    filler = draw(st.sampled_from([b"\0", b"p", b"\xfe"]))
    ending = draw(ENDINGS)
    length = draw(LENGTHS)
    key = (beginning + filler * length)[: max(length - len(ending), 0)] + ending
    return key if key < KEYS_END else b"\xfe" + key[1:]


VALUE_LENGTHS = [0, 1, CUT_FROM_BYTES - 1, CUT_FROM_BYTES, 976, 977, 5_000, CUT_BELOW_BYTES - 1, CUT_BELOW_BYTES]
VALUES = st.binary(max_size=8) | st.builds(
    lambda beginning, length: (beginning + bytes(range(256)) * (length // 256 + 1))[:length],
    st.sampled_from([b"", MARK, MARK + b"\1", MARK + b"\2", MARK * 3]),
    st.sampled_from(VALUE_LENGTHS),
)
"""Values of every kind. The engine cuts some of them into pieces and keeps a pointer to these. Others only look like a
pointer."""

STEPS = st.lists(
    st.tuples(st.just("set"), some_keys(), VALUES)
    | st.tuples(st.just("set_many"), st.dictionaries(some_keys(), VALUES, max_size=20))
    | st.tuples(st.just("delete"), some_keys())
    | st.tuples(st.just("delete_one_of"), st.integers(0, 1_000))
    | st.tuples(st.just("delete_range"), some_keys(), some_keys()),
    max_size=40,
)
BOUNDS = st.lists(st.tuples(some_keys(), some_keys(), st.integers(1, 50)), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lmdb.Environment]:
    opened_environment = lmdb.open(
        str(tmp_path_factory.mktemp("keys")), map_size=1 << 28, max_dbs=8, sync=False, lib_version=1
    )
    yield opened_environment
    opened_environment.close()


@pytest.fixture(scope="module")
def store(environment: lmdb.Environment) -> OrderedStore:
    return OrderedStore(environment)


def apply(step: tuple, store: OrderedStore, txn: lmdb.Transaction, model: SortedDict) -> None:
    match step:
        case "set", key, value:
            store.put(txn, key, value)
            model[key] = value
        case "set_many", entries:
            store.put_many(txn, entries)
            model.update(entries)
        case "delete", key:
            store.delete(txn, key)
            model.pop(key, None)
        case "delete_one_of", number:
            if model:
                key, _ = model.popitem(number % len(model))
                store.delete(txn, key)
        case "delete_range", first, second:
            begin, end = min(first, second), max(first, second)
            store.delete_range(txn, begin, end)
            for key in list(model.irange(begin, end, (True, False))):
                del model[key]


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(steps=STEPS, bounds=BOUNDS)
def test_keys_of_any_length_behave_as_in_a_sorted_dictionary(
    environment: lmdb.Environment,
    store: OrderedStore,
    steps: list[tuple],
    bounds: list[tuple[bytes, bytes, int]],
) -> None:
    model = SortedDict()
    with environment.begin(write=True) as txn:
        for step in steps:
            apply(step, store, txn, model)
        everything = list(model.items())
        assert list(store.iterate(txn, b"", KEYS_END, False)) == everything
        assert list(store.iterate(txn, b"", KEYS_END, True)) == everything[::-1]
        for first, second, limit in bounds:
            begin, end = min(first, second), max(first, second)
            wanted = [(key, model[key]) for key in model.irange(begin, end, (True, False))]
            assert list(store.iterate(txn, begin, end, False)) == wanted
            assert store.batch(txn, begin, end, limit, False) == wanted[:limit]
            assert store.batch(txn, begin, end, limit, True) == wanted[::-1][:limit]
            assert store.get(txn, first) == model.get(first)
        for key, value in everything:
            assert store.get(txn, key) == value
        store.delete_range(txn, b"", KEYS_END)
        left = [txn.stat(database)["entries"] for database in store.databases()[1:]]
        assert left == [0, 0, 0], "a marker of a long key or a piece of a value was left after its key"
        txn.abort()


def test_many_new_neighbours_are_put_among_others_of_any_size(
    environment: lmdb.Environment, store: OrderedStore
) -> None:
    model = SortedDict({b"%05d" % number: b"x" * (number * 37 % 20_000) for number in range(0, 4_000, 10)})
    with environment.begin(write=True) as txn:
        for key, value in model.items():
            store.put(txn, key, value)
        for start in range(0, 4_000, 200):
            entries = {b"%05d" % number: b"y" * (number % 900) for number in range(start + 60, start - 1, -3)}
            store.put_many(txn, entries)
            model.update(entries)
        assert list(store.iterate(txn, b"", KEYS_END, False)) == list(model.items())
        txn.abort()


def test_a_value_whose_piece_is_missing_is_damage(environment: lmdb.Environment, store: OrderedStore) -> None:
    with environment.begin(write=True) as txn:
        store.put(txn, b"a", bytes(2_000))
        with txn.cursor(store.databases()[3]) as pieces:
            assert pieces.last()
            assert pieces.delete()
        with pytest.raises(StoreCorruptError, match="not what was stored there"):
            store.get(txn, b"a")
        txn.abort()


def test_a_key_of_every_length_is_kept_and_in_order(tmp_path_factory: pytest.TempPathFactory) -> None:
    keys = [b"p" * length for length in [*range(0, KEY_BYTES_MAX + 1, 97), KEY_BYTES_MAX]]
    path = tmp_path_factory.mktemp("store")
    with opened(path) as engine:
        engine.run(lambda tr: [tr.set(key, b"%d" % len(key)) for key in keys])
    with opened(path) as engine:
        found = engine.run(lambda tr: list(tr.range(b"", KEYS_END)))
        assert [(len(key), int(value)) for key, value in found] == [(len(key), len(key)) for key in keys]
        assert engine.run(lambda tr: tr.get_many(keys)) == [b"%d" % len(key) for key in keys]
        assert [key for key, _ in engine.run(lambda tr: list(tr.range(b"", KEYS_END, reverse=True)))] == keys[::-1]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_of_a_small_range_does_not_read_what_is_beside_it(tmp_path: Path, reverse: bool) -> None:
    """Not even when it asks for everything at once: what is beside the range may be large."""
    with opened(tmp_path) as engine:
        for side in (b"a", b"c"):
            for start in range(0, 400, 50):
                keys = [side + number.to_bytes(2, "big") for number in range(start, start + 50)]
                engine.run(lambda tr, keys=keys: [tr.set(key, bytes(90_000)) for key in keys])  # type: ignore[misc]
        engine.run(lambda tr: tr.set(b"b", b"small"))
        tracemalloc.start()
        try:
            found = engine.run(lambda tr: list(tr.range(b"b", b"c", reverse=reverse, streaming=Streaming.WANT_ALL)))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert found == [(b"b", b"small")]
    assert peak < 8_000_000
