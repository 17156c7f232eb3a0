"""Scans: every key once, in order, in both directions, however long the keys and however many."""

from collections.abc import Iterator

import pytest

from drillcore_fdb.engine import KEY_BYTES_MAX, Engine, KeyValue, Streaming, Transaction
from tests.conformance.staging import Space, contents, fill, fill_letters, letters_of, value_at


@pytest.mark.parametrize(
    ("limit", "reverse", "expected"),
    [
        (0, False, "bcd"),
        (1, False, "b"),
        (2, False, "bc"),
        (3, False, "bcd"),
        (9, False, "bcd"),
        (0, True, "dcb"),
        (1, True, "d"),
        (2, True, "dc"),
        (3, True, "dcb"),
        (9, True, "dcb"),
    ],
)
def test_a_scan_includes_its_begin_and_excludes_its_end(
    engine: Engine, space: Space, limit: int, reverse: bool, expected: str
) -> None:
    fill_letters(engine, space, "abcde")
    found = engine.run(lambda tr: list(tr.range(space.key(b"b"), space.key(b"e"), limit=limit, reverse=reverse)))
    assert letters_of(space, found) == expected


def test_bounds_need_not_exist(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "ace")
    found = engine.run(lambda tr: list(tr.range(space.key(b"b"), space.key(b"d\xff"))))
    assert letters_of(space, found) == "c"


def test_a_scan_of_an_empty_range_is_empty(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "ab")
    assert engine.run(lambda tr: list(tr.range(space.key(b"a"), space.key(b"a")))) == []
    assert engine.run(lambda tr: list(tr.range(space.key(b"aa"), space.key(b"ab")))) == []


def test_a_scan_can_be_stopped_halfway(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "abc")
    assert engine.run(lambda tr: next(iter(tr.range(*space.whole)))) == (space.key(b"a"), b"a")
    assert engine.run(lambda tr: next(iter(tr.range(*space.whole, reverse=True)))) == (space.key(b"c"), b"c")


def test_keys_sort_by_byte_value(engine: Engine, space: Space) -> None:
    suffixes = [
        b"",
        b"\0",
        b"\0\0",
        b"\0\x01",
        b"\0\xff",
        b"\x01",
        b"a",
        b"a\0",
        b"a\0\0",
        b"aa",
        b"b",
        b"\x7f",
        b"\x80",
    ]
    suffixes += [b"\xfe", b"\xff", b"\xff\0", b"\xff\xff"]
    fill(engine, {space.key(suffix): suffix for suffix in reversed(suffixes)})
    assert [value for _, value in contents(engine, space)] == sorted(suffixes)
    backwards = engine.run(lambda tr: list(tr.range(*space.whole, reverse=True)))
    assert [value for _, value in backwards] == sorted(suffixes, reverse=True)


def test_the_empty_key_can_be_stored(engine: Engine) -> None:
    before = value_at(engine, b"")
    try:
        fill(engine, {b"": b"empty"})
        assert value_at(engine, b"") == b"empty"
        assert engine.run(lambda tr: list(tr.range(b"", b"\0"))) == [(b"", b"empty")]
    finally:
        engine.run(lambda tr: tr.clear(b"") if before is None else tr.set(b"", before))


