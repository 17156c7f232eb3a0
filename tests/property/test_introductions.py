"""A text says an introduction once, and a reader who follows references still gets every fact whole."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drillcore_server.envelopes.envelope_text import FactText, frame, render
from drillcore_server.envelopes.model import Candidate, Packing, Ranked, RenderFormat
from drillcore_server.envelopes.token_packer import pack
from drillcore_server.tokenizers.encodings import EncodingName, token_counter
from tests.property.test_packing import SCORES, every_format, every_tokenizer, tokenizer
from tests.support.data.ranked_facts import NASTY, candidate, introduced
from tests.support.data.rendered_facts import as_shown, read, whole
from tests.support.data.tokenizer_files import SENTENCES

LONG = "Each competent authority shall have all of the following powers, which it uses with appropriate care:"
LEADS = st.one_of(
    st.sampled_from([LONG, f"{LONG} (1) to order that", "It must:", "[3, begins as 1] The bearer is paid [", *NASTY]),
    st.text(min_size=1, max_size=60),
).filter(lambda lead: lead.strip() == lead and len(lead.splitlines()) == 1)
OWN = st.one_of(st.sampled_from(NASTY), st.sampled_from(SENTENCES), st.text(max_size=60)).filter(str.strip)
BETWEEN = {
    RenderFormat.MARKDOWN: r"\n(?=\[)",
    RenderFormat.XML: r"\n(?=<fact )",
    RenderFormat.JSON: r",\n(?=\{)",
}


@st.composite
def rankings(draw: st.DrawFn) -> list[Ranked]:
    """Facts from a few lists of two documents, and other facts."""
    leads = draw(st.lists(LEADS, min_size=1, max_size=3))
    facts = draw(st.lists(st.tuples(st.sampled_from([*leads, ""]), OWN, st.sampled_from([1, 2]), SCORES), max_size=20))
    facts.sort(key=lambda drawn: -drawn[-1])
    return [
        Ranked(replace(drawn_fact(lead, own, number, document), stale=draw(st.booleans())), score, 0.0, 0.0)
        for number, (lead, own, document, score) in enumerate(facts, 1)
    ]


def drawn_fact(lead: str, own: str, number: int, document: int) -> Candidate:
    return introduced(lead, own, number, document) if lead else candidate(own, number)


def best_first(*facts: Candidate, score: float = 0.7) -> list[Ranked]:
    return [Ranked(fact, score, 0.0, 0.0) for fact in facts]


def items(lead: str, *own: str) -> list[Ranked]:
    return best_first(*(introduced(lead, text, number) for number, text in enumerate(own, 1)))


def facts_of(packing: Packing) -> list[Candidate]:
    return [packed.ranked.candidate for packed in packing.included]


def in_markdown(kept: list[Ranked], budget: int = 10_000) -> str:
    return pack(kept, budget, token_counter().count, RenderFormat.MARKDOWN).text


@every_format
@every_tokenizer
@settings(deadline=None)
@given(kept=rankings(), budget=st.integers(0, 800))
def test_every_fact_can_be_read_whole_from_the_text_alone(
    name: str, form: RenderFormat, kept: list[Ranked], budget: int
) -> None:
    counter = tokenizer(name)
    packing = pack(kept, budget, counter.count, form, counter.at_least)
    assert packing.tokens == counter.count(packing.text) <= budget
    facts, found = facts_of(packing), read(packing.text, form)
    assert whole(found) == [as_shown(fact.content, form) for fact in facts]
    for fact, said in zip(facts, found, strict=True):
        if said.begins_as:
            introducing = facts[said.begins_as - 1]
            assert (introducing.document, introducing.lead) == (fact.document, fact.lead)


@every_format
@pytest.mark.parametrize("name", list(EncodingName))
@settings(deadline=None)
@given(kept=rankings(), budget=st.integers(0, 800))
def test_references_never_make_a_text_longer_and_its_parts_add_up(
    name: EncodingName, form: RenderFormat, kept: list[Ranked], budget: int
) -> None:
    count = token_counter(name).count
    packing = pack(kept, budget, count, form)
    without = [FactText(fact, number) for number, fact in enumerate(facts_of(packing), 1)]
    assert packing.tokens <= count(render(without, form))
    assert [packed.tokens for packed in packing.included] == [count(part) for part in parts(packing.text, form)]


def parts(text: str, form: RenderFormat) -> list[str]:
    opening, closing = frame(form)
    end = ",\n" if form is RenderFormat.JSON else "\n"
    inner = text.removeprefix(opening).removesuffix(closing)
    return [piece + end for piece in re.split(BETWEEN[form], inner)] if text else []


@every_format
def test_an_introduction_is_said_once(form: RenderFormat) -> None:
    kept = items(LONG, "(a) to advise", "(b) to warn", "(c) to fine")
    text = pack(kept, 10_000, token_counter().count, form).text
    assert text.count(LONG) == 1
    assert [fact.begins_as for fact in read(text, form)] == [0, 1, 1]


def test_the_introduction_has_a_line_of_its_own() -> None:
    text = in_markdown(items(LONG, "(a) to advise", "(b) to warn"))
    assert text == f"[1] {LONG}\n  (a) to advise\n[2, begins as 1] (b) to warn"


def test_a_short_introduction_is_repeated() -> None:
    assert in_markdown(items("It must:", "(a) pay", "(b) report")) == "[1] It must: (a) pay\n[2] It must: (b) report"


def test_an_introduction_that_only_one_fact_has_stays_on_its_line() -> None:
    assert in_markdown(items(LONG, "(a) to advise")) == f"[1] {LONG} (a) to advise"


def test_the_same_words_in_another_document_are_another_introduction() -> None:
    kept = best_first(introduced(LONG, "(a) to advise", 1, document=1), introduced(LONG, "(a) to warn", 2, document=2))
    assert in_markdown(kept) == f"[1] {LONG} (a) to advise\n[2] {LONG} (a) to warn"


def test_the_first_fact_in_the_text_has_the_introduction_whatever_its_rank() -> None:
    important, supporting = items(LONG, "(a) to advise", "(b) to warn")
    text = in_markdown([important, replace(supporting, composite=0.4)])
    assert text == f"[1] {LONG}\n  (b) to warn\n[2, begins as 1] (a) to advise"


def test_no_fact_refers_to_one_that_did_not_fit() -> None:
    kept = items(LONG, "(a) to order " + "and order " * 100, "(b) to warn", "(c) to fine")
    assert in_markdown(kept, 60) == f"[1] {LONG}\n  (b) to warn\n[2, begins as 1] (c) to fine"


def test_no_fact_refers_to_one_that_is_left_out_in_the_end() -> None:
    """The parts fit but the whole does not, so the worst fact goes, which is the first in the text."""

    def dearer_when_long(text: str) -> int:
        return token_counter().count(text) + 100 * ("(c)" in text and "(a)" in text)

    kept = items(LONG, "(a) to advise", "(b) to warn", "(c) to fine")
    kept[2] = replace(kept[2], composite=0.4)
    packing = pack(kept, 100, dearer_when_long, RenderFormat.MARKDOWN)
    assert packing.text == f"[1] {LONG}\n  (a) to advise\n[2, begins as 1] (b) to warn"


@every_format
def test_more_facts_fit_when_their_introduction_is_said_once(form: RenderFormat) -> None:
    count = token_counter().count
    kept = items(LONG, *(f"({number}) {sentence}" for number, sentence in enumerate(SENTENCES[:100], 1)))
    alone = [replace(ranked, candidate=replace(ranked.candidate, lead="")) for ranked in kept]
    with_references, without = (len(pack(facts, 1_000, count, form).included) for facts in (kept, alone))
    assert with_references > 1.2 * without
