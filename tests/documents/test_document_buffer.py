"""Prepared documents come back unchanged from a buffer, whether from memory or from its unreadable file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from drillcore_server.documents.ingestion.document_buffer import AddedDocuments, DocumentBuffer
from drillcore_server.documents.ingestion.prepared_documents import Origin, PreparedDocument, builtin_preparer
from drillcore_server.documents.model import ParsedDocument
from drillcore_server.documents.parsers import parse
from drillcore_server.storage.ids import PrincipalId, SourceId
from tests.support.stores.archive import SENTENCES, text_of


@pytest.fixture(scope="module")
def prepared() -> list[PreparedDocument]:
    return [_prepared(topic) for topic in SENTENCES]


def _prepared(topic: str) -> PreparedDocument:
    (parsed,) = parse(text_of(topic, 1, 6).encode(), name="a.md")
    assert isinstance(parsed, ParsedDocument)
    origin = Origin(SourceId(topic), 1, datetime(2026, 1, 1, tzinfo=UTC), PrincipalId("p"))
    return builtin_preparer().prepare(parsed, origin)


@pytest.fixture
def buffer(prepared: list[PreparedDocument]) -> Iterator[DocumentBuffer]:
    """A buffer with the first document in memory and the others in the file."""
    buffer = DocumentBuffer(prepared[0].document.characters)
    for document in prepared:
        buffer.append(document)
    yield buffer
    buffer.close()


def same(actual: PreparedDocument, expected: PreparedDocument) -> bool:
    return actual.document == expected.document and all(
        (a.chunk, a.page, a.vector.tolist()) == (b.chunk, b.page, b.vector.tolist())
        for a, b in zip(actual.chunks, expected.chunks, strict=True)
    )


def test_documents_come_back_as_they_went_in(buffer: DocumentBuffer, prepared: list[PreparedDocument]) -> None:
    assert len(buffer) == len(prepared) > 2
    assert all(same(buffer[number], document) for number, document in enumerate(prepared))


def test_chunks_come_back_one_by_one_in_any_order(buffer: DocumentBuffer, prepared: list[PreparedDocument]) -> None:
    incoming = AddedDocuments(buffer, list(enumerate(buffer.documents)))
    for number in reversed(range(len(prepared))):
        chunks, expected = incoming[number].chunks, prepared[number].chunks
        assert len(chunks) == len(expected) > 1
        assert [chunks[place].chunk for place in (-1, 0)] == [expected[place].chunk for place in (-1, 0)]
        assert [chunk.chunk for chunk in chunks[1:]] == [chunk.chunk for chunk in expected[1:]]
        with pytest.raises(IndexError):
            chunks[len(expected)]


def test_one_chunk_of_a_document_is_read_without_the_others(
    buffer: DocumentBuffer, prepared: list[PreparedDocument], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A section has chunks of many documents. Reading each document whole would take longer the larger the call is."""
    reads: list[int] = []
    decrypt = buffer._cipher.decrypt

    class Counted:
        def decrypt(self, nonce: bytes, data: bytes, more: bytes | None) -> bytes:
            reads.append(len(data))
            return decrypt(nonce, data, more)

    monkeypatch.setattr(buffer, "_cipher", Counted())
    assert buffer[2].chunks[1].chunk == prepared[2].chunks[1].chunk
    assert len(reads) == 1


def test_the_file_has_no_name_and_no_text_that_can_be_read(
    buffer: DocumentBuffer, prepared: list[PreparedDocument]
) -> None:
    assert buffer._file is not None
    buffer._file.flush()
    stored = os.pread(buffer._file.fileno(), 1 << 24, 0)
    assert len(stored) > 10_000
    assert not [word for word in SENTENCES if word.encode() in stored]
    assert os.fstat(buffer._file.fileno()).st_nlink == 0


def test_a_plan_gets_the_documents_it_asks_for_with_the_records_it_gives(
    buffer: DocumentBuffer, prepared: list[PreparedDocument]
) -> None:
    wanted = [(number, replace(prepared[number].document, source_version=7)) for number in (3, 1)]
    incoming = AddedDocuments(buffer, wanted)
    assert [arrival.document for arrival in incoming] == [record for _, record in wanted]
    assert [arrival.chunks[0].chunk for arrival in incoming] == [prepared[number].chunks[0].chunk for number in (3, 1)]
    assert [arrival.document for arrival in incoming[1:]] == [wanted[1][1]]


def test_a_closed_buffer_has_no_file(buffer: DocumentBuffer) -> None:
    assert buffer._file is not None
    buffer.close()
    assert buffer._file.closed
