"""A commit is refused only for ranges that the transaction read and that another commit wrote since."""

from collections.abc import Callable

import pytest

from drillcore_fdb.engine import Atomic, Engine, KeySelector, RangeRead, Reader, Transaction
from drillcore_fdb.errors import ConflictError
from tests.conformance.staging import (
    NO_RETRY,
    Space,
    Work,
    commits_despite,
    contents,
    fill,
    fill_letters,
    letters_of,
    value_at,
    versionstamp_template,
)

Reading = Callable[[Reader, Space], object]


def c_of(space: Space) -> tuple[bytes, bytes]:
    """A range around the key c."""
    return space.key(b"b"), space.key(b"d")


READINGS: dict[str, Reading] = {
    "get": lambda reader, space: reader.get(space.key(b"c")),
    "get_many": lambda reader, space: reader.get_many([space.key(b"a"), space.key(b"c")]),
    "range": lambda reader, space: list(reader.range(space.key(b"b"), space.key(b"d"))),
    "reverse range": lambda reader, space: list(reader.range(space.key(b"b"), space.key(b"d"), reverse=True)),
    "range_many": lambda reader, space: reader.range_many([(space.key(b"a"), space.key(b"b")), c_of(space)]),
    "reverse range_many": lambda reader, space: reader.range_many([c_of(space)], reverse=True),
    "get_key forward": lambda reader, space: reader.get_key(KeySelector.first_greater_than(space.key(b"b"))),
    "get_key backward": lambda reader, space: reader.get_key(KeySelector.last_less_than(space.key(b"d"))),
}
"""Ways to read the key c."""

every_reading = pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS.keys())

WRITINGS: dict[str, Callable[[Transaction, Space], None]] = {
    "set": lambda tr, space: tr.set(space.key(b"c"), b"other"),
    "set to the same": lambda tr, space: tr.set(space.key(b"c"), b"c"),
    "clear": lambda tr, space: tr.clear(space.key(b"c")),
    "clear_range": lambda tr, space: tr.clear_range(space.key(b"bb"), space.key(b"cc")),
    "atomic": lambda tr, space: tr.atomic(Atomic.BYTE_MAX, space.key(b"c"), b"d"),
    "atomic without effect": lambda tr, space: tr.atomic(Atomic.BYTE_MAX, space.key(b"c"), b"a"),
    "versionstamped value": lambda tr, space: tr.set_versionstamped_value(space.key(b"c"), versionstamp_template(b"")),
    "write conflict range": lambda tr, space: tr.add_write_conflict_range(space.key(b"c"), space.key(b"cc")),
    "write conflict key": lambda tr, space: tr.add_write_conflict_key(space.key(b"c")),
}
"""Ways to write the key c."""

every_writing = pytest.mark.parametrize("writing", WRITINGS.values(), ids=WRITINGS.keys())


def setting(space: Space, suffix: bytes) -> Work:
    return lambda tr: tr.set(space.key(suffix), b"set by another")


def reading_and_writing(space: Space, reading: Reading) -> Work:
    """Work that reads, and writes a key that nobody else touches."""

    def work(tr: Transaction) -> None:
        reading(tr, space)
        tr.set(space.key(b"result"), b"1")

    return work


@every_reading
def test_a_read_then_a_write_conflicts_with_a_change_of_the_read_keys(
    engine: Engine, space: Space, reading: Reading
) -> None:
    fill_letters(engine, space, "abcde")
    work = reading_and_writing(space, reading)
    assert not commits_despite(engine, work, lambda tr: tr.clear(space.key(b"c")))
    assert value_at(engine, space.key(b"result")) is None


@every_reading
def test_a_change_of_something_else_is_no_conflict(engine: Engine, space: Space, reading: Reading) -> None:
    fill_letters(engine, space, "abcde")
    assert commits_despite(engine, reading_and_writing(space, reading), setting(space, b"e"))


@every_reading
def test_a_transaction_that_only_reads_never_conflicts(engine: Engine, space: Space, reading: Reading) -> None:
    fill_letters(engine, space, "abcde")
    assert commits_despite(engine, lambda tr: reading(tr, space), lambda tr: tr.clear_range(*space.whole))


