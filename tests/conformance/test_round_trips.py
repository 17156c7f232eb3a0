"""Both engines count the round trips of a transaction alike."""

from collections.abc import Callable

from drillcore_fdb.engine import Engine, KeySelector, RangeRead, Streaming, Transaction
from drillcore_fdb.round_trips import counted
from tests.conformance.staging import Space, commits_despite


def trips(engine: Engine, work: Callable[[Transaction], object]) -> int:
    with counted() as total:
        engine.run(work)
    return total.count


def fill(engine: Engine, space: Space, count: int, value: bytes = b"value") -> None:
    engine.run(lambda tr: [tr.set(space.key(b"%04d" % number), value) for number in range(count)])


def test_a_read_costs_the_read_version_and_itself(engine: Engine, space: Space) -> None:
    assert trips(engine, lambda tr: tr.get(space.key(b"a"))) == 2


def test_reads_one_after_the_other_cost_one_each(engine: Engine, space: Space) -> None:
    assert trips(engine, lambda tr: [tr.get(space.key(name)) for name in (b"a", b"b", b"c")]) == 4


def test_reads_that_are_asked_for_together_cost_one(engine: Engine, space: Space) -> None:
    assert trips(engine, lambda tr: tr.get_many([space.key(name) for name in (b"a", b"b", b"c")])) == 2


def test_ranges_that_are_asked_for_together_cost_one(engine: Engine, space: Space) -> None:
    fill(engine, space, 10)
    ranges = [(space.key(b"%04d" % number), space.key(b"%04d" % (number + 1))) for number in range(10)]
    assert trips(engine, lambda tr: tr.range_many(ranges)) == 2
    assert trips(engine, lambda tr: [list(tr.range(begin, end)) for begin, end in ranges]) == 11


def test_what_was_read_before_in_the_transaction_costs_nothing(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> None:
        tr.snapshot.get_many([space.key(b"a"), space.key(b"b")])
        assert tr.get(space.key(b"a")) is None
        for _ in range(2):
            tr.range_many([(space.key(b"c"), space.key(b"d"))], limit=1, reverse=True)

    assert trips(engine, work) == 3


def test_keys_and_ranges_of_different_kinds_are_read_ahead_in_one(engine: Engine, space: Space) -> None:
    fill(engine, space, 100, bytes(1_000))
    ranges = [(space.key(b"0010"), space.key(b"0012")), (space.key(b"0050"), space.key(b"0060"))]

    def work(tr: Transaction) -> None:
        ahead = [RangeRead(*ranges[0]), RangeRead(*ranges[1], limit=1, reverse=True), RangeRead(b"b", b"a")]
        tr.read_ahead([space.key(b"0001"), space.key(b"missing")], ahead)
        assert tr.get_many([space.key(b"missing"), space.key(b"0001")]) == [None, bytes(1_000)]
        assert [len(found) for found in tr.range_many(ranges[:1])] == [2]
        assert [len(found) for found in tr.range_many(ranges[1:], limit=1, reverse=True)] == [1]

    assert trips(engine, work) == 2


def test_of_a_large_range_the_first_page_is_read_ahead(engine: Engine, space: Space) -> None:
    fill(engine, space, 400, bytes(1_000))

    def work(tr: Transaction) -> None:
        tr.read_ahead([], [RangeRead(*space.whole)])
        tr.range_many([space.whole])

    assert trips(engine, work) == 1 + 6


def test_what_the_transaction_wrote_costs_nothing_to_read(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> None:
        tr.set(space.key(b"a"), b"1")
        tr.clear(space.key(b"b"))
        assert tr.get_many([space.key(b"a"), space.key(b"b")]) == [b"1", None]

    assert trips(engine, work) == 1  # the commit


def test_a_commit_costs_one_only_if_something_was_written(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> None:
        tr.get(space.key(b"a"))
        tr.set(space.key(b"b"), b"1")

    assert trips(engine, work) == 3
    assert trips(engine, lambda _tr: None) == 0


def test_the_read_version_costs_one_and_only_once(engine: Engine, space: Space) -> None:
    def work(tr: Transaction) -> None:
        tr.read_version()
        tr.get_key(KeySelector.first_greater_or_equal(space.key(b"a")))
        tr.snapshot.read_version()

    assert trips(engine, work) == 2


def test_a_large_range_costs_one_for_each_page(engine: Engine, space: Space) -> None:
    fill(engine, space, 400, bytes(1_000))
    begin, end = space.whole
    assert trips(engine, lambda tr: list(tr.range(begin, end, streaming=Streaming.WANT_ALL))) == 1 + 6
    assert trips(engine, lambda tr: tr.range_many([(begin, end), (begin, space.key(b"0001"))])) == 1 + 6
    assert trips(engine, lambda tr: next(iter(tr.range(begin, end)))) == 1 + 1
    first_five = [space.key(b"%04d" % number) for number in range(5)]
    assert trips(engine, lambda tr: [next(iter(tr.range(key, end))) for key in first_five]) == 1 + 5


def test_each_run_of_a_transaction_counts(engine: Engine, space: Space) -> None:
    runs: list[int] = []

    def work(tr: Transaction) -> None:
        tr.get(space.key(b"a"))
        runs.append(0)
        if len(runs) == 1:
            engine.run(lambda other: other.set(space.key(b"a"), b"other"))
        tr.set(space.key(b"b"), b"1")

    with counted() as total:
        engine.run(work)
    assert len(runs) == 2
    assert (total.count, total.transactions) == (3 + 1 + 3, 3)


def test_a_block_inside_another_counts_for_both(engine: Engine, space: Space) -> None:
    with counted() as outer:
        engine.run(lambda tr: tr.get(space.key(b"a")))
        with counted() as inner:
            engine.run(lambda tr: tr.get(space.key(b"a")))
    assert (inner.count, outer.count) == (2, 4)


def test_a_scan_that_reads_ahead_gives_every_entry_once(engine: Engine, space: Space) -> None:
    fill(engine, space, 1_000, bytes(200))
    begin, end = space.whole
    expected = [space.key(b"%04d" % number) for number in range(1_000)]
    for reverse in (False, True):
        found = engine.run(lambda tr, r=reverse: [key for key, _ in tr.snapshot.range(begin, end, reverse=r)])  # type: ignore[misc]
        assert found == (expected[::-1] if reverse else expected)
        some = engine.run(lambda tr, r=reverse: list(tr.snapshot.range(begin, end, reverse=r, limit=333)))  # type: ignore[misc]
        assert len(some) == 333


def test_a_serializable_scan_conflicts_only_with_what_it_consumed(engine: Engine, space: Space) -> None:
    fill(engine, space, 1_000, bytes(200))

    def look_at_first(tr: Transaction) -> None:
        next(iter(tr.range(*space.whole)))
        tr.set(space.key(b"z"), b"")

    assert commits_despite(engine, look_at_first, lambda tr: tr.set(space.key(b"0999"), b"changed"))
    assert not commits_despite(engine, look_at_first, lambda tr: tr.set(space.key(b"0000"), b"changed"))
