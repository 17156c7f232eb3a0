"""Headers of the Context Relay Protocol: the exact form of each header, and when it is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.envelopes.headers import (
    SLUG_CHARACTERS_MAX,
    Miss,
    cache_status,
    headers,
    not_modified_headers,
    refused_quality_headers,
    saturation_text,
    slug,
)
from drillcore_server.envelopes.model import (
    Budget,
    Candidate,
    Envelope,
    GroundingMode,
    Quality,
    QualityTier,
    RenderFormat,
    Weights,
)
from tests.support.data.envelope_candidates import TODAY, candidate, packing

SECRET = "The password of the vault is swordfish."


def envelope(*included: Candidate, saturation: float = 0.994, tokens: int = 105_816) -> Envelope:
    return Envelope(
        session="session of André",
        window=1,
        packing=replace(packing(included, tokens=tokens), text=SECRET),
        provenance={},
        available=312,
        budget=Budget(106_454),
        quality=Quality(QualityTier.A, 0.9, 0.9, saturation, 0.9),
        etag="sha256:" + "ab" * 32,
        strategy="direct",
        mode=GroundingMode.CONTEXT_PREFERRED,
        communities=("EU AI Act compliance", "Second"),
        memory_tier_hit=2,
        warnings=("a warning",),
        sub_queries=("a query",),
        time_sensitive=False,
        instruction="Prefer the context.",
        format=RenderFormat.MARKDOWN,
        revisions={},
        policy="cosine-1",
        weights=Weights(0.5, 0.25, 0.15, 0.1, 365),
        relevance_floor=0.5,
        exact=True,
        ranked_on=TODAY,
        tokenizer="o200k_base",
    )


FACTS = [candidate(number, content=SECRET, days_old=10 + number) for number in range(1, 48)]
FULL = {
    "CRP-Context-Quality-Tier": "A",
    "CRP-Context-Saturation": "0.994",
    "CRP-Context-Facts-Used": "47/312",
    "CRP-Context-Tokens-Used": "105816",
    "CRP-Context-Token-Budget": "106454",
    "CRP-Context-ETag": "sha256:" + "ab" * 32,
    "CRP-Context-Cache-Status": "MISS; reason=facts-updated",
    "CRP-Context-Strategy": "direct",
    "CRP-Context-Window": "1/5",
    "CRP-Context-Continuation-Id": "next-1",
    "CRP-Context-Cache": "reuse-ckf",
    "CRP-Memory-Tier-Hit": "2",
    "CRP-Memory-CKF-Hits": "130",
    "CRP-Memory-CKF-Community": "eu-ai-act-compliance",
    "CRP-Memory-Knowledge-Age": "P11D",
}


def test_every_header_has_its_exact_form() -> None:
    made = headers(envelope(*FACTS), ckf_hits=130, miss=Miss.FACTS_UPDATED, continuation_id="next-1")
    assert made == FULL


def test_without_facts_a_community_or_a_further_window_those_headers_are_left_out() -> None:
    bare = replace(envelope(saturation=0.0, tokens=0), communities=())
    made = headers(bare, ckf_hits=0, miss=Miss.NOT_CACHED)
    missing = {"Context-Continuation-Id", "Context-Cache", "Memory-CKF-Community", "Memory-Knowledge-Age"}
    assert set(FULL) - set(made) == {f"CRP-{name}" for name in missing}
    assert made["CRP-Context-Facts-Used"] == "0/312"
    assert made["CRP-Context-Saturation"] == "0.000"


def test_the_community_can_be_kept_out_of_the_headers() -> None:
    made = headers(envelope(*FACTS), ckf_hits=1, miss=Miss.NOT_CACHED, community_shown=False)
    assert "CRP-Memory-CKF-Community" not in made
    assert "compliance" not in str(made)


def test_a_label_without_a_latin_letter_gives_no_header() -> None:
    made = headers(replace(envelope(*FACTS), communities=("个人信息",)), ckf_hits=1, miss=Miss.NOT_CACHED)
    assert "CRP-Memory-CKF-Community" not in made


def test_the_window_header_names_the_window_and_the_largest_number_of_windows() -> None:
    made = headers(replace(envelope(), window=3), ckf_hits=1, miss=Miss.NOT_CACHED, windows_max=8)
    assert made["CRP-Context-Window"] == "3/8"


@pytest.mark.parametrize(("saturation", "reuse"), [(1.0, True), (0.95, True), (0.9499, False), (0.0, False)])
def test_a_full_envelope_asks_for_the_store_to_be_used_again(saturation: float, reuse: bool) -> None:
    made = headers(envelope(*FACTS, saturation=saturation), ckf_hits=1, miss=Miss.NOT_CACHED)
    assert made.get("CRP-Context-Cache") == ("reuse-ckf" if reuse else None)


@pytest.mark.parametrize(
    ("saturation", "miss", "status"),
    [
        (0.70, Miss.NOT_CACHED, "MISS; reason=not-cached"),
        (1.0, Miss.FACTS_UPDATED, "MISS; reason=facts-updated"),
        (1.0, Miss.NO_CACHE, "MISS; reason=no-cache"),
        (1.0, Miss.UNKNOWN_ETAG, "MISS; reason=unknown-etag"),
        (0.6999, Miss.FACTS_UPDATED, "PARTIAL; reason=limited-ckf-coverage"),
    ],
)
def test_the_cache_status_says_why_an_envelope_was_made(saturation: float, miss: Miss, status: str) -> None:
    assert cache_status(saturation, miss) == status


@pytest.mark.parametrize(
    ("saturation", "text"),
    [
        (0.0, "0.000"),
        (0.9996, "0.999"),
        (0.999999999, "0.999"),
        (1.0, "1.000"),
        (0.57, "0.570"),
        (0.29, "0.290"),
        (1e-9, "0.000"),
        (2 / 3, "0.666"),
    ],
)
def test_saturation_has_three_decimals_rounded_down(saturation: float, text: str) -> None:
    assert saturation_text(saturation) == text


@given(st.integers(0, 1_000))
def test_thousandths_are_shown_as_they_are(thousandths: int) -> None:
    assert saturation_text(thousandths / 1_000) == f"{thousandths / 1_000:.3f}"


def test_not_modified_has_the_etag_and_a_hit() -> None:
    assert not_modified_headers("sha256:abc") == {
        "CRP-Status": "304",
        "CRP-Context-ETag": "sha256:abc",
        "CRP-Context-Cache-Status": "HIT",
    }


def test_a_refused_quality_names_the_best_tier() -> None:
    assert refused_quality_headers(QualityTier.B) == {"CRP-Status": "503", "CRP-Context-Quality-Tier": "B"}


def test_the_age_header_is_the_age_of_the_newest_fact_of_the_store() -> None:
    answer = candidate(99, is_answer=True)
    made = headers(envelope(*FACTS, answer), ckf_hits=1, miss=Miss.NOT_CACHED)
    assert made["CRP-Memory-Knowledge-Age"] == "P11D"
    today = headers(envelope(candidate(1)), ckf_hits=1, miss=Miss.NOT_CACHED)
    assert today["CRP-Memory-Knowledge-Age"] == "P0D"


@pytest.mark.parametrize(
    ("label", "told"),
    [
        ("EU AI Act compliance", "eu-ai-act-compliance"),
        ("Électronique & données", "electronique-donnees"),
        ("  --a--b--  ", "a-b"),
        ("evil\r\nSet-Cookie: x", "evil-set-cookie-x"),
        ("!?", ""),
        ("", ""),
        ("word " * 40, "word-" * 12 + "word"),
        ("abc " * 40, "abc-" * 15 + "abc"),
    ],
)
def test_a_label_becomes_a_slug(label: str, told: str) -> None:
    assert slug(label) == told


CONTENT = ("swordfish", "session of", "warning", "query")
"""Words of the envelope's facts and texts. A label may be in a header, so labels have none of them here."""
labels_without_content = st.text(max_size=100).filter(lambda label: not any(word in slug(label) for word in CONTENT))


@given(st.lists(labels_without_content, max_size=2), st.floats(0, 1), st.integers(0, 3))
def test_values_are_ascii_and_hold_no_content(labels: list[str], saturation: float, tier: int) -> None:
    given_one = replace(envelope(*FACTS[:3], saturation=saturation), communities=tuple(labels), memory_tier_hit=tier)
    made = headers(given_one, ckf_hits=3, miss=Miss.NOT_CACHED)
    assert all(value and value.isascii() and value.isprintable() for value in made.values())
    assert len(made.get("CRP-Memory-CKF-Community", "")) <= SLUG_CHARACTERS_MAX
    assert not any(word in str(made) for word in CONTENT)