def assert_scans_in_order(engine: Engine, space: Space, pairs: dict[bytes, bytes]) -> None:
    """Every key is found alone, in scans in both directions with and without limits, and from its own place."""
    ordered = sorted(pairs.items())

    def scan(begin: bytes, end: bytes, limit: int, reverse: bool) -> list[KeyValue]:
        return engine.run(lambda tr: list(tr.range(begin, end, limit=limit, reverse=reverse)))

    assert engine.run(lambda tr: tr.get_many([key for key, _ in ordered])) == [value for _, value in ordered]
    for limit in (0, 1, 3, len(ordered) - 1):
        taken = limit or len(ordered)
        assert scan(*space.whole, limit, False) == ordered[:taken]
        assert scan(*space.whole, limit, True) == ordered[::-1][:taken]
    for place in range(0, len(ordered), max(1, len(ordered) // 8)):
        key = ordered[place][0]
        assert scan(key, space.whole.end, 2, False) == ordered[place : place + 2]
        assert scan(space.prefix, key, 2, True) == ordered[:place][::-1][:2]


def test_the_longest_keys_that_differ_in_their_last_byte_keep_their_order(engine: Engine, space: Space) -> None:
    keys = [space.key_of_length(KEY_BYTES_MAX, bytes([last])) for last in (0, 1, 2, 127, 128, 200, 254, 255)]
    pairs = {key: key[-1:] for key in keys}
    fill(engine, pairs)
    assert_scans_in_order(engine, space, pairs)


def test_keys_of_every_length_around_the_size_of_a_page_keep_their_order(engine: Engine, space: Space) -> None:
    lengths = [
        *range(500, 520),
        *range(1015, 1030),
        *range(1900, 2001, 10),
        *range(1975, 2100),
        4096,
        9_999,
        KEY_BYTES_MAX,
    ]
    pairs = {space.key_of_length(length): str(length).encode() for length in lengths}
    pairs |= {space.key_of_length(length, b"a"): b"a" for length in lengths[::7]}
    pairs |= {space.key_of_length(length, b"z"): b"z" for length in lengths[::7]}
    pairs |= {space.key(short): short for short in (b"", b"a", b"p", b"pp", b"q", b"z")}
    fill(engine, pairs)
    assert_scans_in_order(engine, space, pairs)


def test_long_keys_are_replaced_and_cleared_one_by_one(engine: Engine, space: Space) -> None:
    keys = [
        space.key_of_length(length, ending)
        for length in (480, 511, 512, 2000, KEY_BYTES_MAX)
        for ending in (b"a", b"b")
    ]
    fill(engine, dict.fromkeys(keys, b"old"))

    def change(tr: Transaction) -> None:
        for key in keys:
            if key.endswith(b"a"):
                tr.set(key, b"new")
            else:
                tr.clear(key)

    engine.run(change)
    assert contents(engine, space) == sorted((key, b"new") for key in keys if key.endswith(b"a"))


def test_clear_range_between_long_keys_clears_exactly_those_between(engine: Engine, space: Space) -> None:
    keys = [space.key_of_length(KEY_BYTES_MAX, bytes([last])) for last in range(10)]
    fill(engine, dict.fromkeys(keys, b""))
    engine.run(lambda tr: tr.clear_range(keys[2], keys[7]))
    assert [key for key, _ in contents(engine, space)] == [*keys[:2], *keys[7:]]
    engine.run(lambda tr: tr.clear_range(keys[0][:-1], keys[0][:-1] + b"\x01"))
    assert [key for key, _ in contents(engine, space)] == [keys[1], *keys[7:]]


def test_own_long_keys_are_merged_into_a_scan(engine: Engine, space: Space) -> None:
    keys = [space.key_of_length(KEY_BYTES_MAX, bytes([last])) for last in range(10)]
    fill(engine, dict.fromkeys(keys[::2], b"stored"))

    def work(tr: Transaction) -> list[list[bytes]]:
        for key in keys[1::2]:
            tr.set(key, b"own")
        tr.clear(keys[4])
        return [[key for key, _ in tr.range(*space.whole, reverse=reverse)] for reverse in (False, True)]

    expected = [*keys[:4], *keys[5:]]
    assert engine.run(work) == [expected, expected[::-1]]


MANY = 3_000


@pytest.fixture(scope="module")
def many(engine: Engine) -> Iterator[list[KeyValue]]:
    """More than a batch of any engine: 3,000 keys with a megabyte of values."""
    space = Space.fresh()
    pairs = [(space.key(b"%05d" % number), b"%05d" % number * 70) for number in range(MANY)]
    for start in range(0, MANY, 1_000):
        fill(engine, dict(pairs[start : start + 1_000]))
    yield pairs
    engine.run(lambda tr: tr.clear_range(*space.whole))


@pytest.mark.parametrize("streaming", list(Streaming), ids=lambda streaming: streaming.value)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("view", ["serializable", "snapshot"])
def test_a_large_scan_is_the_same_in_every_streaming_mode(
    engine: Engine, many: list[KeyValue], streaming: Streaming, reverse: bool, view: str
) -> None:
    def scan(tr: Transaction) -> list[KeyValue]:
        reader = tr if view == "serializable" else tr.snapshot
        return list(reader.range(many[0][0], many[-1][0] + b"\0", streaming=streaming, reverse=reverse))

    assert engine.run(scan) == (many[::-1] if reverse else many)


@pytest.mark.parametrize("limit", [MANY // 2, MANY - 1, MANY + 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_limit_holds_across_batches(engine: Engine, many: list[KeyValue], limit: int, reverse: bool) -> None:
    found = engine.run(lambda tr: list(tr.range(many[0][0], many[-1][0] + b"\0", limit=limit, reverse=reverse)))
    assert found == (many[::-1] if reverse else many)[:limit]


@pytest.mark.parametrize("reverse", [False, True])
def test_own_writes_are_merged_across_batches(engine: Engine, many: list[KeyValue], reverse: bool) -> None:
    class UndoneError(Exception):
        pass

    added = [(key + b"+", b"own") for key, _ in many[::100]]
    found: list[KeyValue] = []

    def work(tr: Transaction) -> None:
        for key, value in added:
            tr.set(key, value)
        tr.clear_range(many[1_000][0], many[2_000][0])
        found.extend(tr.range(many[0][0], many[-1][0] + b"\0", reverse=reverse))
        raise UndoneError

    with pytest.raises(UndoneError):
        engine.run(work)
    kept = sorted([*many, *added])
    expected = [pair for pair in kept if not many[1_000][0] <= pair[0] < many[2_000][0]]
    assert found == (expected[::-1] if reverse else expected)


def test_pages_read_in_one_transaction_each_give_every_key_once(engine: Engine, many: list[KeyValue]) -> None:
    found: list[KeyValue] = []
    begin, end = many[0][0], many[-1][0] + b"\0"
    while page := engine.run(lambda tr, begin=begin: list(tr.range(begin, end, limit=700))):
        found += page
        begin = page[-1][0] + b"\0"
    assert found == many


def test_pages_read_backwards_in_one_transaction_each_give_every_key_once(engine: Engine, many: list[KeyValue]) -> None:
    found: list[KeyValue] = []
    begin, end = many[0][0], many[-1][0] + b"\0"
    while page := engine.run(lambda tr, end=end: list(tr.range(begin, end, limit=700, reverse=True))):
        found += page
        end = page[-1][0]
    assert found == many[::-1]


def test_a_large_scan_sees_one_version_while_others_write(engine: Engine, space: Space) -> None:
    keys = [space.key(b"%04d" % number) for number in range(600)]
    fill(engine, dict.fromkeys(keys, b"old" * 100))

    def scan(tr: Transaction) -> list[KeyValue]:
        found = []
        for number, pair in enumerate(tr.range(*space.whole)):
            found.append(pair)
            if number == 5:
                fill(engine, dict.fromkeys(keys[1::2], b"new"))
                engine.run(lambda writer: writer.clear_range(keys[300], keys[400]))
        return found

    assert engine.run(scan) == [(key, b"old" * 100) for key in keys]


def test_many_small_scans_in_one_transaction(engine: Engine, many: list[KeyValue]) -> None:
    def work(tr: Transaction) -> list[KeyValue]:
        return [next(iter(tr.range(key, key + b"\0", limit=1))) for key, _ in many[::50]]

    assert engine.run(work) == many[::50]
