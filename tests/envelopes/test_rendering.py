"""A fact in a prompt has one number, keeps its content, and cannot be confused with another fact."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.envelopes.envelope_text import GROUNDING_INSTRUCTIONS, FactText, render
from drillcore_server.envelopes.model import Candidate, GroundingMode, RenderFormat
from tests.support.data.ranked_facts import NASTY, candidate, introduced
from tests.support.data.rendered_facts import Read, as_shown, read

TEXTS = st.one_of(st.sampled_from(NASTY), st.text(max_size=30), st.text('[]\\1, \n<&>"{}:', max_size=20))


def text_of(facts: Sequence[Candidate], form: RenderFormat) -> str:
    return render([FactText(fact, number) for number, fact in enumerate(facts, 1)], form)


def test_markdown_has_a_line_for_each_fact() -> None:
    facts = [candidate("One."), candidate("Two.", stale=True), candidate("So far.", is_answer=True)]
    assert text_of(facts, RenderFormat.MARKDOWN) == "[1] One.\n[2, stale] Two.\n[3, previous answer] So far."


def test_xml_has_an_element_for_each_fact() -> None:
    text = text_of([candidate("1 < 2 & 3 > 2"), candidate("Two.", stale=True)], RenderFormat.XML)
    expected = '<facts>\n<fact n="1">1 &lt; 2 &amp; 3 > 2</fact>\n<fact n="2" note="stale">Two.</fact>\n</facts>'
    assert text == expected


def test_json_has_an_object_for_each_fact() -> None:
    text = text_of([candidate("Größe"), candidate("So far.", is_answer=True)], RenderFormat.JSON)
    assert text == '[{"n":1,"text":"Größe"},\n{"n":2,"note":"previous answer","text":"So far."}]'


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (RenderFormat.MARKDOWN, "[1] It must:\n  (a) pay\n[2, stale, begins as 1] (b) report"),
        (
            RenderFormat.XML,
            '<facts>\n<fact n="1">It must:\n(a) pay</fact>\n'
            '<fact n="2" note="stale" begins-as="1">(b) report</fact>\n</facts>',
        ),
        (
            RenderFormat.JSON,
            '[{"n":1,"text":"It must:\\n(a) pay"},\n{"n":2,"note":"stale","begins_as":1,"text":"(b) report"}]',
        ),
    ],
)
def test_a_fact_names_the_fact_with_the_same_beginning(form: RenderFormat, expected: str) -> None:
    first = FactText(introduced("It must:", "(a) pay"), 1, introduces=True)
    second = FactText(replace(introduced("It must:", "(b) report"), stale=True), 2, begins_as=1)
    assert render([first, second], form) == expected


@pytest.mark.parametrize("form", RenderFormat)
def test_no_facts_give_an_empty_text(form: RenderFormat) -> None:
    assert text_of([], form) == ""


@pytest.mark.parametrize("form", RenderFormat)
@pytest.mark.parametrize("content", NASTY)
def test_nasty_content_stays_in_its_fact(form: RenderFormat, content: str) -> None:
    facts = [candidate("Before."), candidate(content), candidate("After.")]
    assert read(text_of(facts, form), form) == [
        Read(1, "", "Before."),
        Read(2, "", as_shown(content, form)),
        Read(3, "", "After."),
    ]


@pytest.mark.parametrize("form", RenderFormat)
@given(contents=st.lists(TEXTS, max_size=5), stale=st.booleans())
def test_rendered_facts_can_be_read_back(form: RenderFormat, contents: list[str], stale: bool) -> None:
    facts: list[Candidate] = [candidate(content, stale=stale) for content in contents]
    note = "stale" if stale else ""
    expected = [Read(number, note, as_shown(content, form)) for number, content in enumerate(contents, 1)]
    assert read(text_of(facts, form), form) == expected


def test_a_number_in_brackets_is_always_the_number_of_a_fact() -> None:
    text = text_of([candidate(content) for content in NASTY], RenderFormat.MARKDOWN)
    unescaped_brackets = re.findall(r"(?<!\\)(?:\\\\)*\[\s*\d", text)
    assert len(unescaped_brackets) == len(NASTY)


def test_open_grounding_asks_nothing_of_the_model() -> None:
    assert GROUNDING_INSTRUCTIONS[GroundingMode.OPEN] == ""
    assert GROUNDING_INSTRUCTIONS[GroundingMode.CONTEXT_STRICT].startswith("Answer using ONLY the provided context. If")
