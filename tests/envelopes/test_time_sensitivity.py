"""Which queries are time-sensitive, that is, ask for the current state."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.envelopes.scoring_policy import is_time_sensitive

TODAY = date(2026, 5, 24)

SENSITIVE = [
    "What are the current capital requirements?",
    "Which rules currently apply to custodians?",
    "latest guidance on electronic signatures",
    "LATEST guidance",
    "recent enforcement actions",
    "the most recent amendments",
    "Was the rule changed recently?",
    "the newest version of Annex 11",
    "who must report today",
    "what is now required of deployers",
    "changes this year",
    "filings due this\nquarter",
    "incidents of this month",
    "this week's notices",
    "fines of last year",
    "obligations as of now",
    "list of sanctions as of 1 May 2026",
    "status as of today",
    "duties as of the coming Monday",
    "an up-to-date list of approved tokenizers",
    "up to date sanctions list",
    "AI Act obligations 2026",
    "2025 reporting thresholds",
    "the 2025-2026 transition",
    "deadline 2026-08-02",
    "in 2026, who must register?",
    "thresholds for 2026.",
    "(2026) penalties",
    "aktuelle Anforderungen an Validierung",
    "Was gilt derzeit für Cookies?",
    "exigences actuelles",
    "les lignes directrices récentes",
    "Qu'est-ce qui est exigé aujourd'hui ?",
]
TIMELESS = [
    "",
    "   ",
    "What is an electronic signature?",
    "Was the rule of 1999 repealed?",
    "turnover in 2019",
    "the state as of 31 December 2015",
    "plans for 2027",
    "21 CFR 2026.5",
    "21 CFR 2026",
    "Section 2026 of the code",
    "Article 2025",
    "§ 2026",
    "Regulation (EU) 2025/1234",
    "ISO 27001:2025 controls",
    "RFC-2026 process",
    "a fine of $2026",
    "a fine of 2026 EUR",
    "2026 tokens",
    "2026% more",
    "12026 files",
    "20260 files",
    "1,2026",
    "2026.75 units",
    "the Data (Use and Access) Act 2025",
    "concurrent access",
    "what firms must know",
    "nowhere in the document",
    "notify at the latest after 72 hours",
    "leakage current limits of an electric current source",
    "current assets of the fund",
    'when are credit files "current"?',
    "what does “as of today” mean?",
    "How must records be kept up to date?",
    "training for officers to stay current with AML rules",
    "ensure that CDD information remains up to date?",
    "in the last year of the term",
    "the last day",
    "this yearling",
]


@pytest.mark.parametrize("query", SENSITIVE)
def test_a_query_for_the_current_state_is_time_sensitive(query: str) -> None:
    assert is_time_sensitive(query, TODAY)


@pytest.mark.parametrize("query", TIMELESS)
def test_a_query_without_such_a_sign_is_not_time_sensitive(query: str) -> None:
    assert not is_time_sensitive(query, TODAY)


def test_years_count_from_the_day_of_the_query() -> None:
    assert is_time_sensitive("rules of 2019", date(2019, 1, 1))
    assert is_time_sensitive("rules of 2019", date(2020, 12, 31))
    assert not is_time_sensitive("rules of 2019", date(2021, 1, 1))


@given(st.text(max_size=200), st.dates())
def test_any_text_is_classified(query: str, today: date) -> None:
    assert is_time_sensitive(query, today) in {True, False}


def test_a_very_long_text_is_classified_quickly() -> None:
    for piece in ("as of ", '"', "is a b c ", "2026.", "keep up to ", "„"):
        is_time_sensitive(piece * 100_000, TODAY)
