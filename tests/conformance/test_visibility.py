"""A transaction sees everything committed before it, at a single version, with its own writes on top."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from drillcore_fdb.engine import Atomic, Engine, KeySelector, RangeRead, Reader, Transaction
from drillcore_fdb.errors import TransactionCancelledError
from tests.conformance.staging import NO_RETRY, Space, contents, fill, fill_letters, letters_of, value_at


def number(value: int) -> bytes:
    return value.to_bytes(8, "little")


def test_a_committed_write_is_seen_by_the_next_transaction(engine: Engine, space: Space) -> None:
    fill(engine, {space.key(b"a"): b"1"})
    assert value_at(engine, space.key(b"a")) == b"1"


def test_a_missing_key_reads_as_none(engine: Engine, space: Space) -> None:
    assert value_at(engine, space.key(b"missing")) is None


def test_an_empty_value_is_not_a_missing_value(engine: Engine, space: Space) -> None:
    fill(engine, {space.key(b"a"): b""})
    assert value_at(engine, space.key(b"a")) == b""


def test_a_cleared_key_is_gone(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "abc")
    engine.run(lambda tr: tr.clear(space.key(b"b")))
    assert letters_of(space, contents(engine, space)) == "ac"


def test_clear_range_includes_its_begin_and_excludes_its_end(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "abcd")
    engine.run(lambda tr: tr.clear_range(space.key(b"b"), space.key(b"d")))
    assert letters_of(space, contents(engine, space)) == "ad"


def test_clearing_an_empty_range_changes_nothing(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "ab")
    engine.run(lambda tr: tr.clear_range(space.key(b"a"), space.key(b"a")))
    assert letters_of(space, contents(engine, space)) == "ab"


def test_the_last_write_to_a_key_wins(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> None:
        tr.set(space.key(b"a"), b"1")
        tr.clear(space.key(b"a"))
        tr.set(space.key(b"a"), b"2")
        tr.set(space.key(b"b"), b"3")
        tr.clear_range(space.key(b"b"), space.key(b"c"))

    engine.run(work)
    assert contents(engine, space) == [(space.key(b"a"), b"2")]


def test_a_write_is_not_seen_by_others_before_it_is_committed(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> bytes | None:
        tr.set(space.key(b"a"), b"1")
        return value_at(engine, space.key(b"a"))

    assert engine.run(work) is None


def test_a_commit_is_seen_whole_or_not_at_all(engine: Engine, space: Space) -> None:
    names = [space.key(bytes([letter])) for letter in b"abcdef"]
    fill(engine, dict.fromkeys(names, number(0)))
    done = threading.Event()

    def write() -> None:
        for turn in range(1, 60):
            fill(engine, dict.fromkeys(names, number(turn)))
        done.set()

    def read() -> set[int]:
        differing = set()
        while not done.is_set():
            differing.add(len({value for _, value in contents(engine, space)}))
        return differing

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read), pool.submit(read)]
        pool.submit(write).result()
    assert all(reader.result() <= {1} for reader in readers)


@pytest.mark.parametrize("view", ["serializable", "snapshot"])
def test_reads_are_repeatable_while_others_commit(engine: Engine, space: Space, view: str) -> None:
    fill_letters(engine, space, "bd")
    after_b = KeySelector.first_greater_than(space.key(b"b"))

    def reads(tr: Transaction) -> tuple[object, ...]:
        reader: Reader = tr if view == "serializable" else tr.snapshot
        keys = [space.key(b"b"), space.key(b"c")]
        scans = [list(reader.range(*space.whole)), *reader.range_many([space.whole, space.whole])]
        return reader.get_many(keys), reader.get(keys[0]), scans, reader.get_key(after_b)

    def interfere(tr: Transaction) -> None:
        tr.set(space.key(b"b"), b"changed")
        tr.set(space.key(b"c"), b"new")
        tr.clear(space.key(b"d"))

    def work(tr: Transaction) -> tuple[object, object]:
        before = reads(tr)
        engine.run(interfere)
        return before, reads(tr)

    before, after = engine.run(work, NO_RETRY)
    assert before == after


def test_the_version_of_the_first_read_holds_for_keys_read_later(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "ab")

    def work(tr: Transaction) -> tuple[bytes | None, list[tuple[bytes, bytes]]]:
        tr.get(space.key(b"a"))
        fill(engine, {space.key(b"b"): b"later", space.key(b"c"): b"later"})
        return tr.get(space.key(b"b")), list(tr.range(space.key(b"c"), space.key(b"d")))

    assert engine.run(work, NO_RETRY) == (b"b", [])


def test_the_read_version_is_fixed(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> set[int]:
        first = tr.read_version()
        fill_letters(engine, space, "a")
        tr.get(space.key(b"a"))
        return {first, tr.read_version(), tr.snapshot.read_version()}

    assert len(engine.run(work, NO_RETRY)) == 1


def test_a_transaction_that_begins_after_a_commit_reads_at_least_its_version(engine: Engine, space: Space) -> None:
    committed = engine.commit(lambda tr: tr.set(space.key(b"a"), b"1"))
    assert engine.run(lambda tr: tr.read_version()) >= committed.version


def test_the_committed_version_is_above_the_read_version(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> int:
        tr.set(space.key(b"a"), b"1")
        return tr.read_version()

    committed = engine.commit(work)
    assert committed.version > committed.value


def test_a_transaction_that_only_reads_has_no_versionstamp(engine: Engine, space: Space) -> None:
    committed = engine.commit(lambda tr: tr.get(space.key(b"a")))
    assert (committed.version, committed.versionstamp) == (-1, None)


def test_a_transaction_that_does_nothing_commits(engine: Engine, space: Space) -> None:
    committed = engine.commit(lambda _: "result")
    assert (committed.value, committed.version, committed.versionstamp) == ("result", -1, None)


def test_get_many_keeps_the_order_asked_for_with_duplicates_and_missing_keys(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "ab")
    keys = [space.key(letter) for letter in (b"b", b"missing", b"a", b"b")]
    assert engine.run(lambda tr: tr.get_many(keys)) == [b"b", None, b"a", b"b"]


def test_range_many_keeps_the_order_asked_for_with_overlapping_and_empty_ranges(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "abcd")
    ranges = [(b"b", b"d"), (b"x", b"y"), (b"c", b"c"), (b"a", b"c"), (b"b", b"d")]
    found = engine.run(lambda tr: tr.range_many([(space.key(begin), space.key(end)) for begin, end in ranges]))
    assert [letters_of(space, entries) for entries in found] == ["bc", "", "", "ab", "bc"]


@pytest.mark.parametrize("view", ["serializable", "snapshot"])
def test_range_many_sees_own_writes(engine: Engine, space: Space, view: str) -> None:
    fill_letters(engine, space, "abc")

    def work(tr: Transaction) -> list[str]:
        tr.clear(space.key(b"b"))
        tr.set(space.key(b"d"), b"d")
        reader: Reader = tr if view == "serializable" else tr.snapshot
        return [letters_of(space, found) for found in reader.range_many([space.whole] * 2, limit=2, reverse=True)]

    assert engine.run(work) == ["dc", "dc"]


@pytest.mark.parametrize("view", ["serializable", "snapshot"])
def test_what_was_read_ahead_is_read_with_the_writes_made_since(engine: Engine, space: Space, view: str) -> None:
    fill_letters(engine, space, "abc")

    def work(tr: Transaction) -> tuple[bytes | None, list[str]]:
        reader: Reader = tr if view == "serializable" else tr.snapshot
        reader.read_ahead([space.key(b"a")], [RangeRead(*space.whole, limit=2, reverse=True)])
        tr.set(space.key(b"a"), b"new")
        tr.clear(space.key(b"b"))
        tr.set(space.key(b"d"), b"d")
        found = reader.range_many([space.whole], limit=2, reverse=True)
        return reader.get(space.key(b"a")), [letters_of(space, entries) for entries in found]

    assert engine.run(work) == (b"new", ["dc"])


def test_range_many_of_no_ranges_is_empty(engine: Engine) -> None:
    assert engine.run(lambda tr: tr.range_many([])) == []


def test_range_many_reads_ranges_of_many_entries_whole(engine: Engine, space: Space) -> None:
    """More entries than either engine brings at once."""
    pairs = {space.key(b"%05d" % number): bytes(100) for number in range(6_000)}
    fill(engine, pairs)
    forwards, backwards = engine.run(
        lambda tr: (tr.range_many([space.whole]), tr.range_many([space.whole], reverse=True))
    )
    assert forwards == [sorted(pairs.items())]
    assert backwards == [sorted(pairs.items(), reverse=True)]


def test_get_many_of_no_keys_is_empty(engine: Engine, space: Space) -> None:
    assert engine.run(lambda tr: tr.get_many([])) == []


@pytest.mark.parametrize("view", ["serializable", "snapshot"])
def test_a_transaction_sees_its_own_writes(engine: Engine, space: Space, view: str) -> None:
    fill_letters(engine, space, "abcd")

    def work(tr: Transaction) -> tuple[list[bytes | None], list[tuple[bytes, bytes]]]:
        tr.set(space.key(b"a"), b"new")
        tr.clear(space.key(b"b"))
        tr.clear_range(space.key(b"c"), space.key(b"d"))
        tr.set(space.key(b"e"), b"e")
        reader: Reader = tr if view == "serializable" else tr.snapshot
        keys = [space.key(letter) for letter in (b"a", b"b", b"c", b"d", b"e")]
        assert [reader.get(key) for key in keys] == reader.get_many(keys)
        return reader.get_many(keys), list(reader.range(*space.whole))

    expected = [(space.key(b"a"), b"new"), (space.key(b"d"), b"d"), (space.key(b"e"), b"e")]
    values, pairs = engine.run(work)
    assert values == [b"new", None, None, b"d", b"e"]
    assert pairs == expected
    assert contents(engine, space) == expected


def test_a_transaction_sees_its_atomics_on_top_of_stored_values(engine: Engine, space: Space) -> None:
    fill(engine, {space.key(b"a"): number(40)})

    def work(tr: Transaction) -> tuple[bytes | None, list[tuple[bytes, bytes]]]:
        tr.add(space.key(b"a"), 1)
        tr.add(space.key(b"a"), 1)
        tr.add(space.key(b"b"), 7)
        return tr.get(space.key(b"a")), list(tr.snapshot.range(*space.whole))

    value, pairs = engine.run(work)
    assert value == number(42)
    assert pairs == [(space.key(b"a"), number(42)), (space.key(b"b"), number(7))]
    assert contents(engine, space) == pairs


def test_own_writes_are_merged_into_scans_in_both_directions_with_limits(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "aceg")

    def work(tr: Transaction) -> list[str]:
        for letter in (b"b", b"d", b"f"):
            tr.set(space.key(letter), letter)
        tr.clear(space.key(b"c"))
        tr.atomic(Atomic.BYTE_MAX, space.key(b"h"), b"h")
        scans = [
            tr.range(*space.whole, limit=limit, reverse=reverse) for reverse in (False, True) for limit in (0, 1, 3, 6)
        ]
        return [letters_of(space, scan) for scan in scans]

    assert engine.run(work) == ["abdefgh", "a", "abd", "abdefg", "hgfedba", "h", "hgf", "hgfedb"]


def test_own_writes_behind_a_running_scan_do_not_disturb_it(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "abcd")

    def work(tr: Transaction) -> str:
        seen = []
        for pair in tr.range(*space.whole):
            seen.append(pair)
            tr.clear(pair[0])
        return letters_of(space, seen)

    assert engine.run(work) == "abcd"
    assert contents(engine, space) == []


def test_an_error_in_the_work_is_passed_on_and_nothing_is_written(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> None:
        tr.set(space.key(b"a"), b"1")
        raise LookupError("no such section")

    with pytest.raises(LookupError, match="no such section"):
        engine.run(work)
    assert contents(engine, space) == []


def test_a_transaction_cannot_be_used_after_its_run(engine: Engine, space: Space) -> None:
    kept = engine.run(lambda tr: tr)
    with pytest.raises(TransactionCancelledError):
        kept.get(space.key(b"a"))
    with pytest.raises(TransactionCancelledError):
        list(kept.range(*space.whole))
    with pytest.raises(TransactionCancelledError):
        kept.set(space.key(b"a"), b"1")


def test_the_approximate_size_grows_with_the_writes(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> list[int]:
        sizes = [tr.approximate_size()]
        tr.set(space.key(b"a"), b"x" * 1000)
        sizes.append(tr.approximate_size())
        tr.clear_range(*space.whole)
        sizes.append(tr.approximate_size())
        tr.add(space.key(b"b"), 1)
        sizes.append(tr.approximate_size())
        return sizes

    empty, *grown = engine.run(work)
    assert empty < 100
    assert grown[0] >= empty + 1000 + len(space.key(b"a"))
    assert sorted(grown) == grown
    assert len(set(grown)) == len(grown)


def test_concurrent_runs_share_nothing(engine: Engine, space: Space) -> None:
    meet = threading.Barrier(4, timeout=30)

    def work(tr: Transaction) -> str:
        name = threading.current_thread().name.encode()
        tr.read_version()
        tr.set(space.key(b"own/" + name), name)
        meet.wait()
        return letters_of(space, tr.snapshot.range(space.key(b"own/"), space.key(b"own0")))

    with ThreadPoolExecutor(4, thread_name_prefix="t") as pool:
        seen = [future.result() for future in [pool.submit(engine.run, work, NO_RETRY) for _ in range(4)]]
    assert sorted(seen) == sorted(f"own/t_{number}" for number in range(4))
