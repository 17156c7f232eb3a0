"""The labels and keywords of communities."""

from __future__ import annotations

from drillcore_server.communities.community_plan import keywords_of, labels, opening_of

FISH = ["The salmon fishery opens in spring.", "A salmon fishery pays a licence fee.", "Licence fees fund the weir."]


def test_words_that_the_texts_share_are_the_first_keywords() -> None:
    found = keywords_of(FISH)
    assert found[0] == "salmon fishery"
    assert "the" not in found


def test_no_phrase_spans_two_texts() -> None:
    assert "weir salmon" not in keywords_of(
        ["They built a weir", "salmon passed", "They built a weir", "salmon passed"]
    )


def test_a_label_is_made_of_the_first_keywords() -> None:
    assert list(labels([(("salmon", "weir", "licence", "fee"), "The salmon")])) == ["salmon, weir, licence"]


def test_equal_keywords_give_different_labels() -> None:
    words = ("salmon", "weir", "licence", "fee")
    found = list(labels([(words, "")] * 4))
    assert found == [
        "salmon, weir, licence",
        "salmon, weir, licence, fee",
        "salmon, weir, licence (2)",
        "salmon, weir, licence (3)",
    ]


def test_texts_without_keywords_are_labelled_by_their_first_words() -> None:
    assert keywords_of(["12 34 56 to be or not to be"]) == ()
    assert list(labels([((), "12 34 56"), ((), "12 34 56")])) == ["12 34 56", "12 34 56 (2)"]


def test_an_opening_ends_between_words() -> None:
    assert opening_of("short  and\nsweet") == "short and sweet"
    assert opening_of("word " * 40) == "word " * 11 + "word ..."
    assert opening_of("x" * 100) == "x" * 60 + " ..."
