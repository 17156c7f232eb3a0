"""A fact in a prompt has one number, says what it says, and cannot be taken for another."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.domain.envelopes import Candidate, GroundingMode, RenderFormat
from drillcore_server.domain.introductions import Said
from drillcore_server.domain.rendering import GROUNDING_INSTRUCTIONS, render
from tests.unit.ranked_facts import NASTY, candidate

HEAD = re.compile(r"\[(\d+)(?:, (stale|previous answer))?\] ")
ESCAPED = re.compile(r"(?<!\\)(\\+)\[(?=\s*\d)")
TEXTS = st.one_of(st.sampled_from(NASTY), st.text(max_size=30), st.text('[]\\1, \n<&>"{}:', max_size=20))

Read = list[tuple[int, str, str]]
"""Number, note and content of each fact that a reader finds."""


def read_markdown(text: str) -> Read:
    found: Read = []
    for line in text.split("\n") if text else []:
        if head := HEAD.match(line):
            found.append((int(head[1]), head[2] or "", line[head.end() :]))
        else:
            assert line.startswith("  "), "a line is neither a fact's first nor indented"
            number, note, content = found.pop()
            found.append((number, note, f"{content}\n{line[2:]}"))
    return [(number, note, unescaped(content)) for number, note, content in found]


def unescaped(content: str) -> str:
    return ESCAPED.sub(lambda found: "\\" * (len(found[1]) // 2) + "[", content)


def read_xml(text: str) -> Read:
    facts = ElementTree.fromstring(text) if text else []
    return [(int(fact.attrib["n"]), fact.attrib.get("note", ""), fact.text or "") for fact in facts]


def read_json(text: str) -> Read:
    return [(fact["n"], fact.get("note", ""), fact["text"]) for fact in json.loads(text or "[]")]


READERS = {RenderFormat.MARKDOWN: read_markdown, RenderFormat.XML: read_xml, RenderFormat.JSON: read_json}


def as_shown(content: str, form: RenderFormat) -> str:
    """Markdown has line feeds for all line ends; XML cannot have control characters at all."""
    if form is RenderFormat.MARKDOWN:
        return "\n".join(content.splitlines())
    if form is RenderFormat.XML:
        return "".join(one if is_xml(one) else "\ufffd" for one in content)
    return content


def is_xml(character: str) -> bool:
    return character in "\t\n\r" or (character >= " " and character not in "\ufffe\uffff")


def test_markdown_has_a_line_for_each_fact() -> None:
    facts = [candidate("One."), candidate("Two.", stale=True), candidate("So far.", is_answer=True)]
    assert render(facts, RenderFormat.MARKDOWN) == "[1] One.\n[2, stale] Two.\n[3, previous answer] So far."


def test_xml_has_an_element_for_each_fact() -> None:
    text = render([candidate("1 < 2 & 3 > 2"), candidate("Two.", stale=True)], RenderFormat.XML)
    expected = '<facts>\n<fact n="1">1 &lt; 2 &amp; 3 > 2</fact>\n<fact n="2" note="stale">Two.</fact>\n</facts>'
    assert text == expected


def test_json_has_an_object_for_each_fact() -> None:
    text = render([candidate("Größe"), candidate("So far.", is_answer=True)], RenderFormat.JSON)
    assert text == '[{"n":1,"text":"Größe"},\n{"n":2,"note":"previous answer","text":"So far."}]'


@pytest.mark.parametrize("form", RenderFormat)
def test_no_facts_are_no_text(form: RenderFormat) -> None:
    assert render([], form) == ""


@pytest.mark.parametrize("form", RenderFormat)
@pytest.mark.parametrize("content", NASTY)
def test_nasty_content_stays_in_its_fact(form: RenderFormat, content: str) -> None:
    facts = [candidate("Before."), candidate(content), candidate("After.")]
    assert READERS[form](render(facts, form)) == [
        (1, "", "Before."),
        (2, "", as_shown(content, form)),
        (3, "", "After."),
    ]


@pytest.mark.parametrize("form", RenderFormat)
@given(contents=st.lists(TEXTS, max_size=5), stale=st.booleans())
def test_what_is_rendered_can_be_read_back(form: RenderFormat, contents: list[str], stale: bool) -> None:
    facts: list[Candidate] = [candidate(content, stale=stale) for content in contents]
    note = "stale" if stale else ""
    expected = [(number, note, as_shown(content, form)) for number, content in enumerate(contents, 1)]
    assert READERS[form](render(facts, form)) == expected


def test_a_number_in_brackets_is_always_a_facts_own() -> None:
    text = render([candidate(content) for content in NASTY], RenderFormat.MARKDOWN)
    unescaped_brackets = re.findall(r"(?<!\\)(?:\\\\)*\[\s*\d", text)
    assert len(unescaped_brackets) == len(NASTY)


def test_open_grounding_asks_nothing_of_the_model() -> None:
    assert GROUNDING_INSTRUCTIONS[GroundingMode.OPEN] == ""
    assert GROUNDING_INSTRUCTIONS[GroundingMode.CONTEXT_STRICT].startswith("Answer using ONLY the provided context. If")
