"""The source registry: the state of a source after documents and facts come and go."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from drillcore_server.facts.model import Fact, FactStatus, fact_hash
from drillcore_server.facts.sources import count_change
from drillcore_server.hierarchy.model import Document
from drillcore_server.hierarchy.source_model import (
    SourceStatus,
    SourceType,
    description_of,
    next_version,
    source_without_document,
)
from drillcore_server.hierarchy.store import SOURCE
from drillcore_server.storage.ids import DocumentId, FactId, PrincipalId, SourceId
from drillcore_server.storage.records import RecordKind

AT = datetime(2026, 1, 1, tzinfo=UTC)
LATER = AT + timedelta(days=1)
ID = SourceId("https://site.example/rules")
DOCUMENT = Document(
    id=DocumentId(UUID(int=1)),
    source=ID,
    source_version=1,
    title="Rules",
    media_type="text/plain",
    content_hash="ab",
    preprocessing=(),
    metadata={},
    chunks=(),
    raws=0,
    characters=0,
    tokens=0,
    created_at=AT,
    created_by=PrincipalId("ann"),
)
FACT = Fact(
    id=FactId(UUID(int=2)),
    content="x",
    content_hash=fact_hash("x"),
    tokens=1,
    source=ID,
    source_location="",
    importance=0.5,
    ingested_at=AT,
    modified_at=AT,
    created_by=PrincipalId("ann"),
    metadata={},
)


@dataclass(frozen=True, slots=True)
class _Before:
    """The record of a source as earlier servers stored it."""

    id: SourceId
    version: int
    document: DocumentId | None
    content_hash: str
    first_seen_at: datetime
    changed_at: datetime


def test_a_source_is_active_then_updated_then_removed() -> None:
    first = next_version(None, DOCUMENT, AT)
    assert (first.status, first.version, first.title, first.uri) == (SourceStatus.ACTIVE, 1, "Rules", ID)
    assert first.source_type is SourceType.WEB
    second = next_version(replace(first, fact_count=3), replace(DOCUMENT, title="Rules 2"), LATER)
    assert (second.status, second.version, second.title) == (SourceStatus.UPDATED, 2, "Rules 2")
    assert (second.fact_count, second.first_seen_at, second.changed_at) == (3, AT, LATER)
    removed = second.without_document(LATER)
    assert (removed.status, removed.document, removed.title) == (SourceStatus.REMOVED, None, "Rules 2")


def test_a_source_with_facts_but_no_document_is_active_and_of_type_user() -> None:
    source = source_without_document(ID, AT)
    assert (source.status, source.version, source.document) == (SourceStatus.ACTIVE, 0, None)
    assert description_of(source).type is SourceType.USER
    assert next_version(source, DOCUMENT, LATER).version == 1
    assert description_of(None).type is SourceType.USER


def test_deleted_facts_do_not_count() -> None:
    deleted = replace(FACT, status=FactStatus.DELETED)
    stale = replace(FACT, status=FactStatus.STALE)
    assert [
        count_change(None, FACT),
        count_change(FACT, stale),
        count_change(stale, deleted),
        count_change(FACT, None),
    ] == [1, 0, -1, -1]
    assert [count_change(None, deleted), count_change(deleted, None)] == [0, 0]


def test_a_record_from_before_sources_had_types_is_read() -> None:
    fields = ("id", "version", "document", "content_hash", "first_seen_at", "changed_at")
    whole = SOURCE.encode(next_version(None, DOCUMENT, AT))
    assert SOURCE.decode(whole) == next_version(None, DOCUMENT, AT)
    old = RecordKind(_Before).encode(_Before(*(getattr(source_without_document(ID, AT), name) for name in fields)))
    assert SOURCE.decode(old) == replace(source_without_document(ID, AT), uri="", source_type=None)