@every_reading
def test_a_transaction_that_only_reads_never_aborts_a_writer(engine: Engine, space: Space, reading: Reading) -> None:
    fill_letters(engine, space, "abcde")

    def read_and_replace(tr: Transaction) -> None:
        tr.get(space.key(b"c"))
        tr.set(space.key(b"c"), b"mine")

    assert commits_despite(engine, read_and_replace, lambda tr: reading(tr, space))


@every_reading
def test_a_snapshot_read_never_conflicts(engine: Engine, space: Space, reading: Reading) -> None:
    fill_letters(engine, space, "abcde")

    def work(tr: Transaction) -> None:
        reading(tr.snapshot, space)
        tr.set(space.key(b"result"), b"1")

    assert commits_despite(engine, work, lambda tr: tr.clear_range(*space.whole))


@every_writing
def test_every_kind_of_write_conflicts_with_a_read_of_its_key(
    engine: Engine, space: Space, writing: Callable[[Transaction, Space], None]
) -> None:
    fill_letters(engine, space, "abcde")
    work = reading_and_writing(space, lambda reader, _: reader.get(space.key(b"c")))
    assert not commits_despite(engine, work, lambda tr: writing(tr, space))


@every_writing
def test_a_blind_write_never_conflicts(
    engine: Engine, space: Space, writing: Callable[[Transaction, Space], None]
) -> None:
    fill_letters(engine, space, "abcde")
    assert commits_despite(engine, lambda tr: writing(tr, space), lambda tr: tr.clear_range(*space.whole))


