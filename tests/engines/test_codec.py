"""Values of any size that a transaction can hold are read whole, or found to be damaged."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_fdb import codec
from drillcore_fdb.codec import PART_BYTES
from drillcore_fdb.embedded import EmbeddedEngine
from drillcore_fdb.engine import VALUE_BYTES_MAX, KeyValue, Transaction
from drillcore_fdb.errors import StoreCorruptError
from drillcore_fdb.tuples import pack
from tests.support.stores.stores import opened

KEY = pack(("record",))
SIZES = [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES, 2 * PART_BYTES + 1, 300 * 1024, 8_000_000]
ROUND = bytes(range(251))


def value_of(size: int) -> bytes:
    """Bytes in which all parts differ."""
    return (ROUND * (size // len(ROUND) + 1))[:size]


def keys_for(size: int) -> int:
    return 1 if size <= PART_BYTES else 1 + math.ceil(size / PART_BYTES)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EmbeddedEngine]:
    with opened(tmp_path) as opened_engine:
        yield opened_engine


def write(engine: EmbeddedEngine, key: bytes, value: bytes) -> None:
    engine.run(lambda tr: codec.write(tr, key, value))


def read(engine: EmbeddedEngine, key: bytes = KEY) -> bytes | None:
    return engine.run(lambda tr: codec.read(tr, key))


def scan(engine: EmbeddedEngine, limit: int = 0) -> list[KeyValue]:
    return engine.run(lambda tr: list(codec.scan(tr, b"", b"\xff", limit=limit)))


def raw(engine: EmbeddedEngine) -> dict[bytes, bytes]:
    return engine.run(lambda tr: dict(tr.range(b"", b"\xff")))


@pytest.mark.parametrize("size", SIZES)
def test_a_value_of_any_size_is_read_unchanged(engine: EmbeddedEngine, size: int) -> None:
    write(engine, KEY, value_of(size))
    assert read(engine) == value_of(size)
    assert scan(engine) == [(KEY, value_of(size))]
    stored = raw(engine)
    assert len(stored) == keys_for(size)
    assert max(map(len, stored.values())) < VALUE_BYTES_MAX


@pytest.mark.parametrize("before", [1, PART_BYTES + 1, 300_000])
@pytest.mark.parametrize("after", [1, PART_BYTES + 1, 300_000])
def test_a_replaced_value_leaves_nothing_of_the_former_value(engine: EmbeddedEngine, before: int, after: int) -> None:
    write(engine, KEY, value_of(before))
    write(engine, KEY, value_of(after))
    assert read(engine) == value_of(after)
    assert len(raw(engine)) == keys_for(after)


@pytest.mark.parametrize("size", [1, 300_000])
def test_a_cleared_value_leaves_nothing(engine: EmbeddedEngine, size: int) -> None:
    write(engine, KEY, value_of(size))
    engine.run(lambda tr: codec.clear(tr, KEY))
    assert raw(engine) == {}
    assert read(engine) is None


def test_neighbouring_keys_are_left_alone(engine: EmbeddedEngine) -> None:
    neighbours = [pack(values, KEY) for values in [(None,), (b"a",), ("a",), (-1,), (0,), (1.5,), (True,)]]
    for key in neighbours:
        write(engine, key, b"neighbour")
    write(engine, KEY, value_of(300_000))
    engine.run(lambda tr: codec.clear(tr, KEY))
    assert scan(engine) == [(key, b"neighbour") for key in sorted(neighbours)]


def test_a_scan_joins_a_split_value_and_counts_it_once(engine: EmbeddedEngine) -> None:
    written = [(pack((number,)), value_of(size)) for number, size in enumerate([10, 300_000, 0, 200_000, 5])]
    for key, value in written:
        write(engine, key, value)
    assert scan(engine) == written
    assert [scan(engine, limit) for limit in range(1, 7)] == [written[:limit] for limit in range(1, 7)]


def test_a_value_is_written_and_read_in_one_transaction(engine: EmbeddedEngine) -> None:
    def work(tr: Transaction) -> bytes | None:
        codec.write(tr, KEY, value_of(300_000))
        codec.write(tr, KEY, value_of(200_000))
        return codec.read(tr, KEY)

    assert engine.run(work) == value_of(200_000)


def damaged(engine: EmbeddedEngine, changes: dict[bytes, bytes | None]) -> None:
    """Changes bytes in the store, then asserts that no way to read them gives an answer."""

    def work(tr: Transaction) -> None:
        for key, value in changes.items():
            tr.clear(key) if value is None else tr.set(key, value)

    engine.run(work)
    with pytest.raises(StoreCorruptError, match="not what was written"):
        read(engine)
    with pytest.raises(StoreCorruptError, match="not what was written"):
        scan(engine)


def flipped(value: bytes, place: int) -> bytes:
    return value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :]


@pytest.mark.parametrize("place", [0, 1, 4, 5, 50, -1])
def test_a_flipped_bit_in_a_small_value_is_found(engine: EmbeddedEngine, place: int) -> None:
    write(engine, KEY, value_of(100))
    head = raw(engine)[KEY]
    damaged(engine, {KEY: flipped(head, place % len(head))})


@pytest.mark.parametrize("bit", range(8))
def test_no_single_bit_takes_the_checksum_away(engine: EmbeddedEngine, bit: int) -> None:
    write(engine, KEY, value_of(100))
    head = raw(engine)[KEY]
    damaged(engine, {KEY: bytes([head[0] ^ (1 << bit)]) + head[1:]})


@pytest.mark.parametrize("value", [b"", b"checks itself", value_of(PART_BYTES)])
def test_a_value_with_its_own_check_takes_one_byte_more(value: bytes) -> None:
    (head,) = codec.frame(value, checksum=False)
    assert len(head) == 1 + len(value)
    assert codec.parts_of(KEY, head) == 0
    assert codec.unframe(KEY, head, []) == value


def test_a_value_with_its_own_check_is_still_split() -> None:
    head, *parts = codec.frame(value_of(200_000), checksum=False)
    assert codec.parts_of(KEY, head) == len(parts) == 3
    assert codec.unframe(KEY, head, parts) == value_of(200_000)


@pytest.mark.parametrize("place", range(17))
def test_a_flipped_bit_in_the_head_of_a_split_value_is_found(engine: EmbeddedEngine, place: int) -> None:
    write(engine, KEY, value_of(200_000))
    damaged(engine, {KEY: flipped(raw(engine)[KEY], place)})


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("change", ["flipped", "missing", "shorter", "empty"])
def test_a_changed_part_is_found(engine: EmbeddedEngine, number: int, change: str) -> None:
    write(engine, KEY, value_of(200_000))
    write(engine, pack(("the next record",)), b"next")
    key = pack((number,), KEY)
    part = raw(engine)[key]
    changes = {"flipped": flipped(part, 7), "missing": None, "shorter": part[:-1], "empty": b""}
    damaged(engine, {key: changes[change]})


@pytest.mark.parametrize("part", [b"", b"\0", value_of(100), value_of(PART_BYTES)])
def test_a_part_too_many_is_found(engine: EmbeddedEngine, part: bytes) -> None:
    write(engine, KEY, value_of(200_000))
    damaged(engine, {pack((4,), KEY): part})


def test_swapped_parts_are_found(engine: EmbeddedEngine) -> None:
    write(engine, KEY, value_of(200_000))
    first, two = pack((1,), KEY), pack((2,), KEY)
    stored = raw(engine)
    damaged(engine, {first: stored[two], two: stored[first]})


@pytest.mark.parametrize("head", [b"", b"\0", b"\0\0\0\0", b"\1", b"\2" + bytes(20), b"\1" + bytes(15)])
def test_a_head_that_is_cut_short_or_of_an_unknown_kind_is_found(engine: EmbeddedEngine, head: bytes) -> None:
    damaged(engine, {KEY: head})


NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False)
RECORDS = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | NUMBERS | st.text() | st.binary(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    ),
)


@given(RECORDS)
def test_a_record_is_decoded_unchanged(record: dict[str, Any]) -> None:
    assert codec.decode(codec.encode(record)) == record
    assert codec.encode(codec.decode(codec.encode(record))) == codec.encode(record)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode([1, 2]),
        msgspec.msgpack.encode(None),
        msgspec.msgpack.encode({1: 2}),
        msgspec.msgpack.encode({"a": 1}) + b"\0",
        msgspec.msgpack.encode({"a": "text"})[:-1],
        b"\x81\xa1a\xa2\xff\xfe",
        b"\x81" * 2_000,
    ],
)
def test_bytes_that_are_no_record_are_damage(value: bytes) -> None:
    with pytest.raises(StoreCorruptError):
        codec.decode(value)


@given(st.binary(max_size=60))
def test_no_input_makes_decoding_crash(value: bytes) -> None:
    with contextlib.suppress(StoreCorruptError):
        assert isinstance(codec.decode(value), dict | list)
