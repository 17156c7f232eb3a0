"""The source registry: what a source is after documents and facts come and go."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from drillcore_server.facts.counters import counted
from drillcore_server.facts.model import Fact, FactStatus, fact_hash
from drillcore_server.hierarchy.model import Document
from drillcore_server.hierarchy.source_model import SourceStatus, SourceType, described_as, registered, succeeding
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
    """A source as earlier servers stored it."""

    id: SourceId
    version: int
    document: DocumentId | None
    content_hash: str
    first_seen_at: datetime
    changed_at: datetime


def test_a_source_is_active_then_updated_then_removed() -> None:
    first = succeeding(None, DOCUMENT, AT)
    assert (first.status, first.version, first.title, first.uri) == (SourceStatus.ACTIVE, 1, "Rules", ID)
    assert first.source_type is SourceType.WEB
    second = succeeding(replace(first, fact_count=3), replace(DOCUMENT, title="Rules 2"), LATER)
    assert (second.status, second.version, second.title) == (SourceStatus.UPDATED, 2, "Rules 2")
    assert (second.fact_count, second.first_seen_at, second.changed_at) == (3, AT, LATER)
    left = second.left(LATER)
    assert (left.status, left.document, left.title) == (SourceStatus.REMOVED, None, "Rules 2")


def test_a_source_that_only_facts_were_put_of_is_active_and_the_users() -> None:
    source = registered(ID, AT)
    assert (source.status, source.version, source.document) == (SourceStatus.ACTIVE, 0, None)
    assert described_as(source).type is SourceType.USER
    assert succeeding(source, DOCUMENT, LATER).version == 1
    assert described_as(None).type is SourceType.USER


def test_deleted_facts_do_not_count() -> None:
    deleted = replace(FACT, status=FactStatus.DELETED)
    stale = replace(FACT, status=FactStatus.STALE)
    assert [counted(None, FACT), counted(FACT, stale), counted(stale, deleted), counted(FACT, None)] == [1, 0, -1, -1]
    assert [counted(None, deleted), counted(deleted, None)] == [0, 0]


def test_a_record_from_before_sources_had_types_is_read() -> None:
    fields = ("id", "version", "document", "content_hash", "first_seen_at", "changed_at")
    whole = SOURCE.encode(succeeding(None, DOCUMENT, AT))
    assert SOURCE.decode(whole) == succeeding(None, DOCUMENT, AT)
    old = RecordKind(_Before).encode(_Before(*(getattr(registered(ID, AT), name) for name in fields)))
    assert SOURCE.decode(old) == replace(registered(ID, AT), uri="", source_type=None)
