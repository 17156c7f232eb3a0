"""Sets of keys as ranges, checked against a plain set of numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drillcore_fdb.embedded.ranges import RangeSet

NUMBERS = range(24)
SPANS = st.tuples(st.sampled_from(NUMBERS), st.sampled_from(NUMBERS)).filter(lambda span: span[0] != span[1])
STEPS = st.lists(st.tuples(st.sampled_from(["add", "remove"]), SPANS), max_size=20)


def key(number: int) -> bytes:
    return bytes([number])


def play(steps: list[tuple[str, tuple[int, int]]]) -> tuple[RangeSet, set[int]]:
    ranges, model = RangeSet(), set[int]()
    for step, span in steps:
        begin, end = min(span), max(span)
        if step == "add":
            ranges.add(key(begin), key(end))
            model |= set(range(begin, end))
        else:
            ranges.remove(key(begin), key(end))
            model -= set(range(begin, end))
    return ranges, model


@given(STEPS)
def test_a_set_holds_the_keys_that_were_added_and_not_removed_since(steps: list[tuple[str, tuple[int, int]]]) -> None:
    ranges, model = play(steps)
    for number in NUMBERS:
        assert (key(number) in ranges) == (number in model)
        assert (key(number) + b"\0" in ranges) == (number in model), (
            "keys between two numbers belong to the lower number"
        )
    assert bool(ranges) == bool(model)


@given(STEPS)
def test_the_ranges_are_in_order_do_not_touch_and_cover_the_same_keys(
    steps: list[tuple[str, tuple[int, int]]],
) -> None:
    ranges, model = play(steps)
    found = list(ranges)
    assert {number for begin, end in found for number in range(begin[0], end[0])} == model
    bounds = [bound for span in found for bound in span]
    assert bounds == sorted(set(bounds)), "ranges are empty, out of order, or touch"


@given(STEPS, SPANS)
def test_overlapping_ranges_are_those_that_share_a_key(
    steps: list[tuple[str, tuple[int, int]]], span: tuple[int, int]
) -> None:
    ranges, _ = play(steps)
    begin, end = key(min(span)), key(max(span))
    assert ranges.overlapping(begin, end) == [(b, e) for b, e in ranges if b < end and begin < e]
