"""Prepared documents come back from a spool as they went in, and its file tells nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from drillcore_server.domain.ids import PrincipalId, SourceId
from drillcore_server.ingest import builtin
from drillcore_server.ingest.parsing import Unparsable, parse
from drillcore_server.ingest.prepare import Origin, PreparedDocument
from drillcore_server.ingest.spool import Incoming, Spool

AT, BY = datetime(2026, 1, 1, tzinfo=UTC), PrincipalId("me")


def prepared(number: int) -> PreparedDocument:
    text = (
        f"# Rule {number}\n\nThe auditor keeps record {number} for ten years, and shows it to whoever may ask for it.\n"
    )
    (parsed,) = parse(text.encode(), name=f"{number}.md", media_type=None)
    assert not isinstance(parsed, Unparsable)
    return builtin.preparer().prepare(parsed, Origin(SourceId(f"s{number}"), 1, AT, BY))


DOCUMENTS = [prepared(number) for number in range(4)]


def same(one: PreparedDocument, other: PreparedDocument) -> bool:
    """Vectors are arrays, which have no equality of their own."""
    chunks = zip(one.chunks, other.chunks, strict=True)
    return one.document == other.document and all(
        (a.chunk, a.page, a.vector.tobytes()) == (b.chunk, b.page, b.vector.tobytes()) for a, b in chunks
    )


@pytest.mark.parametrize("in_memory", [0, 1, 2, 4])
def test_documents_come_back_as_they_went_in_from_memory_or_from_the_file(in_memory: int) -> None:
    spool = Spool(sum(one.document.characters for one in DOCUMENTS[:in_memory]))
    for one in DOCUMENTS:
        spool.append(one)
    for number in (3, 0, 2, 1, 2, 3):
        assert same(spool[number], DOCUMENTS[number])
    assert [one.id for one in spool.documents] == [one.document.id for one in DOCUMENTS]
    assert (spool._file is not None) == (in_memory < len(DOCUMENTS))
    spool.close()


def test_the_file_holds_nothing_that_can_be_read_and_is_gone_with_the_spool() -> None:
    spool = Spool(0)
    for one in DOCUMENTS:
        spool.append(one)
    assert spool._file is not None
    spool._file.seek(0)
    stored = spool._file.read()
    assert len(stored) > 1_000
    assert b"auditor" not in stored
    assert b"drillcore" not in stored
    spool.close()
    assert spool._file.closed


def test_a_plan_sees_those_it_wants_with_their_records_as_it_wants_them() -> None:
    spool = Spool(0)
    for one in DOCUMENTS:
        spool.append(one)
    wanted = [(number, replace(DOCUMENTS[number].document, source_version=7)) for number in (3, 1)]
    incoming = Incoming(spool, wanted)
    assert [one.document for one in incoming] == [record for _, record in wanted]
    assert [one.chunks[0].chunk for one in incoming] == [DOCUMENTS[3].chunks[0].chunk, DOCUMENTS[1].chunks[0].chunk]
    assert [one.document.source for one in incoming[1:]] == ["s1"]
    spool.close()
