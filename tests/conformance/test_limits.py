"""FoundationDB's limits with FoundationDB's codes: what one engine refuses, every engine refuses.

A write that breaks a limit may be refused at once or at the commit, so each test looks at the run as a whole.
"""

from collections.abc import Callable

import pytest

from drillcore_fdb.engine import (
    KEY_BYTES_MAX,
    KEYS_END,
    TRANSACTION_BYTES_MAX,
    VALUE_BYTES_MAX,
    Atomic,
    Engine,
    KeySelector,
    Transaction,
)
from drillcore_fdb.errors import InvalidUseError, LimitError
from tests.conformance.staging import Space, Work, contents, fill, fill_letters, value_at, versionstamp_template

ToWork = Callable[[Space], Work]


def refuse(engine: Engine, work: Work, error: type[LimitError | InvalidUseError], code: int) -> None:
    with pytest.raises(error) as raised:
        engine.run(work)
    assert raised.value.code == code


def test_the_longest_key_and_the_longest_value_are_stored(engine: Engine, space: Space) -> None:
    key, value = space.key_of_length(KEY_BYTES_MAX), b"v" * VALUE_BYTES_MAX
    fill(engine, {key: value})
    assert value_at(engine, key) == value
    assert contents(engine, space) == [(key, value)]


@pytest.mark.parametrize("write", ["set", "atomic", "versionstamped value", "versionstamped key"])
def test_a_key_that_is_too_long_is_refused(engine: Engine, space: Space, write: str) -> None:
    too_long = space.key_of_length(KEY_BYTES_MAX + 1)

    def work(tr: Transaction) -> None:
        tr.set(space.key(b"a"), b"1")
        match write:
            case "set":
                tr.set(too_long, b"")
            case "atomic":
                tr.atomic(Atomic.ADD, too_long, b"\x01")
            case "versionstamped value":
                tr.set_versionstamped_value(too_long, versionstamp_template(b""))
            case _:
                tr.set_versionstamped_key(versionstamp_template(too_long[:-13]), b"")

    refuse(engine, work, LimitError, 2102)
    assert contents(engine, space) == []


def test_the_longest_template_of_a_versionstamped_key_is_accepted(engine: Engine, space: Space) -> None:
    template = versionstamp_template(space.key_of_length(KEY_BYTES_MAX - 14))
    assert len(template) == KEY_BYTES_MAX
    engine.run(lambda tr: tr.set_versionstamped_key(template, b""))
    assert [len(key) for key, _ in contents(engine, space)] == [KEY_BYTES_MAX - 4]


def test_reading_and_clearing_a_key_that_is_too_long_finds_nothing(engine: Engine, space: Space) -> None:
    too_long = space.key_of_length(KEY_BYTES_MAX + 50)
    fill_letters(engine, space, "a")

    def work(tr: Transaction) -> bytes | None:
        tr.clear(too_long)
        return tr.get(too_long)

    assert engine.run(work) is None


@pytest.mark.parametrize("write", ["set", "atomic", "versionstamped value", "versionstamped key"])
def test_a_value_that_is_too_long_is_refused(engine: Engine, space: Space, write: str) -> None:
    too_long = b"v" * (VALUE_BYTES_MAX + 1)

    def work(tr: Transaction) -> None:
        tr.set(space.key(b"a"), b"1")
        match write:
            case "set":
                tr.set(space.key(b"b"), too_long)
            case "atomic":
                tr.atomic(Atomic.BYTE_MAX, space.key(b"b"), too_long)
            case "versionstamped value":
                tr.set_versionstamped_value(space.key(b"b"), versionstamp_template(too_long[:-13]))
            case _:
                tr.set_versionstamped_key(versionstamp_template(space.key(b"b")), too_long)

    refuse(engine, work, LimitError, 2103)
    assert contents(engine, space) == []


def write_values(space: Space, count: int) -> Work:
    def work(tr: Transaction) -> None:
        for number in range(count):
            tr.set(space.key(b"%03d" % number), b"v" * VALUE_BYTES_MAX)

    return work


def test_a_transaction_just_below_the_limit_commits(engine: Engine, space: Space) -> None:
    count = TRANSACTION_BYTES_MAX // VALUE_BYTES_MAX - 1
    engine.run(write_values(space, count))
    assert sum(len(value) for _, value in contents(engine, space)) == count * VALUE_BYTES_MAX


