"""The built-in processor quotes important text, stays within its limits, and gives the same result every time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drillcore_server.documents.processors import (
    MASTER_TOKENS,
    SECTION_TOKENS,
    ChunkInput,
    ExtractiveProcessor,
    Member,
    Processor,
    SectionMember,
    TokenRange,
)
from drillcore_server.hierarchy.digests import ChunkDigest, FindingKind, Passage, Summary
from drillcore_server.storage.ids import Span
from tests.support.paths import ROOT

RETENTION = """4.5 Record keeping

4.5.1 A Relevant Person must maintain the following records:
(a) a copy of all documents obtained in customer due diligence; and
(b) the supporting records of every transaction.

4.5.2 The records must be kept for at least six years from the date on which the business relationship ends. \
The Regulator was established in 2013. Some people like records.

4.5.3 A Relevant Person shall not destroy any record while an investigation by the Financial Services \
Regulatory Authority is under way.

4.5.4 "Record" means any document, in whatever form it is held, that shows how a transaction was carried out.

4.5.5 A Relevant Person must notify the Regulator of any loss of records within 72 hours, and pay a fine of up to \
USD 15,000 as set out in Rule 8.3.1."""


class Words:
    """Counts words separated by white space, which is fast and good enough for tests."""

    def count(self, text: str) -> int:
        return len(text.split())

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return [self.count(text) for text in texts]


@pytest.fixture(scope="module")
def processor() -> Processor:
    return ExtractiveProcessor(Words())


@pytest.fixture(scope="module")
def digest(processor: Processor) -> ChunkDigest:
    return processor.process_chunks([ChunkInput(RETENTION, 0, "aml", ("Record keeping",))])[0]


def passages_of(digest: ChunkDigest) -> list[Passage]:
    return [*digest.summary.passages, *digest.quotes, *digest.candidates]


def test_a_digest_says_who_made_it(digest: ChunkDigest) -> None:
    assert (digest.made_by.processor, digest.made_by.version, digest.made_by.fallback_reason) == (
        "extractive",
        "1",
        None,
    )


def test_spans_count_in_the_document(processor: Processor) -> None:
    document = "A preamble of another chunk.\n\n" + RETENTION
    start = document.index("4.5 Record")
    made = processor.process_chunks([ChunkInput(document[start:], start, "aml", ())])[0]
    assert made.quotes
    assert all(passage.span.of(document) == passage.text and passage.document == "aml" for passage in passages_of(made))


def test_obligations_prohibitions_and_definitions_outweigh_remarks(digest: ChunkDigest) -> None:
    best = [candidate.text for candidate in digest.candidates]
    assert not any("Some people" in text or "established in 2013" in text for text in best[:4])
    assert any("shall not destroy" in text for text in best[:4])
    assert any("within 72 hours" in text for text in best[:4])


def test_key_quotes_are_whole_sentences_that_bind(digest: ChunkDigest) -> None:
    assert 1 <= len(digest.quotes) <= 3
    assert all(any(cue in quote.text for cue in ("must", "shall", "means")) for quote in digest.quotes)


def test_a_chunk_summary_is_at_most_a_quarter_and_in_reading_order(digest: ChunkDigest) -> None:
    assert digest.summary.text == "\n".join(passage.text for passage in digest.summary.passages)
    assert len(digest.summary.text) <= len(RETENTION) // 4 or len(digest.summary.passages) == 1
    assert list(digest.summary.passages) == sorted(digest.summary.passages, key=lambda passage: passage.span)
    assert digest.summary.tokens == Words().count(digest.summary.text)


def test_a_chunk_of_one_sentence_is_its_own_summary(processor: Processor) -> None:
    made = processor.process_chunks([ChunkInput("The operator shall report every incident.", 7, "d", ())])[0]
    assert made.summary.text == "The operator shall report every incident."
    assert made.summary.passages[0].span == Span(7, 48)


@pytest.mark.parametrize("text", ["", "  \n\t ", "\u200b"])
def test_a_chunk_without_words_gives_a_digest_without_words(processor: Processor, text: str) -> None:
    made = processor.process_chunks([ChunkInput(text, 0, "d", ())])[0]
    assert (made.keywords, made.entities, made.quotes) == ((), (), ())


def test_headings_and_table_rows_stay_out_of_summaries(processor: Processor) -> None:
    row = "Banks must not file\tlater than 30 days\tRule 5 means RFC 6962."
    text = f"5.1 Scope\n\n{row}\n\nEvery bank must hold capital of at least EUR 5 million."
    made = processor.process_chunks([ChunkInput(text, 0, "d", ())])[0]
    assert made.summary.text == "Every bank must hold capital of at least EUR 5 million."


def test_entities_are_found_in_the_whole_chunk(digest: ChunkDigest) -> None:
    found = {(entity.type, entity.value) for entity in digest.entities}
    assert {
        ("organisation", "Financial Services Regulatory Authority"),
        ("amount", "USD 15000"),
        ("regulation", "Rule 8.3.1"),
    } <= found


def test_keywords_are_words_that_the_text_repeats(digest: ChunkDigest) -> None:
    assert {"relevant person", "records"} <= set(digest.keywords)
    assert not {"the", "must", "of"} & set(digest.keywords)


def test_no_word_is_in_two_keywords(digest: ChunkDigest) -> None:
    words = [word for keyword in digest.keywords for word in keyword.split()]
    assert len(words) == len(set(words))
    assert all(len(keyword.split()) <= 3 for keyword in digest.keywords)


def test_keywords_of_german_text_are_no_german_stopwords(processor: Processor) -> None:
    text = (
        "Der Verantwortliche muss die Verarbeitung melden. Die Verarbeitung ist nur dann zulässig, wenn sie nötig ist."
    )
    made = processor.process_chunks([ChunkInput(text, 0, "d", ())])[0]
    assert "verarbeitung" in made.keywords[0]
    assert not {"der", "die", "wenn", "nur", "dann"} & set(made.keywords)


def test_chunks_processed_together_give_the_same_digests_as_alone(processor: Processor) -> None:
    chunks = [ChunkInput(RETENTION[start:], start, "d", ("Record keeping",)) for start in (0, 60, 200)]
    alone = [processor.process_chunks([ChunkInput(c.text, c.span_start, c.document, c.headings)])[0] for c in chunks]
    assert processor.process_chunks(chunks) == alone


# Groups


def passage(text: str, place: int, weight: float = 0.5, document: str = "d") -> Passage:
    return Passage(text, document, Span(place, place + len(text)), weight)


def member(*passages: Passage) -> Member:
    return Member(passages, (), ())


NUMBERS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa")


def many_members(count: int) -> list[Member]:
    return [
        member(passage(f"Licensee {NUMBERS[n % 10]}{n} shall file return r{n} with bureau b{n} yearly.", 100 * n, 0.5))
        for n in range(count)
    ]


def test_a_section_summary_consists_of_passages_and_is_within_the_range(processor: Processor) -> None:
    made = processor.summarise_section("Returns", many_members(300), TokenRange(100, 400))
    assert 100 <= made.summary.tokens <= 400
    assert made.summary.text == "\n".join(passage.text for passage in made.summary.passages)
    assert list(made.summary.passages) == sorted(made.summary.passages, key=lambda part: (part.document, part.span))


def test_the_best_passage_is_included_however_short_the_summary(processor: Processor) -> None:
    made = processor.summarise_section("Returns", many_members(2), TokenRange(1, 12))
    assert len(made.summary.passages) == 1


class CostlyLines(Words):
    """A tokenizer for which joined texts have more tokens than their parts."""

    def count(self, text: str) -> int:
        return len(text.split()) + 5 * text.count("\n")


def test_a_summary_fits_even_if_joining_passages_costs_tokens() -> None:
    made = ExtractiveProcessor(CostlyLines()).summarise_section("Returns", many_members(50), TokenRange(100, 100))
    assert 50 < made.summary.tokens <= 100
    assert made.summary.tokens == CostlyLines().count(made.summary.text)


def test_a_section_with_little_text_is_summarised_in_full(processor: Processor) -> None:
    members = many_members(3)
    made = processor.summarise_section("Returns", members, SECTION_TOKENS)
    assert {part.text for part in made.summary.passages} == {
        group_member.candidates[0].text for group_member in members
    }


def test_a_summary_does_not_repeat_itself(processor: Processor) -> None:
    said = "The operator shall report every serious incident to the authority."
    again = "The operator shall report every serious incident to the authority without delay."
    other_sentence = "Penalties amount to EUR 5 million for each infringement found."
    made = processor.summarise_section(
        "Incidents",
        [member(passage(said, 0)), member(passage(again, 500, 0.6)), member(passage(other_sentence, 900, 0.1))],
        SECTION_TOKENS,
    )
    assert [part.text for part in made.summary.passages] == [again, other_sentence]


def test_every_member_is_quoted_before_any_member_is_quoted_twice(processor: Processor) -> None:
    loud = [f"{word.title()}s must {word}ize {word}ware {word}wise." for word in NUMBERS]
    quiet = "Custodians may not lend assets."
    members = [
        member(*(passage(text, 100 * n, 0.5) for n, text in enumerate(loud))),
        member(passage(quiet, 5000, 0.45)),
    ]
    made = processor.summarise_section("Brokers", members, TokenRange(11, 11))
    assert len(made.summary.passages) == 2
    assert quiet in {part.text for part in made.summary.passages}


def test_a_passage_in_the_overlap_of_two_chunks_is_cited_once(processor: Processor) -> None:
    shared = passage("The operator shall report every serious incident.", 10)
    made = processor.summarise_section("Incidents", [member(shared), member(shared)], SECTION_TOKENS)
    assert made.summary.passages == (shared,)


def test_keywords_and_entities_of_a_group_are_those_that_most_members_name(processor: Processor) -> None:
    first = processor.process_chunks([ChunkInput("The FDA must inspect each laboratory under RFC 6962.", 0, "a", ())])[
        0
    ]
    second = processor.process_chunks([ChunkInput("The FDA may inspect a laboratory at any time.", 0, "b", ())])[0]
    made = processor.summarise_section("Inspection", [Member.of(first), Member.of(second)], SECTION_TOKENS)
    assert [entity.value for entity in made.entities] == ["FDA", "RFC 6962"]
    assert "laboratory" in made.keywords[:2]


def test_findings_put_binding_statements_first_and_name_their_kind(processor: Processor) -> None:
    texts = {
        FindingKind.STATEMENT: "The archive was founded by merchants long ago.",
        FindingKind.DEFINITION: "Custodian means a person holding assets for others.",
        FindingKind.THRESHOLD: "Margin calls arise where exposure exceeds the stated amount.",
        FindingKind.DEADLINE: "Reports are due within 30 days after quarter close.",
        FindingKind.PROHIBITION: "Brokers may not accept deposits from minors.",
        FindingKind.OBLIGATION: "Auditors must verify ledgers independently.",
    }
    sections = [
        SectionMember(kind.value, (passage(text, 100 * n),), (), ()) for n, (kind, text) in enumerate(texts.items())
    ]
    made = processor.summarise_corpus(sections, MASTER_TOKENS)
    assert [(finding.kind, finding.passage.text) for finding in made.findings] == [
        (kind, texts[kind]) for kind in FindingKind
    ]


def test_plain_statements_are_findings_only_where_nothing_else_is_left(processor: Processor) -> None:
    remarks = [
        passage(f"{word.title()} archives {word}ware since {word}fall.", 9000 + 100 * n, 0.9)
        for n, word in enumerate(NUMBERS)
    ]
    sections = [
        SectionMember("s", group_member.candidates, (), ()) for group_member in (*many_members(20), member(*remarks))
    ]
    made = processor.summarise_corpus(sections, MASTER_TOKENS)
    assert {remark.text for remark in remarks} & {part.text for part in made.summary.passages}
    assert {finding.kind for finding in made.findings} == {FindingKind.OBLIGATION}


def test_findings_are_at_most_ten_and_cited_by_the_summary(processor: Processor) -> None:
    made = processor.summarise_corpus(
        [SectionMember("s", group_member.candidates, (), ()) for group_member in many_members(80)], MASTER_TOKENS
    )
    assert len(made.findings) == 10
    assert {finding.passage for finding in made.findings} <= set(made.summary.passages)


def test_an_empty_group_has_an_empty_summary(processor: Processor) -> None:
    for made in (processor.summarise_section("", [], SECTION_TOKENS), processor.summarise_corpus([], MASTER_TOKENS)):
        assert made.summary == Summary("", (), 0)
        assert made.findings == ()


# Properties that hold for any text

ANY_TEXT = st.text(max_size=400) | st.lists(
    st.sampled_from(
        [
            "The firm must not act",
            " within 5 days",
            ".\n",
            "; ",
            "\n(a) ",
            "\n\n",
            "§ 5",
            " means ",
            "EUR 5",
            "\t",
            "İ",
            "\ud800",
            "😀",
        ]
    ),
    max_size=60,
).map("".join)


@given(ANY_TEXT, st.integers(0, 1 << 40))
def test_passages_of_any_chunk_are_exact_quotes_of_it(text: str, span_start: int) -> None:
    made = ExtractiveProcessor(Words()).process_chunks([ChunkInput(text, span_start, "d", ("Any text",))])[0]
    for part in passages_of(made):
        assert text[part.span.start - span_start : part.span.end - span_start] == part.text
        assert span_start <= part.span.start < part.span.end <= span_start + len(text)
        assert 0 <= part.weight <= 1
    assert bool(made.summary.passages) == bool(text.strip())


@settings(max_examples=50)
@given(st.lists(ANY_TEXT, max_size=8), st.integers(0, 60), st.integers(0, 60))
def test_any_group_gives_a_summary_within_its_range_made_of_its_members(
    texts: list[str], first_bound: int, second_bound: int
) -> None:
    processor = ExtractiveProcessor(Words())
    digests = processor.process_chunks([ChunkInput(text, 1000 * n, f"d{n % 3}") for n, text in enumerate(texts)])
    tokens = TokenRange(min(first_bound, second_bound), max(first_bound, second_bound))
    made = processor.summarise_section("Any", [Member.of(digest) for digest in digests], tokens)
    assert made.summary.tokens <= tokens.at_most
    assert made.summary.text == "\n".join(passage.text for passage in made.summary.passages)
    assert set(made.summary.passages) <= {candidate for digest in digests for candidate in digest.candidates}


SAME_EVERYWHERE = """
import sys
from drillcore_server.documents.model import Span
from tests.documents.test_processing_extractive import RETENTION, Words, many_members
from drillcore_server.documents.processors import *
processor = ExtractiveProcessor(Words())
chunks = [ChunkInput(RETENTION[start:], start, str(start), ("Record keeping",)) for start in range(0, 900, 90)]
digests = processor.process_chunks(chunks)
members = [Member.of(digest) for digest in digests] + many_members(40)
section = processor.summarise_section("Records", members, SECTION_TOKENS)
master = processor.summarise_corpus([SectionMember.of("Records", section)], MASTER_TOKENS)
sys.stdout.write(repr((digests, section, master, ClaimSplitter(RETENTION).split(Span(0, len(RETENTION))))))
"""


def test_the_same_input_gives_the_same_output_whatever_the_hash_seed() -> None:
    def run(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, "-c", SAME_EVERYWHERE], env=environment, check=True, capture_output=True, text=True
        ).stdout

    first, second = run("1"), run("4242")
    assert "Passage" in first
    assert first == second
