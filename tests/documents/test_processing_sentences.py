"""Sentences, units and claims of legal text have exact bounds and end where a reader would end them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.documents.processors.claims import Claim, ClaimSplitter
from drillcore_server.documents.processors.keywords import guess_language, lower
from drillcore_server.documents.processors.sentences import UNIT_CHARACTERS_MAX, WINDOW_CHARACTERS, sentences, units
from drillcore_server.storage.ids import Span

LEGAL_PIECES = st.sampled_from(
    [
        "The firm must act",
        ". ",
        "; ",
        ":\n",
        "\n(a) ",
        "(ii) ",
        "\n\n",
        " and it shall stop",
        "Art. 6",
        "\r\n",
        "“",
        " ",
        "3. ",
        "İ",
    ]
)
TEXTS = st.text(max_size=200) | st.lists(LEGAL_PIECES, max_size=40).map("".join)


def cut(text: str, language: str = "en") -> list[str]:
    return [text[start:end] for start, end in sentences(text, language)]


def split_claims(text: str, start: int = 0) -> list[Claim]:
    return ClaimSplitter(text).split(Span(start, len(text)))


def claims_of(text: str) -> list[tuple[str, str | None]]:
    return [(claim.span.of(text), claim.lead.of(text) if claim.lead else None) for claim in split_claims(text)]


@pytest.mark.parametrize(
    "text",
    [
        "See 12 U.S.C. 1701 et seq. for the definition.",
        "The measures in Art. 6 and No. 5 apply to Acme Corp. in full.",
        "1.2.Guidance.1. Chapters 7 to 9 deal with customers.",
        "The firm must keep records\nfor five years.",
        "It is described in paragraph\n(b) of this section.",
    ],
)
def test_one_sentence_stays_whole(text: str) -> None:
    assert cut(text) == [text]


def test_sentences_of_a_list_item_are_separated() -> None:
    assert cut("(a) A firm must not act. It shall report.") == ["(a) A firm must not act.", "It shall report."]


def test_list_items_and_paragraphs_begin_anew_even_in_lower_case() -> None:
    text = "It applies to:\n(a) banks; and\n(b) insurers.\n \nnothing else"
    assert cut(text) == ["It applies to:", "(a) banks; and", "(b) insurers.", "nothing else"]


def test_abbreviations_are_those_of_the_language() -> None:
    text = "Die Meldung ist z. B. nach Abs. 3 nötig. Der Verantwortliche muss sie abgeben."
    assert guess_language(text) == "de"
    assert cut(text, "de") == [
        "Die Meldung ist z. B. nach Abs. 3 nötig.",
        "Der Verantwortliche muss sie abgeben.",
    ]


def test_a_short_list_stays_with_its_introduction() -> None:
    text = "A firm must:\n(a) keep records; and\n(b) train staff.\nIt may appeal."
    found = [text[unit.start : unit.end] for unit in units(text, text.lower(), "en")]
    assert found == ["A firm must:\n(a) keep records; and\n(b) train staff.", "It may appeal."]


def test_items_of_a_long_list_are_fragments() -> None:
    text = "A firm must:\n" + "".join(f"({letter}) {'keep every record ' * 6};\n" for letter in "abcde")
    text += "(f) file every return."
    found = units(text, text.lower(), "en")
    assert len(found) == 7
    assert all(unit.fragment for unit in found)


def test_a_claim_is_a_single_assertion() -> None:
    text = "A firm must inform the Regulator, and the Regulator may publish the notice."
    assert [claim for claim, _ in claims_of(text)] == [
        "A firm must inform the Regulator",
        "the Regulator may publish the notice.",
    ]


def test_coordinated_nouns_are_one_claim() -> None:
    text = "Banks, insurers and the brokers they own must file reports and returns."
    assert [claim for claim, _ in claims_of(text)] == [text]


def test_items_within_a_sentence_are_claims_that_know_their_introduction() -> None:
    text = "A firm must: (a) keep records for six years; (b) report breaches; and (c) train its staff."
    assert claims_of(text) == [
        ("A firm must:", None),
        ("(a) keep records for six years;", "A firm must:"),
        ("(b) report breaches;", "A firm must:"),
        ("(c) train its staff.", "A firm must:"),
    ]


def test_items_after_a_nested_list_belong_to_the_outer_introduction() -> None:
    text = "A firm must:\n(a) stop if it:\n(i) fails; or\n(ii) falls.\n(b) go on.\nThe Regulator decides."
    assert claims_of(text) == [
        ("A firm must:", None),
        ("(a) stop if it:", "A firm must:"),
        ("(i) fails; or", "(a) stop if it:"),
        ("(ii) falls.", "(a) stop if it:"),
        ("(b) go on.", "A firm must:"),
        ("The Regulator decides.", None),
    ]


def test_spans_of_claims_count_in_the_document() -> None:
    document = "Preamble. A firm must act at once; it may also wait for instructions."
    start = document.index("A firm")
    found = [claim.span.of(document) for claim in split_claims(document, start)]
    assert found == ["A firm must act at once;", "it may also wait for instructions."]


@given(TEXTS)
def test_lower_case_keeps_offsets(text: str) -> None:
    assert len(lower(text)) == len(text)


@given(TEXTS)
def test_sentences_leave_out_nothing_but_white_space(text: str) -> None:
    found = sentences(text, "en")
    assert "".join("".join(text[start:end].split()) for start, end in found) == "".join(text.split())
    assert all(left[1] <= right[0] for left, right in pairwise(found))


@given(TEXTS)
def test_units_leave_out_nothing_but_white_space_and_are_never_too_long(text: str) -> None:
    found = units(text, lower(text), "en")
    assert "".join("".join(text[unit.start : unit.end].split()) for unit in found) == "".join(text.split())
    assert all(0 < unit.end - unit.start <= UNIT_CHARACTERS_MAX for unit in found)


@given(TEXTS, st.integers(0, 200))
def test_claims_are_in_order_and_within_the_part(text: str, start: int) -> None:
    start = min(start, len(text))
    claims = split_claims(text, start)
    bounds = [place for claim in claims for place in (claim.span.start, claim.span.end)]
    assert bounds == sorted(bounds)
    assert all(start <= place <= len(text) for place in bounds)
    assert all(claim.lead is None or claim.lead.end <= claim.span.start for claim in claims)


def test_text_longer_than_a_window_is_segmented_whole() -> None:
    text = "The firm must act at once. " * (WINDOW_CHARACTERS // 9)
    found = cut(text)
    assert "".join(found).replace(" ", "") == text.replace(" ", "")
    assert found.count("The firm must act at once.") > 0.99 * len(found)
