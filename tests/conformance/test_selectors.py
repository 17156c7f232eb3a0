"""Key selectors: keys named by their place among the existing keys."""

import pytest

from drillcore_fdb.engine import KEYS_END, Engine, KeySelector, Reader, Transaction
from tests.conformance.plain_store import PlainStore
from tests.conformance.staging import Space, fill_letters, letters_of

NAMED = {
    "last_less_than": KeySelector.last_less_than,
    "last_less_or_equal": KeySelector.last_less_or_equal,
    "first_greater_than": KeySelector.first_greater_than,
    "first_greater_or_equal": KeySelector.first_greater_or_equal,
}

LETTERS = "bdfhjlnprt"
"""The keys of most tests. Five steps in either direction from the middle stay among them."""


@pytest.mark.parametrize(
    ("name", "at", "expected"),
    [
        ("last_less_than", b"j", b"h"),
        ("last_less_or_equal", b"j", b"j"),
        ("first_greater_than", b"j", b"l"),
        ("first_greater_or_equal", b"j", b"j"),
        ("last_less_than", b"k", b"j"),
        ("last_less_or_equal", b"k", b"j"),
        ("first_greater_than", b"k", b"l"),
        ("first_greater_or_equal", b"k", b"l"),
    ],
)
def test_the_four_selectors_at_a_key_and_between_two(
    engine: Engine, space: Space, name: str, at: bytes, expected: bytes
) -> None:
    fill_letters(engine, space, LETTERS)
    assert engine.run(lambda tr: tr.get_key(NAMED[name](space.key(at)))) == space.key(expected)


@pytest.mark.parametrize("view", ["serializable", "snapshot"])
@pytest.mark.parametrize("name", NAMED)
def test_offsets_step_over_keys_either_way(engine: Engine, space: Space, name: str, view: str) -> None:
    fill_letters(engine, space, LETTERS)
    model = PlainStore({space.key(letter.encode()): b"" for letter in LETTERS})
    selectors = [NAMED[name](space.key(at)) + offset for at in (b"j", b"k") for offset in range(-3, 4)]

    def work(tr: Transaction) -> list[bytes]:
        reader: Reader = tr if view == "serializable" else tr.snapshot
        return [reader.get_key(selector) for selector in selectors]

    assert engine.run(work) == [model.select(selector) for selector in selectors]


@pytest.mark.parametrize("name", NAMED)
def test_selectors_see_own_uncommitted_writes(engine: Engine, space: Space, name: str) -> None:
    fill_letters(engine, space, LETTERS)
    there = [space.key(letter.encode()) for letter in "bdgjkprt"]
    model = PlainStore(dict.fromkeys(there, b""))
    selectors = [NAMED[name](space.key(at)) + offset for at in (b"h", b"j", b"k") for offset in range(-2, 3)]

    def work(tr: Transaction) -> list[bytes]:
        tr.set(space.key(b"g"), b"")
        tr.add(space.key(b"k"), 1)
        tr.clear(space.key(b"h"))
        tr.clear(space.key(b"f"))
        tr.clear_range(space.key(b"l"), space.key(b"o"))
        return [tr.get_key(selector) for selector in selectors]

    assert engine.run(work) == [model.select(selector) for selector in selectors]


def test_a_selector_counts_its_offset_from_its_own_key(engine: Engine, space: Space) -> None:
    first = KeySelector.first_greater_or_equal(space.key(b"a"))
    assert first + 3 - 3 == first
    assert first - 1 == KeySelector.last_less_than(space.key(b"a"))


def test_before_the_first_key_is_the_empty_key(engine: Engine, space: Space) -> None:
    selectors = [KeySelector.last_less_than(b""), KeySelector.first_greater_or_equal(b"") - 5]
    assert engine.run(lambda tr: [tr.get_key(selector) for selector in selectors]) == [b"", b""]


def test_after_the_last_key_is_the_end_of_the_keys(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "a")
    selectors = [KeySelector.first_greater_or_equal(KEYS_END), KeySelector.first_greater_or_equal(KEYS_END) + 5]
    assert engine.run(lambda tr: [tr.get_key(selector) for selector in selectors]) == [KEYS_END, KEYS_END]


def test_the_last_key_of_all_is_below_the_end_of_the_keys(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "a")
    last = engine.run(lambda tr: tr.get_key(KeySelector.last_less_than(KEYS_END)))
    assert space.key(b"a") <= last < KEYS_END


def test_a_step_past_the_own_keys_lands_on_a_foreign_key_or_the_end(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, "ab")
    past = engine.run(lambda tr: tr.get_key(KeySelector.first_greater_than(space.key(b"b"))))
    before = engine.run(lambda tr: tr.get_key(KeySelector.last_less_than(space.key(b"a"))))
    assert space.whole.end <= past <= KEYS_END
    assert before < space.prefix


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [0, 2])
@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        (KeySelector.first_greater_than, KeySelector.first_greater_than, "hjlnp"),
        (KeySelector.first_greater_or_equal, KeySelector.first_greater_or_equal, "fhjln"),
        (KeySelector.last_less_than, KeySelector.last_less_than, "dfhjl"),
        (KeySelector.last_less_or_equal, KeySelector.last_less_or_equal, "fhjln"),
        (lambda key: KeySelector.first_greater_or_equal(key) + 2, KeySelector.last_less_or_equal, "jln"),
        (KeySelector.first_greater_or_equal, lambda key: KeySelector.first_greater_or_equal(key) - 3, "fh"),
        (lambda key: KeySelector.first_greater_or_equal(key) + 5, KeySelector.first_greater_or_equal, ""),
        (lambda key: KeySelector.first_greater_or_equal(key) + 6, KeySelector.first_greater_or_equal, ""),
    ],
)
def test_a_scan_between_selectors(engine, space, begin, end, expected, limit, reverse) -> None:  # type: ignore[no-untyped-def]
    fill_letters(engine, space, LETTERS)
    bounds = begin(space.key(b"f")), end(space.key(b"p"))
    found = engine.run(lambda tr: list(tr.range(*bounds, limit=limit, reverse=reverse)))
    in_order = expected[::-1] if reverse else expected
    assert letters_of(space, found) == (in_order[:limit] if limit else in_order)


def test_a_scan_between_selectors_sees_own_writes(engine: Engine, space: Space) -> None:
    fill_letters(engine, space, LETTERS)
    begin = KeySelector.first_greater_or_equal(space.key(b"f")) + 1
    end = KeySelector.last_less_than(space.key(b"n"))

    def work(tr: Transaction) -> list[str]:
        tr.set(space.key(b"g"), b"")
        tr.clear(space.key(b"l"))
        return [letters_of(space, tr.range(begin, end, reverse=reverse)) for reverse in (False, True)]

    assert engine.run(work) == ["gh", "hg"]
