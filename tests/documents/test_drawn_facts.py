"""Facts drawn from texts of regulations: a fact for each assertion, within the limits of size."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.documents.ingestion.chunk_spans import ChunkSettings, chunk
from drillcore_server.documents.ingestion.drawn_facts import DrawnFact, draw_facts
from drillcore_server.documents.ingestion.prepared_documents import builtin_counter
from drillcore_server.documents.model import ParsedDocument
from drillcore_server.documents.parsers import parse
from drillcore_server.facts.model import TOKENS_MAX, TOKENS_MIN

RECORDS = """\
§ 11.10 Controls for closed systems.

Persons who use closed systems to create, modify, maintain, or transmit electronic records shall employ procedures and
controls designed to ensure the authenticity of the records. Such procedures and controls shall include the following:

(a) Validation of systems to ensure accuracy, reliability, and consistent intended performance.

(b) The ability to generate accurate and complete copies of records in both human readable and electronic form.

(c) Use of appropriate controls over systems documentation including:

(1) Adequate controls over the distribution of, access to, and use of documentation for system maintenance.

(2) Revision and change control procedures to maintain an audit trail of systems documentation.

(d) Limiting system access to authorized individuals of the firm that keeps the records.
"""
"""Adapted from 21 CFR 11.10."""
POWERS = """\
# Article 58 Powers

3.   Each supervisory authority shall have all of the following advisory powers:

(a)

to advise the controller in accordance with the prior consultation procedure referred to in Article 36;

(b)

to issue opinions to the national parliament on any issue related to the protection of personal data.

