"""Terms: the same words give the same numbers in any context."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.facts.words import (
    QUESTION_TERMS_MAX,
    TITLES_CHARACTERS_MAX,
    Lexicon,
    pairs,
    question,
    readable_name,
    titles_above,
)


@pytest.mark.parametrize(
    ("word", "variant"),
    [
        ("policies", "policy"),
        ("contracts", "contracting"),
        ("recorded", "records"),
        ("obligation", "obligations"),
        ("employees", "employee"),
    ],
)
def test_endings_make_no_difference(word: str, variant: str) -> None:
    assert Lexicon().terms(word) == Lexicon().terms(variant)


@pytest.mark.parametrize(
    ("word", "other_word"), [("gas", "gab"), ("2015", "2016"), ("status", "state"), ("§4a", "§4b")]
)
def test_different_words_are_different_terms(word: str, other_word: str) -> None:
    assert Lexicon().terms(word) != Lexicon().terms(other_word)


def test_case_punctuation_and_stop_words_make_no_difference() -> None:
    lexicon = Lexicon()
    assert lexicon.terms("The CONTRACTS, of 2015!") == lexicon.terms("contract 2015")
    assert lexicon.terms("a _ of it, I") == []
    assert lexicon.terms("section 4.2.1") == lexicon.terms("sections 4 (2) 1")


def test_terms_never_change_so_that_old_stores_stay_readable() -> None:
    assert Lexicon().terms("Keepers of herons") == [3086136914, 3228743794]
    assert list(pairs(Lexicon().terms("Keepers of herons"))) == [723083340]


def test_neighbours_in_another_order_are_a_different_pair() -> None:
    assert question("heron keeper").pairs != question("keeper heron").pairs
    assert question("heron").pairs == ()


@given(st.text(max_size=200))
def test_any_text_has_terms(text: str) -> None:
    terms = Lexicon().terms(text)
    assert all(0 <= term < 1 << 32 for term in terms)
    assert set(question(text).terms) == set(terms)


def test_the_number_of_words_in_a_question_is_bounded() -> None:
    asked = question(" ".join(f"word{number}" for number in range(20_000)))
    assert len(asked.terms) == len(asked.pairs) == QUESTION_TERMS_MAX


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("https://example.org/docs/NonDisclosureAgreement%20v2.pdf", {"Non", "Disclosure", "Agreement", "v2"}),
        ("12 CFR 4.2", {"12", "CFR", "4.2"}),
        ("", set()),
        ("/", set()),
    ],
)
def test_the_name_of_a_source_is_split_into_words(source: str, words: set[str]) -> None:
    assert words <= set(readable_name(source).split())


def test_a_fact_has_as_many_words_of_its_titles_as_fit() -> None:
    assert titles_above("Act", ["Part I", "Keepers"]) == ("Act", "Part I", "Keepers")
    titles = titles_above("x" * 990, ["y" * 20, "z"])
    assert sum(map(len, titles)) == TITLES_CHARACTERS_MAX
    assert titles[0] == "x" * 990