def test_a_transaction_that_is_too_large_is_refused_whole(engine: Engine, space: Space) -> None:
    count = TRANSACTION_BYTES_MAX // VALUE_BYTES_MAX + 1
    refuse(engine, write_values(space, count), LimitError, 2101)
    assert contents(engine, space) == []


def test_conflict_ranges_count_towards_the_size_of_a_transaction(engine: Engine, space: Space) -> None:
    long_key = space.key_of_length(KEY_BYTES_MAX - 10)

    def work(tr: Transaction) -> None:
        tr.set(space.key(b"a"), b"1")
        for number in range(600):
            tr.add_read_conflict_key(long_key + b"%05d" % number)

    refuse(engine, work, LimitError, 2101)
    assert contents(engine, space) == []


OUTSIDE: dict[str, ToWork] = {
    "get": lambda _: lambda tr: tr.get(KEYS_END),
    "get further out": lambda _: lambda tr: tr.get(KEYS_END + b"/x"),
    "get_many": lambda space: lambda tr: tr.get_many([space.key(b"a"), KEYS_END]),
    "snapshot get": lambda _: lambda tr: tr.snapshot.get(KEYS_END),
    "get_key": lambda _: lambda tr: tr.get_key(KeySelector.first_greater_than(KEYS_END + b"\0")),
    "range": lambda space: lambda tr: list(tr.range(space.prefix, KEYS_END + b"\0", limit=1)),
    "set": lambda _: lambda tr: tr.set(KEYS_END, b""),
    "set further out": lambda _: lambda tr: tr.set(KEYS_END + b"/x", b""),
    "clear": lambda _: lambda tr: tr.clear(KEYS_END),
    "clear_range": lambda _: lambda tr: tr.clear_range(KEYS_END + b"\0", KEYS_END + b"\1"),
    "atomic": lambda _: lambda tr: tr.add(KEYS_END, 1),
    "versionstamped value": lambda _: lambda tr: tr.set_versionstamped_value(KEYS_END, versionstamp_template(b"")),
    "versionstamped key": lambda _: lambda tr: tr.set_versionstamped_key(versionstamp_template(KEYS_END), b""),
    "read conflict range": lambda space: lambda tr: tr.add_read_conflict_range(space.prefix, KEYS_END + b"\0"),
    "write conflict range": lambda space: lambda tr: tr.add_write_conflict_range(space.prefix, KEYS_END + b"\0"),
}


@pytest.mark.parametrize("to_work", OUTSIDE.values(), ids=OUTSIDE.keys())
def test_keys_from_ff_on_are_out_of_bounds(engine: Engine, space: Space, to_work: ToWork) -> None:
    refuse(engine, to_work(space), InvalidUseError, 2004)


def test_a_watch_from_ff_on_is_out_of_bounds_at_the_latest_when_waited_for(engine: Engine) -> None:
    with pytest.raises(InvalidUseError) as raised:
        engine.run(lambda tr: tr.watch(KEYS_END)).wait(5)
    assert raised.value.code == 2004


def test_the_end_of_the_keys_may_bound_a_range(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "a")
    found = engine.run(lambda tr: list(tr.range(space.prefix, KEYS_END, limit=1)))
    assert found == [(space.key(b"a"), b"a")]


INVERTED: dict[str, ToWork] = {
    "clear_range": lambda space: lambda tr: tr.clear_range(space.key(b"b"), space.key(b"a")),
    "read conflict range": lambda space: lambda tr: tr.add_read_conflict_range(space.key(b"b"), space.key(b"a")),
    "write conflict range": lambda space: lambda tr: tr.add_write_conflict_range(space.key(b"b"), space.key(b"a")),
}


@pytest.mark.parametrize("to_work", INVERTED.values(), ids=INVERTED.keys())
def test_a_range_that_ends_before_it_begins_is_refused(engine: Engine, space: Space, to_work: ToWork) -> None:
    refuse(engine, to_work(space), InvalidUseError, 2005)


def test_a_scan_that_ends_before_it_begins_is_empty(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "abc")
    assert engine.run(lambda tr: list(tr.range(space.key(b"c"), space.key(b"a")))) == []
    assert engine.run(lambda tr: list(tr.range(space.key(b"c"), space.key(b"a"), reverse=True))) == []
