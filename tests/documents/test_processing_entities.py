"""Entities: which are found, under which value, and that no text makes the patterns slow."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.documents.processors.entities import ENTITIES_MAX, ENTITY_TYPES, entities_of, mentions


def found(type_: str, text: str) -> list[str]:
    return [entity.value for entity in entities_of(mentions(text)) if entity.type == type_]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("in force from 2024-03-12.", "2024-03-12"),
        ("on 12 March 2024", "2024-03-12"),
        ("on the 12th of March 2024", "2024-03-12"),
        ("this 3rd day of May, 2017", "2017-05-03"),
        ("March 5, 2021", "2021-03-05"),
        ("since Sept. 2019", "2019-09"),
        ("in March 2024", "2024-03"),
        ("am 12. März 2024", "2024-03-12"),
        ("le 1 août 2022", "2022-08-01"),
        ("vom 12.03.2024", "2024-03-12"),
        ("for Q3 2023", "2023-Q3"),
        ("the third quarter of 2023", "2023-Q3"),
    ],
)
def test_dates_are_as_precise_as_the_text(text: str, value: str) -> None:
    assert found("date", text) == [value]


@pytest.mark.parametrize(
    "text", ["31 June 2024", "2024-13-01", "we may 2000 times", "Order 1234", "version 1.2.2020.7"]
)
def test_an_impossible_date_is_no_date(text: str) -> None:
    assert found("date", text) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("fines of EUR 20 million", "EUR 20000000"),
        ("20 000 000 EUR", "EUR 20000000"),
        ("€20m", "EUR 20000000"),
        ("a fee of $1,500.50 is due", "USD 1500.5"),
        ("US$ 5bn", "USD 5000000000"),
        ("250 dollars", "USD 250"),
        ("4 % of turnover", "4%"),
        ("a 15-percent average", "15%"),
        ("0.5 per cent", "0.5%"),
    ],
)
def test_amounts_have_one_form(text: str, value: str) -> None:
    assert found("amount", text) == [value]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("see 21 CFR 11.10(e).", "21 CFR 11.10(e)"),
        ("see 21 C.F.R. § 11.10(e)", "21 CFR 11.10(e)"),
        ("21 CFR Part 11", "21 CFR Part 11"),
        ("12 U.S.C. 1701 et seq.", "12 USC 1701"),
        ("Art. 6(1)(f)", "Article 6(1)(f)"),
        ("§ 164.312(a)(1)", "§ 164.312(a)(1)"),
        ("Rule \u200e3.2.1 applies", "Rule 3.2.1"),
        ("RFC 6962", "RFC 6962"),
        ("ISO 27001:2022", "ISO 27001:2022"),
        ("Directive 95/46/EC", "Directive 95/46/EC"),
        ("Regulation (EU) 2016/679", "Regulation (EU) 2016/679"),
        ("Regulation (EC) No 45/2001", "Regulation (EC) 45/2001"),
        ("under the Companies Act 2006", "Companies Act 2006"),
        ("section 12 applies", "Section 12"),
    ],
)
def test_references_to_regulations_have_one_form(text: str, value: str) -> None:
    assert found("regulation", text) == [value]


@pytest.mark.parametrize("text", ["Article 17 GDPR", "Article 17 of the GDPR", "Art. 17 of the GDPR"])
def test_an_article_names_its_regulation(text: str) -> None:
    assert found("regulation", text) == ["Article 17 GDPR", "GDPR"]


def test_a_section_names_its_act() -> None:
    text = "Section 5.2 of the Companies Act 2006"
    assert found("regulation", text) == ["Companies Act 2006", "Section 5.2 of the Companies Act 2006"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "The European Commission and the European Banking Authority",
            ["European Banking Authority", "European Commission"],
        ),
        ("the Department of Health and Human Services", ["Department of Health and Human Services"]),
        ("Acme Widgets, Inc. and Siemens GmbH agree", ["Acme Widgets Inc", "Siemens GmbH"]),
        ('the Abu Dhabi Global Market ("ADGM") is', ["ADGM", "Abu Dhabi Global Market"]),
        ("the FDA may inspect", ["FDA"]),
    ],
)
def test_organisations(text: str, names: list[str]) -> None:
    assert found("organisation", text) == names


@pytest.mark.parametrize(
    "text",
    [
        "A Relevant Person must appoint a Money Laundering Reporting Officer (MLRO).",
        "The Commission may decide.",
        "each Company Service Provider",
        "ADMINISTRATIVE COUNCIL RULES",
        "SECURITY of the SECTOR",
    ],
)
def test_a_defined_term_is_no_organisation(text: str) -> None:
    assert found("organisation", text) == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("signed by Dr. Jane Doe today", ["Jane Doe"]),
        ("Mr Smith objected", ["Smith"]),
        ("the John F. Kennedy airport", ["John F. Kennedy"]),
        ("Part A. General", []),
        ("as in Schedule B. The firm", []),
    ],
)
def test_persons_are_found_conservatively(text: str, names: list[str]) -> None:
    assert found("person", text) == names


def test_addresses_lose_the_punctuation_of_their_sentence() -> None:
    text = "Write to Privacy@Example.org (see https://Example.org/Rules?x=1)."
    assert found("email", text) == ["privacy@example.org"]
    assert found("url", text) == ["https://example.org/Rules?x=1"]


def test_each_entity_comes_once_and_sorted() -> None:
    found_in = entities_of(mentions("RFC 6962, RFC 9162, RFC 6962 and EUR 5, EUR 5.00"))
    assert [entity.value for entity in found_in] == ["EUR 5", "RFC 6962", "RFC 9162"]


def test_entities_of_a_chunk_are_bounded() -> None:
    text = " ".join(f"RFC {number}" for number in range(1000, 2000))
    assert len(entities_of(mentions(text))) == ENTITIES_MAX


@given(st.text(max_size=300))
def test_any_text_has_entities_of_known_types_only(text: str) -> None:
    assert all(entity.type in ENTITY_TYPES and entity.value for entity in entities_of(mentions(text)))


@pytest.mark.parametrize(
    "piece",
    ["A", "A ", "Aa ", "9", "9,", "1.", "(", "$", "$9 ", "a@a.", "a@", "www.", "Art. ", "Section 1 of the A ", "Mr A. ",
     "Aa B. ", "21 CFR ", "§", "12 March ", "1999 ", "of the A ", "A, Inc ", "\u200e", "Regulation (EU) "],
)  # fmt: skip
def test_time_grows_no_faster_than_the_text(piece: str) -> None:
    """Eight times the text may take up to sixteen times as long. A quadratic pattern always takes 64 times as long.

    The best of several rounds counts, since a busy machine may slow down either measurement.
    """
    small, large = (piece * (size // len(piece)) for size in (8_000, 64_000))
    best_small_s = best_large_s = float("inf")
    for _ in range(10):
        best_small_s, best_large_s = min(best_small_s, seconds_for(small)), min(best_large_s, seconds_for(large))
        if best_large_s < 16 * max(best_small_s, 0.002):
            return
    pytest.fail(f"{best_small_s} s for {len(small)} characters, {best_large_s} s for {len(large)}")


def seconds_for(text: str) -> float:
    begun = time.thread_time()
    mentions(text)
    return time.thread_time() - begun
