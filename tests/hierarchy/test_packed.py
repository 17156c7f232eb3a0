"""Chunks and sections are read from the store exactly as they were written, whatever a client put there."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime
from uuid import UUID

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_fdb.errors import StoreCorruptError
from drillcore_server.hierarchy.digests import Entity, MadeBy
from drillcore_server.hierarchy.model import Chunk, Citation, Excerpt, Raw, RawPage, Section
from drillcore_server.hierarchy.packed import (
    SECTION,
    ChunkWithRaws,
    _PackedSection,
    decode_chunk,
    decode_whole_chunk,
    encode_chunk,
    encode_raws,
    encode_whole_chunk,
)
from drillcore_server.storage.ids import DocumentId, NodeId, PrincipalId, SourceId, Span

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
SPANS = st.builds(lambda start, length: Span(start, start + length), st.integers(0, 9_999), st.integers(0, 9_999))
WEIGHTS = st.floats(0, 1)
EXCERPTS = st.lists(st.builds(Excerpt, SPANS, WEIGHTS), max_size=5).map(tuple)
IDS = st.uuids()
CITATIONS = st.builds(
    Citation, st.sampled_from([UUID(int=1), UUID(int=2)]), st.sampled_from([UUID(int=3), UUID(int=4)]), SPANS, WEIGHTS
)
RAWS = st.tuples(SPANS, TEXTS)
CHUNKS = st.builds(
    Chunk,
    id=IDS,
    document=IDS,
    source=TEXTS,
    ordinal=st.integers(0, 9_999),
    span=SPANS,
    headings=st.lists(TEXTS, max_size=3).map(tuple),
    page=st.none() | st.integers(1, 999),
    tokens=st.integers(0, 9_999),
    summary=EXCERPTS,
    summary_text=TEXTS,
    quotes=EXCERPTS,
    candidates=EXCERPTS,
    entities=st.lists(st.builds(Entity, TEXTS, TEXTS), max_size=3).map(tuple),
    keywords=st.lists(TEXTS, max_size=3).map(tuple),
    made_by=st.builds(MadeBy, TEXTS, TEXTS, st.none() | TEXTS),
    created_at=st.datetimes(timezones=st.just(UTC)),
    created_by=TEXTS,
    version=st.integers(1, 9),
    raw_ids=st.lists(IDS, max_size=3).map(tuple),
    embedded=st.binary(max_size=12),
    overlap=st.integers(0, 999),
)
AT = datetime(2026, 1, 2, tzinfo=UTC)
BY = PrincipalId("operator")
VECTOR = np.linspace(-1, 1, 256).astype("<f4").tobytes()
A_SECTION = Section(
    id=NodeId(UUID(int=9)),
    title="Records",
    category="records",
    summary="Records are kept.",
    citations=(),
    candidates=(),
    keywords=("records",),
    tokens=4,
    made_by=MadeBy("extractive", "1"),
    entities=(Entity("date", "2026-01-02"),),
    documents=1,
    chunks=1,
    vector_sum=VECTOR,
    created_at=AT,
    created_by=BY,
)


A_CHUNK = Chunk(
    NodeId(UUID(int=256)), DocumentId(UUID(int=1)), SourceId("s"), 0, Span(0, 17), (), None,
    45, (), "", (), (), (), (), MadeBy("extractive", "1"), AT, BY,
)  # fmt: skip


def cut(document: UUID, start: int, contents: list[str]) -> RawPage:
    raws = []
    for content in contents:
        span = Span(start, start + len(content))
        raws.append(Raw(DocumentId(document), span, content))
        start = span.end
    return RawPage(tuple(raws))


def check_is_read_back(chunk: Chunk, page: RawPage) -> None:
    written = ChunkWithRaws(chunk, page)
    placed = decode_chunk(chunk.id, encode_chunk(chunk, page))
    assert (placed.chunk, placed.raws) == (chunk, tuple(raw.span for raw in page.raws))
    assert placed.with_raws(encode_raws(page)) == written
    assert decode_whole_chunk(chunk.id, encode_whole_chunk(written)) == written


@given(CHUNKS, st.lists(TEXTS, min_size=1, max_size=4))
def test_a_chunk_and_its_raws_are_read_back_unchanged(chunk: Chunk, pieces: list[str]) -> None:
    page = cut(chunk.document, chunk.span.start, pieces)
    check_is_read_back(replace(chunk, span=Span(chunk.span.start, page.raws[-1].span.end)), page)


@given(CHUNKS, st.lists(RAWS, max_size=3))
def test_raws_that_do_not_fit_their_chunk_are_kept_unchanged(chunk: Chunk, raws: list[tuple[Span, str]]) -> None:
    check_is_read_back(chunk, RawPage(tuple(Raw(chunk.document, span, text) for span, text in raws)))


def test_a_text_for_each_raw_is_there_or_the_record_is_damaged() -> None:
    page = cut(UUID(int=1), 0, ["Records are kept.", "Registers too."])
    placed = decode_chunk(A_CHUNK.id, encode_chunk(replace(A_CHUNK, span=page.span), page))
    with pytest.raises(StoreCorruptError, match="raw"):
        placed.with_raws(encode_raws(RawPage(page.raws[:1])))


@given(st.lists(CITATIONS, max_size=6).map(tuple), st.lists(CITATIONS, max_size=6).map(tuple))
def test_a_section_is_read_back_unchanged(citations: tuple[Citation, ...], candidates: tuple[Citation, ...]) -> None:
    section = replace(A_SECTION, citations=(*citations, *candidates[:2]), candidates=candidates)
    assert SECTION.decode(SECTION.encode(section)) == section


def test_text_of_the_chunk_and_repeated_values_are_stored_once() -> None:
    text = "Each record of the audit trail must be kept for at least ten years. " * 3
    best = tuple(Excerpt(Span(start, start + 67), 0.5) for start in (100_000, 100_068, 100_136))
    span = Span(100_000, 100_000 + len(text))
    chunk = replace(A_CHUNK, span=span, summary=best, quotes=best, candidates=best)
    page = cut(chunk.document, 100_000, [text])
    assert len(encode_chunk(chunk, page)) < 120
    assert len(encode_raws(page)) < len(text) + 6
    assert encode_whole_chunk(ChunkWithRaws(chunk, page)).count(text.encode()) == 1


def test_a_number_without_an_entry_is_damage() -> None:
    cited = Citation(DocumentId(UUID(int=1)), NodeId(UUID(int=3)), Span(0, 1), 1.0)
    record = msgspec.msgpack.decode(SECTION.encode(replace(A_SECTION, citations=(cited,))))
    place = [field.name for field in fields(_PackedSection)].index("citations")
    record[place] = [7]
    with pytest.raises(StoreCorruptError, match="section"):
        SECTION.decode(msgspec.msgpack.encode(record))
