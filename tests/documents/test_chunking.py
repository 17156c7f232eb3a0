"""Chunks keep every character, stay within their limits, and follow the headings of the document."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drillcore_server.documents.ingestion.chunk_spans import ChunkSettings, chunk
from drillcore_server.documents.model import BlockKind, ChunkSpan, ParsedDocument
from drillcore_server.documents.parsers import parse
from drillcore_server.tokenizers.encodings import token_counter

COUNTER = token_counter()
SMALL = ChunkSettings(tokens_max=32, tokens_target=16, tokens_min=4, raw_tokens_min=6)
SENTENCE = "The records of system {} shall be kept for ten years. "

WORDS = ["A sentence. ", "word ", "x" * 90, ", ", " \t ", "نص عربي ", "e\u0301" * 9, "👩‍👩‍👧 ", "中文。", "/", "'s "]
MARKS = ["# Title\n\n", "## Scope\n\n", "- item\n", "| a | b |\n|---|---|\n| 1 | 2 |\n", "```\ncode\n```\n", "\n"]
PARTS = st.sampled_from([*WORDS, *MARKS, "\n\n", "\r\n\r\n"])
MARKDOWN = st.lists(PARTS, min_size=1, max_size=60).map("".join).filter(str.strip)


class Words:
    """A counter that cannot say where its counts add up."""

    def count(self, text: str) -> int:
        return len(text.split()) + text.count("\n")

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return [self.count(text) for text in texts]


def markdown(text: str) -> ParsedDocument:
    (document,) = parse(text.encode(), name="x.md")
    assert isinstance(document, ParsedDocument)
    return document


def texts(document: ParsedDocument, chunks: Sequence[ChunkSpan]) -> list[str]:
    return [chunk_span.span.of(document.text) for chunk_span in chunks]


def owned(document: ParsedDocument, chunk_span: ChunkSpan) -> str:
    return "".join(raw.of(document.text) for raw in chunk_span.raws)


def check(document: ParsedDocument, chunks: Sequence[ChunkSpan], limits: ChunkSettings) -> None:
    raws = [raw for chunk_span in chunks for raw in chunk_span.raws]
    assert raws[0].start == 0
    assert raws[-1].end == len(document.text)
    assert all(before.end == after.start for before, after in pairwise(raws))
    for chunk_span in chunks:
        assert chunk_span.tokens == COUNTER.count(chunk_span.span.of(document.text)) <= limits.chunk_tokens_max
        assert chunk_span.span.start <= chunk_span.raws[0].start
        assert chunk_span.span.end == chunk_span.raws[-1].end
        assert all(0 < COUNTER.count(raw.of(document.text)) <= limits.tokens_max for raw in chunk_span.raws)


@given(MARKDOWN)
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_raws_cover_the_text_and_everything_stays_within_its_limit(text: str) -> None:
    document = markdown(text)
    check(document, chunk(document, COUNTER, SMALL), SMALL)


@given(MARKDOWN)
def test_the_same_document_gives_the_same_chunks(text: str) -> None:
    assert chunk(markdown(text), COUNTER, SMALL) == chunk(markdown(text), COUNTER, SMALL)


@given(MARKDOWN)
def test_a_counter_that_never_adds_up_loses_nothing_either(text: str) -> None:
    document = markdown(text)
    chunks = chunk(document, Words(), SMALL)
    assert "".join(owned(document, chunk_span) for chunk_span in chunks) == document.text
    assert all(chunk_span.tokens == Words().count(chunk_span.span.of(document.text)) for chunk_span in chunks)


def test_small_paragraphs_of_a_section_share_a_chunk() -> None:
    document = markdown("# Scope\n\nOne rule applies here.\n\nAnother rule applies there.\n")
    (only,) = chunk(document, COUNTER)
    assert only.headings == ("Scope",)


def test_a_chunk_ends_at_a_heading() -> None:
    body = SENTENCE * 8
    document = markdown(f"# Law\n\n## Scope\n\n{body}\n\n## Penalties\n\n{body}")
    first, second = chunk(document, COUNTER)
    assert [first.headings, second.headings] == [("Law", "Scope"), ("Law", "Penalties")]
    assert owned(document, second).startswith("## Penalties")


def test_a_tiny_section_joins_the_next_one_under_the_headings_they_share() -> None:
    document = markdown(f"# Law\n\n## Repealed\n\nNone.\n\n## Scope\n\n{SENTENCE * 8}")
    (only,) = chunk(document, COUNTER)
    assert only.headings == ("Law",)


def test_a_paragraph_within_the_limit_is_not_split() -> None:
    paragraph = (SENTENCE * 36).strip()
    assert 400 < COUNTER.count(paragraph) <= 512
    document = markdown(f"{SENTENCE * 20}\n\n{paragraph}\n\n{SENTENCE * 20}")
    assert any(owned(document, chunk_span).strip() == paragraph for chunk_span in chunk(document, COUNTER))


def test_a_longer_paragraph_is_split_between_sentences() -> None:
    document = markdown("".join(SENTENCE.format(number) for number in range(100)).strip())
    chunks = chunk(document, COUNTER)
    assert len(chunks) > 1
    assert all(owned(document, chunk_span).strip().endswith("ten years.") for chunk_span in chunks)


def test_a_longer_sentence_is_split_between_clauses() -> None:
    document = markdown("Records shall be kept, " * 400)
    assert all(owned(document, chunk_span).strip().endswith(",") for chunk_span in chunk(document, COUNTER))


def test_a_chunk_begins_with_whole_sentences_of_the_one_before() -> None:
    document = markdown("".join(SENTENCE.format(number) for number in range(100)).strip())
    chunks = chunk(document, COUNTER)
    for before, chunk_span in pairwise(chunks):
        overlap = document.text[chunk_span.span.start : chunk_span.raws[0].start]
        assert overlap.strip().startswith("The records of system")
        assert overlap.strip().endswith("ten years.")
        assert 0.10 * before.tokens * 0.8 <= COUNTER.count(overlap) <= 51


def test_without_overlap_chunks_follow_each_other() -> None:
    document = markdown(SENTENCE * 100)
    chunks = chunk(document, COUNTER, ChunkSettings(overlap=0.0))
    assert "".join(texts(document, chunks)) == document.text


def test_a_table_is_split_between_rows() -> None:
    document = markdown("| name | value |\n|---|---|\n" + "| retention of records | ten years |\n" * 200)
    assert [block.kind for block in document.blocks] == [BlockKind.TABLE]
    assert all(owned(document, chunk_span).endswith("|\n") for chunk_span in chunk(document, COUNTER))


@pytest.mark.parametrize("cluster", ["e\u0301", "e\u0301\u0323", "k\u0308\u0301\u0323\u0330"])
def test_characters_of_several_code_points_stay_whole(cluster: str) -> None:
    document = markdown(cluster * 3000)
    for chunk_span in chunk(document, COUNTER):
        assert owned(document, chunk_span)[0] == chunk_span.span.of(document.text)[0] == cluster[0]


def test_right_to_left_text_is_split_between_words() -> None:
    document = markdown("تحفظ السجلات عشر سنوات " * 300)
    assert all(owned(document, chunk_span)[0] == " " for chunk_span in chunk(document, COUNTER)[1:])


def test_ten_thousand_tiny_paragraphs_make_chunks_of_a_useful_size() -> None:
    document = markdown("".join(f"Rule {number} applies.\n\n" for number in range(10_000)))
    chunks = chunk(document, COUNTER)
    assert min(chunk_span.tokens for chunk_span in chunks) > 200
    assert len(chunks) < 400


@pytest.mark.parametrize("run", ["a", "qzx", "中", " \t", "\u0301", "word ", "a, "])
def test_two_million_characters_without_a_blank_line_are_split_in_time(run: str) -> None:
    document = markdown("x" + run * (2_000_000 // len(run)) + "x")
    started = time.process_time()
    chunks = chunk(document, COUNTER)
    assert time.process_time() - started < 30
    assert "".join(owned(document, chunk_span) for chunk_span in chunks) == document.text
    assert max(chunk_span.tokens for chunk_span in chunks) <= 563


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="tokens_target"):
        ChunkSettings(tokens_max=100, tokens_target=200)