def test_the_later_of_two_blind_writes_wins(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> None:
        tr.set(space.key(b"a"), b"committed last")
        fill(engine, {space.key(b"a"): b"committed first"})

    engine.run(work, NO_RETRY)
    assert value_at(engine, space.key(b"a")) == b"committed last"


def test_a_serializable_read_after_a_snapshot_read_of_the_same_key_conflicts(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> None:
        tr.snapshot.get(space.key(b"a"))
        tr.get(space.key(b"a"))
        tr.set(space.key(b"result"), b"1")

    assert not commits_despite(engine, work, setting(space, b"a"))


def test_a_key_that_was_missing_conflicts_when_it_appears(engine: Engine, space: Space) -> None:
    work = reading_and_writing(space, lambda reader, _: reader.get(space.key(b"a")))
    assert not commits_despite(engine, work, setting(space, b"a"))


def test_clearing_a_missing_key_conflicts_with_a_read_of_it(engine: Engine, space: Space) -> None:
    work = reading_and_writing(space, lambda reader, _: reader.get(space.key(b"a")))
    assert not commits_despite(engine, work, lambda tr: tr.clear(space.key(b"a")))


def test_a_change_that_is_undone_still_conflicts(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "a")

    def change_and_undo(tr: Transaction) -> None:
        fill(engine, {space.key(b"a"): b"changed"})
        tr.set(space.key(b"a"), b"a")

    work = reading_and_writing(space, lambda reader, _: reader.get(space.key(b"a")))
    assert not commits_despite(engine, work, change_and_undo)


def test_a_read_of_a_neighbour_key_is_no_conflict(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "a")
    work = reading_and_writing(space, lambda reader, _: reader.get(space.key(b"a")))
    assert commits_despite(engine, work, setting(space, b"a\0"))
    assert commits_despite(engine, work, setting(space, b"`\xff"))


def test_a_commit_before_the_read_version_is_no_conflict(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> bytes | None:
        fill(engine, {space.key(b"a"): b"1"})
        seen = tr.get(space.key(b"a"))
        tr.set(space.key(b"b"), b"2")
        return seen

    assert engine.run(work, NO_RETRY) == b"1"


def test_write_skew_is_refused(engine: Engine, space: Space) -> None:
    on_call = [space.key(b"alice"), space.key(b"bob")]
    fill(engine, dict.fromkeys(on_call, b"on call"))

    def leave(key: bytes) -> Work:
        def work(tr: Transaction) -> None:
            if tr.get_many(on_call) == [b"on call"] * 2:
                tr.clear(key)

        return work

    assert not commits_despite(engine, leave(on_call[0]), leave(on_call[1]))
    assert contents(engine, space) == [(on_call[0], b"on call")]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_phantom_in_a_scanned_range_conflicts(engine: Engine, space: Space, reverse: bool) -> None:
    fill_letters(engine, space, "bd")
    work = reading_and_writing(
        space, lambda reader, _: list(reader.range(space.key(b"a"), space.key(b"e"), reverse=reverse))
    )
    for phantom in (b"a", b"c", b"dd"):
        assert not commits_despite(engine, work, setting(space, phantom)), phantom


def test_a_phantom_in_a_range_that_was_empty_conflicts(engine: Engine, space: Space) -> None:
    work = reading_and_writing(space, lambda reader, _: list(reader.range(space.key(b"a"), space.key(b"e"))))
    assert not commits_despite(engine, work, setting(space, b"c"))


def test_a_versionstamped_key_in_a_scanned_range_conflicts(engine: Engine, space: Space) -> None:
    work = reading_and_writing(space, lambda reader, _: list(reader.range(space.key(b"a"), space.key(b"e"))))
    template = versionstamp_template(space.key(b"c"))
    assert not commits_despite(engine, work, lambda tr: tr.set_versionstamped_key(template, b""))


def test_the_end_of_a_scanned_range_is_not_part_of_it(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "abc")
    work = reading_and_writing(space, lambda reader, _: list(reader.range(space.key(b"a"), space.key(b"c"))))
    assert commits_despite(engine, work, setting(space, b"c"))
    assert commits_despite(engine, work, setting(space, b"`"))


@pytest.mark.parametrize(
    ("reverse", "conflicting", "harmless"),
    [(False, (b"a", b"aa", b"bb", b"c"), (b"c\0", b"cc", b"f")), (True, (b"d", b"dd", b"f"), (b"a", b"c", b"cc"))],
)
def test_a_limited_scan_conflicts_only_with_what_it_read(
    engine: Engine, space: Space, reverse: bool, conflicting: tuple[bytes, ...], harmless: tuple[bytes, ...]
) -> None:
    fill_letters(engine, space, "abcdef")

    def read_three(reader: Reader, _: Space) -> None:
        read = list(reader.range(space.key(b"a"), space.key(b"g"), limit=3, reverse=reverse))
        assert letters_of(space, read) == ("fed" if reverse else "abc")

    for suffix in conflicting:
        assert not commits_despite(engine, reading_and_writing(space, read_three), setting(space, suffix)), suffix
        engine.run(lambda tr: tr.clear_range(*space.whole))
        fill_letters(engine, space, "abcdef")
    for suffix in harmless:
        assert commits_despite(engine, reading_and_writing(space, read_three), setting(space, suffix)), suffix


def test_each_limited_range_of_many_conflicts_only_with_what_it_read(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "abcdef")

    def read_the_last_of_each(reader: Reader, _: Space) -> None:
        ranges = [(space.key(b"a"), space.key(b"c")), (space.key(b"d"), space.key(b"g"))]
        reader.range_many(ranges, limit=1, reverse=True)

    work = reading_and_writing(space, read_the_last_of_each)
    assert commits_despite(engine, work, setting(space, b"a"))
    assert commits_despite(engine, work, setting(space, b"c"))
    assert commits_despite(engine, work, setting(space, b"e"))
    assert not commits_despite(engine, work, setting(space, b"bb"))
    assert not commits_despite(engine, work, lambda tr: tr.clear(space.key(b"f")))


def test_reading_ahead_makes_no_conflict_and_the_later_read_makes_its_own(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "abcdef")

    def read_ahead(reader: Reader, _: Space) -> None:
        reader.read_ahead([space.key(b"a")], [RangeRead(*c_of(space)), RangeRead(*space.whole, limit=1, reverse=True)])

    def read_ahead_then_read(reader: Reader, _: Space) -> None:
        read_ahead(reader, space)
        reader.get(space.key(b"a"))
        reader.range_many([c_of(space)])

    for suffix in (b"a", b"c", b"f"):
        assert commits_despite(engine, reading_and_writing(space, read_ahead), setting(space, suffix)), suffix
    for suffix in (b"a", b"c"):
        work = reading_and_writing(space, read_ahead_then_read)
        assert not commits_despite(engine, work, setting(space, suffix)), suffix


def test_a_limit_that_was_not_reached_reads_the_whole_range(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "ab")
    work = reading_and_writing(space, lambda reader, _: list(reader.range(space.key(b"a"), space.key(b"e"), limit=5)))
    assert not commits_despite(engine, work, setting(space, b"d"))


def test_get_key_conflicts_with_a_key_that_would_have_been_the_answer(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "adg")
    forward = reading_and_writing(space, READINGS["get_key forward"])
    assert not commits_despite(engine, forward, setting(space, b"c"))
    engine.run(lambda tr: tr.clear(space.key(b"c")))
    assert not commits_despite(engine, forward, lambda tr: tr.clear(space.key(b"d")))


def test_get_key_does_not_conflict_beyond_its_answer(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "adg")
    forward = reading_and_writing(space, READINGS["get_key forward"])
    backward = reading_and_writing(space, READINGS["get_key backward"])
    assert commits_despite(engine, forward, setting(space, b"e"))
    assert commits_despite(engine, forward, setting(space, b"a"))
    assert commits_despite(engine, backward, setting(space, b"d"))
    assert commits_despite(engine, backward, setting(space, b"`"))


def test_get_key_with_an_offset_conflicts_with_every_key_it_stepped_over(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "abcde")
    selector = KeySelector.first_greater_or_equal(space.key(b"a")) + 2
    work = reading_and_writing(space, lambda reader, _: reader.get_key(selector))
    assert not commits_despite(engine, work, lambda tr: tr.clear(space.key(b"b")))
    fill_letters(engine, space, "abcde")
    assert not commits_despite(engine, work, setting(space, b"bb"))


def test_a_range_by_selectors_conflicts_with_a_change_of_its_result(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "abcde")
    begin = KeySelector.last_less_or_equal(space.key(b"bb"))
    end = KeySelector.first_greater_than(space.key(b"d"))
    work = reading_and_writing(space, lambda reader, _: list(reader.range(begin, end)))
    for suffix in (b"b", b"c", b"d"):
        assert not commits_despite(engine, work, setting(space, suffix)), suffix


@pytest.mark.parametrize("own", ["set", "clear", "clear_range", "atomic on an own value"])
def test_reading_an_own_write_is_no_conflict(engine: Engine, space: Space, own: str) -> None:
    fill_letters(engine, space, "abc")
    key = space.key(b"b")

    def work(tr: Transaction) -> None:
        match own:
            case "set":
                tr.set(key, b"mine")
            case "clear":
                tr.clear(key)
            case "clear_range":
                tr.clear_range(key, space.key(b"bb"))
            case _:
                tr.set(key, b"mine")
                tr.atomic(Atomic.BYTE_MAX, key, b"other")
        tr.get(key)
        list(tr.range(key, key + b"\0"))
        tr.get_many([key])

    assert commits_despite(engine, work, setting(space, b"b"))


def test_a_scan_over_own_writes_conflicts_only_between_them(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> None:
        tr.set(space.key(b"b"), b"mine")
        tr.clear_range(space.key(b"d"), space.key(b"f"))
        list(tr.range(space.key(b"a"), space.key(b"g")))

    assert commits_despite(engine, work, setting(space, b"b"))
    assert commits_despite(engine, work, setting(space, b"e"))
    assert not commits_despite(engine, work, setting(space, b"c"))


def test_reading_before_writing_the_same_key_conflicts(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> None:
        tr.get(space.key(b"a"))
        tr.set(space.key(b"a"), b"mine")

    assert not commits_despite(engine, work, setting(space, b"a"))


def test_reading_an_own_atomic_on_a_stored_value_conflicts(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> None:
        tr.add(space.key(b"a"), 1)
        tr.get(space.key(b"a"))

    assert not commits_despite(engine, work, setting(space, b"a"))


def test_atomics_do_not_conflict_with_each_other(engine: Engine, space: Space) -> None:
    assert commits_despite(
        engine, lambda tr: tr.add(space.key(b"a"), 2), lambda tr: tr.atomic(Atomic.ADD, space.key(b"a"), b"\x28")
    )
    assert value_at(engine, space.key(b"a")) == (42).to_bytes(8, "little")


@pytest.mark.parametrize(("suffix", "conflict"), [(b"a", False), (b"b", True), (b"bb", True), (b"c", False)])
def test_an_explicit_read_conflict_range_counts_as_read(
    engine: Engine, space: Space, suffix: bytes, conflict: bool
) -> None:
    def work(tr: Transaction) -> None:
        tr.add_read_conflict_range(space.key(b"b"), space.key(b"c"))
        tr.set(space.key(b"result"), b"1")

    assert commits_despite(engine, work, setting(space, suffix)) is not conflict


@pytest.mark.parametrize(("suffix", "conflict"), [(b"a", False), (b"b", True), (b"b\0", False)])
def test_an_explicit_read_conflict_key_counts_as_read(
    engine: Engine, space: Space, suffix: bytes, conflict: bool
) -> None:
    def work(tr: Transaction) -> None:
        tr.add_read_conflict_key(space.key(b"b"))
        tr.set(space.key(b"result"), b"1")

    assert commits_despite(engine, work, setting(space, suffix)) is not conflict


@pytest.mark.parametrize(("suffix", "conflict"), [(b"a", False), (b"b", True), (b"bb", True), (b"c", False)])
def test_an_explicit_write_conflict_range_counts_as_written(
    engine: Engine, space: Space, suffix: bytes, conflict: bool
) -> None:
    work = reading_and_writing(space, lambda reader, _: reader.get(space.key(suffix)))
    write = commits_despite(engine, work, lambda tr: tr.add_write_conflict_range(space.key(b"b"), space.key(b"c")))
    assert write is not conflict


def test_a_transaction_that_only_reads_and_adds_a_write_conflict_can_conflict(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> None:
        tr.get(space.key(b"a"))
        tr.add_write_conflict_key(space.key(b"b"))

    assert not commits_despite(engine, work, setting(space, b"a"))


def test_a_read_conflict_range_alone_is_only_reading(engine: Engine, space: Space) -> None:
    assert commits_despite(engine, lambda tr: tr.add_read_conflict_range(*space.whole), setting(space, b"a"))


def test_a_write_conflict_range_writes_no_data_but_has_a_version(engine: Engine, space: Space) -> None:
    committed = engine.commit(lambda tr: tr.add_write_conflict_range(*space.whole))
    assert committed.version > 0
    assert committed.versionstamp is not None
    assert contents(engine, space) == []


def test_clear_range_conflicts_with_a_scan_it_overlaps_though_both_are_empty(engine: Engine, space: Space) -> None:
    work = reading_and_writing(space, lambda reader, _: list(reader.range(space.key(b"a"), space.key(b"c"))))
    assert not commits_despite(engine, work, lambda tr: tr.clear_range(space.key(b"b"), space.key(b"d")))
    assert commits_despite(engine, work, lambda tr: tr.clear_range(space.key(b"c"), space.key(b"d")))


def test_the_engine_runs_the_work_again_after_a_conflict(engine: Engine, space: Space) -> None:
    seen: list[bytes | None] = []

    def work(tr: Transaction) -> int:
        seen.append(tr.get(space.key(b"a")))
        tr.set(space.key(b"b"), b"mine")
        if len(seen) == 1:
            fill(engine, {space.key(b"a"): b"changed"})
        return len(seen)

    assert engine.run(work) == 2
    assert seen == [None, b"changed"]


def test_a_run_that_conflicted_leaves_nothing_behind(engine: Engine, space: Space) -> None:
    runs: list[int] = []

    def work(tr: Transaction) -> None:
        runs.append(tr.approximate_size())
        tr.get(space.key(b"a"))
        tr.set(space.key(b"run" + str(len(runs)).encode()), b"")
        if len(runs) == 1:
            fill(engine, {space.key(b"a"): b""})

    engine.run(work)
    assert letters_of(space, contents(engine, space)) == "arun2"
    assert runs[0] == runs[1]


def test_a_conflict_surfaces_with_foundationdbs_code(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> None:
        tr.get(space.key(b"a"))
        tr.set(space.key(b"a"), b"mine")
        fill(engine, {space.key(b"a"): b"other"})

    with pytest.raises(ConflictError) as raised:
        engine.run(work, NO_RETRY)
    assert raised.value.code == 1020
    assert value_at(engine, space.key(b"a")) == b"other"
