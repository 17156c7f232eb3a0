"""Which texts can have vectors, and how batches are split into portions."""

from __future__ import annotations

import pytest

from drillcore_server.vectors.embedding.embedders import (
    TEXT_CHARACTERS_MAX,
    TextProblem,
    TextRefused,
    check_texts,
    portions,
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", TextProblem.EMPTY),
        (" \n\t\u00a0\u2003", TextProblem.EMPTY),
        ("x" * (TEXT_CHARACTERS_MAX + 1), TextProblem.TOO_LONG),
        ("half a pair: \ud83d", TextProblem.NOT_UNICODE),
    ],
)
def test_a_text_without_a_vector_is_refused_with_its_position(text: str, problem: TextProblem) -> None:
    with pytest.raises(TextRefused) as refused:
        check_texts(["good", text, "good"])
    assert (refused.value.problem, refused.value.position) == (problem, 1)


def test_a_refusal_does_not_repeat_the_text() -> None:
    with pytest.raises(TextRefused) as refused:
        check_texts(["confidential \ud83d"])
    assert "confidential" not in str(refused.value)


def test_the_longest_allowed_text_and_odd_characters_pass() -> None:
    check_texts(["x" * TEXT_CHARACTERS_MAX, "\x00", "\u200b", "🙂", "مرحبا"])


def test_one_string_is_not_taken_for_a_batch_of_letters() -> None:
    with pytest.raises(TypeError):
        check_texts("letters")


def test_portions_keep_order_and_stay_within_both_limits() -> None:
    texts = ["a" * size for size in (3, 3, 3, 20, 1, 1, 1, 1)]
    cut = list(portions(texts, texts_max=3, characters_max=8))
    assert [text for portion in cut for text in portion] == texts
    assert [[len(text) for text in portion] for portion in cut] == [[3, 3], [3], [20], [1, 1, 1], [1]]


def test_no_texts_give_no_portions() -> None:
    assert list(portions([], 1, 1)) == []