4.   The exercise of the powers conferred on the authority shall be subject to appropriate safeguards.
"""
"""A list in the form of the Official Journal: each marker is a paragraph of its own."""


def parsed(text: str, name: str = "text.md") -> ParsedDocument:
    (document,) = parse(text.encode(), name=name, media_type=None)
    assert isinstance(document, ParsedDocument)
    return document


def drawn(document: ParsedDocument, settings: ChunkSettings | None = None) -> list[list[DrawnFact]]:
    counter = builtin_counter()
    spans = chunk(document, counter, settings or ChunkSettings())
    return [list(facts) for facts in draw_facts(document, spans, counter)]


def contents(text: str, name: str = "text.md") -> list[str]:
    return [fact.content for facts in drawn(parsed(text, name)) for fact in facts]


def flat(facts: Iterable[list[DrawnFact]]) -> list[DrawnFact]:
    return [fact for group in facts for fact in group]


def test_an_item_of_a_list_begins_with_its_introduction() -> None:
    found = contents(RECORDS, "part-11.txt")
    start = "Such procedures and controls shall include the following:"
    assert (
        f"{start} (a) Validation of systems to ensure accuracy, reliability, and consistent intended performance."
        in (found)
    )
    inner = f"{start} (c) Use of appropriate controls over systems documentation including:"
    trail = "(2) Revision and change control procedures to maintain an audit trail of systems documentation."
    assert f"{inner} {trail}" in found
    assert (
        found[-1] == f"{start} (d) Limiting system access to authorized individuals of the firm that keeps the records."
    )


def test_an_item_says_where_its_introductions_are() -> None:
    document = parsed(RECORDS, "part-11.txt")
    found = flat(drawn(document))
    for fact in found:
        said = " ".join(" ".join(span.of(document.text).split()) for span in fact.leads)
        assert fact.content[: fact.lead_characters] == said
        assert all(lead.end <= fact.span.start for lead in fact.leads)
    assert [len(fact.leads) for fact in found] == [0, 1, 1, 2, 2, 1]


def test_an_introduction_of_items_or_a_heading_is_no_fact_of_its_own() -> None:
    found = contents(RECORDS, "part-11.txt")
    assert not any(content.endswith(":") for content in found)
    assert not any("Controls for closed systems" in content for content in found)


def test_markers_that_stand_alone_belong_to_the_text_after_them() -> None:
    start = "3. Each supervisory authority shall have all of the following advisory powers:"
    assert contents(POWERS) == [
        f"{start} (a) to advise the controller in accordance with the prior consultation procedure referred to in "
        "Article 36;",
        f"{start} (b) to issue opinions to the national parliament on any issue related to the protection of personal "
        "data.",
        "4. The exercise of the powers conferred on the authority shall be subject to appropriate safeguards.",
    ]


def test_a_list_that_goes_on_in_the_next_chunk_keeps_its_introduction() -> None:
    items = "".join(
        f"\n({letter}) the record number {letter} of every batch that leaves the site;\n" for letter in "abcdef"
    )
    document = parsed(f"The operator shall keep, for as long as the product is on the market:\n{items}")
    found = drawn(document, ChunkSettings(tokens_max=64, tokens_target=40, tokens_min=10))
    assert len(found) > 2
    assert all(fact.content.startswith("The operator shall keep, for as long") for fact in flat(found))
    assert len(flat(found)) == 6


def test_assertions_of_one_sentence_are_facts_of_their_own() -> None:
    text = (
        "The operator must inform the Regulator of every serious breach without delay, and the Regulator may publish "
    )
    text += "the notice of the breach on its own website."
    assert len(contents(text)) == 2


def test_short_sentences_are_joined_to_a_neighbour_in_order() -> None:
    text = "It applies. The operator shall record every deviation within 24 hours of its discovery. No exception."
    assert contents(text) == [text]


def test_short_items_are_joined_to_items_of_their_own_list() -> None:
    text = "Each supplier of the site is audited before the first delivery of a material.\n\n"
    text += "It applies to:\n\n(a) banks;\n\n(b) insurers;\n\n(c) brokers.\n"
    assert contents(text) == [
        "Each supplier of the site is audited before the first delivery of a material.",
        "It applies to: (a) banks; (b) insurers; (c) brokers.",
    ]


def test_a_chunk_too_short_for_a_fact_has_none() -> None:
    assert contents("Keep it cold.") == []


def test_page_numbers_and_lines_without_words_are_no_part_of_a_fact() -> None:
    text = "The cold store is kept below eight degrees at all times.\n\nPage 3 of 12\n\n* * *\n\n17\n\n"
    text += "Every deviation from this temperature is recorded by the operator."
    assert contents(text, "text.txt") == [
        "The cold store is kept below eight degrees at all times.",
        "Every deviation from this temperature is recorded by the operator.",
    ]


def test_each_row_of_a_table_is_a_fact() -> None:
    rows = [f"| Sample {n} of the batch | shall be stored at {n} degrees | for {n} months |" for n in (2, 3, 4)]
    text = "\n".join(["| What is kept of it | where it is kept | for how long |", "|---|---|---|", *rows])
    assert contents(text)[-3:] == rows
    assert len(contents(text)) == 4


def test_the_same_words_are_one_fact_of_a_document_however_their_lines_are_broken() -> None:
    rule = "The operator shall record every deviation within 24 hours of its discovery."
    between = "Another sentence of the document stands between the two of them here."
    broken = rule.replace(" shall", "\nshall")
    assert contents(f"{rule}\n\n{between}\n\n{broken}") == [rule, between]


def test_text_that_chunks_repeat_of_each_other_is_drawn_once() -> None:
    sentences = [f"The operator shall record deviation number {n} within {n + 2} hours of it." for n in range(60)]
    document = parsed(" ".join(sentences))
    settings = ChunkSettings(tokens_max=128, tokens_target=128, overlap=0.3)
    spans = chunk(document, builtin_counter(), settings)
    assert any(span.span.start < span.raws[0].start for span in spans), "the chunks must overlap"
    found = drawn(document, settings)
    assert [fact.content for fact in flat(found)] == sentences
    for span, facts in zip(spans, found, strict=True):
        assert all(span.raws[0].start <= fact.span.start and fact.span.end <= span.raws[-1].end for fact in facts)


def test_an_assertion_too_long_for_a_fact_is_cut() -> None:
    words = " ".join(f"{n:x}" for n in range(2_500))
    document = parsed(f"The list of all of them is {words}.")
    found = flat(drawn(document, ChunkSettings(tokens_max=20_000, tokens_target=20_000)))
    assert len(found) > 2
    assert all(TOKENS_MIN <= fact.tokens <= TOKENS_MAX for fact in found)
    assert " ".join(fact.content for fact in found).split() == document.text.split()


def test_a_fact_whose_introductions_are_too_long_goes_without_them() -> None:
    long = " ".join(f"word{n}" for n in range(900))
    text = f"The firm {long} must:\n\n(a) {long}:\n\n(i) keep all records of the batches that it has released.\n"
    found = flat(drawn(parsed(text), ChunkSettings(tokens_max=10_000, tokens_target=10_000)))
    assert [fact.content for fact in found] == ["(i) keep all records of the batches that it has released."]


PIECES = st.sampled_from(
    ["A firm must:\n\n", "(a) keep records; ", "(b)\n\n", "and the board may act. ", "# Title\n\n", "17\n\n", "ё ",
     "| a | b |\n|---|---|\n", "| one | two |\n", "The board is not bound by it, and the firm is. ", "\n\n", "word ",
     "- item\n", ": "]
)  # fmt: skip


@given(st.lists(PIECES, max_size=60).map("".join))
def test_facts_of_any_text_are_within_limits_and_within_their_chunks(text: str) -> None:
    for document in parse(text.encode(), name="text.md", media_type=None):
        if not isinstance(document, ParsedDocument):
            continue
        counter = builtin_counter()
        spans = chunk(document, counter)
        found = draw_facts(document, spans, counter)
        assert len({fact.content for group in found for fact in group}) == len(flat(map(list, found)))
        for span, facts in zip(spans, found, strict=True):
            for fact in facts:
                assert TOKENS_MIN <= fact.tokens == counter.count(fact.content) <= TOKENS_MAX
                assert span.raws[0].start <= fact.span.start < fact.span.end <= span.raws[-1].end
                assert fact.content == " ".join(fact.content.split())


NOTE = """# Visits

The sponsor keeps the records of every visit for ten years after its discovery.

## Training

Training records stay there. They are shown to the monitor at each visit on request.

- names of everybody at the site who was trained, with the day
- what they were trained in, by whom, and how it was tested
"""


def test_headings_are_no_part_of_facts_and_facts_are_joined_under_their_own_heading() -> None:
    (document,) = parse(NOTE.encode(), name="note.md")
    assert isinstance(document, ParsedDocument)
    contents = [fact.content for own in drawn(document) for fact in own]
    assert contents == [
        "The sponsor keeps the records of every visit for ten years after its discovery.",
        "Training records stay there. They are shown to the monitor at each visit on request.",
        "- names of everybody at the site who was trained, with the day",
        "- what they were trained in, by whom, and how it was tested",
    ]
