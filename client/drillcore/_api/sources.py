"""Sources of documents and facts, and their erasure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore._api.messages import AsOf, as_of_message, enum_member, optional_datetime, to_datetime, to_id
from drillcore._transport.call import Call, Id, Page, id_text
from drillcore_proto.v1 import sources_pb2 as pb


class SourceStatus(enum.Enum):
    ACTIVE = "active"
    UPDATED = "updated"
    """The content has changed since the first version."""
    REMOVED = "removed"
    """Its document was removed."""


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of documents and facts of a corpus."""

    id: str
    corpus_id: UUID
    title: str
    uri: str
    """The location of the document, if its id or metadata name one."""
    source_type: str
    """regulatory, official, research, internal, web or user."""
    status: SourceStatus
    version: int
    """1 for the first content; every change adds one."""
    document_id: UUID | None
    """The document with its current content."""
    document_hash: str
    """SHA-256 of the UTF-8 bytes of the text, in hex."""
    fact_count: int
    """How many of its facts are not deleted."""
    ingested_at: datetime
    """When it was first ingested."""
    changed_at: datetime
    revision: int = field(compare=False)
    """The revision of the corpus that was read."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """The erasure of a source. It does not name the source, and is itself never erased."""

    id: UUID
    corpus_id: UUID
    erased_at: datetime
    erased_by: str
    revision: int
    """The first revision without the source. At earlier revisions the source cannot be read."""
    erased_keys: tuple[int, ...]
    """The numbers of the destroyed keys."""
    documents: int
    chunks: int
    facts: int
    sections_regenerated: int
    purge_due: datetime
    """When the unreadable bytes are removed at the latest."""
    purged_at: datetime | None
    """None if they are not removed yet."""
    audit_record_id: UUID | None
    """The audit record that proves the erasure."""


@dataclass(frozen=True, slots=True)
class Purged:
    """The result of a purge of erased sources."""

    erasures: int
    """How many erasures this call purged."""
    records_removed: int
    finished: bool
    """False if there is more to remove: call again, or leave it to the server."""


def to_source(message: pb.Source, revision: int) -> Source:
    return Source(
        id=message.source_id,
        corpus_id=UUID(message.corpus_id),
        title=message.title,
        uri=message.uri,
        source_type=message.source_type,
        status=enum_member(SourceStatus, pb.SourceStatus, message.status),
        version=message.version,
        document_id=to_id(message.document_id),
        document_hash=message.document_hash,
        fact_count=message.fact_count,
        ingested_at=to_datetime(message.ingested_at),
        changed_at=to_datetime(message.changed_at),
        revision=revision,
    )


def to_sources(message: pb.ListSourcesResponse) -> Page[Source]:
    return Page(tuple(to_source(source, message.revision) for source in message.sources), message.next_page_token)


def to_erasure(message: pb.Erasure) -> Erasure:
    return Erasure(
        id=UUID(message.id),
        corpus_id=UUID(message.corpus_id),
        erased_at=to_datetime(message.erased_at),
        erased_by=message.erased_by,
        revision=message.revision,
        erased_keys=tuple(message.erased_keys),
        documents=message.documents,
        chunks=message.chunks,
        facts=message.facts,
        sections_regenerated=message.sections_regenerated,
        purge_due=to_datetime(message.purge_due),
        purged_at=optional_datetime(message, "purged_at"),
        audit_record_id=to_id(message.audit_record_id),
    )


def to_erasures(message: pb.ListErasuresResponse) -> Page[Erasure]:
    return Page(tuple(map(to_erasure, message.erasures)), message.next_page_token)


def to_purged(message: pb.PurgeErasedResponse) -> Purged:
    return Purged(message.erasures, message.records_removed, message.finished)


_SOURCES: Final = "/drillcore_proto.v1.SourceService/"


def get_source(
    corpus_id: Id,
    source_id: str,
    *,
    as_of: AsOf | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Source]:
    """A source of a corpus, with the number of its facts. Raises NotFound."""

    def decode(answer: bytes) -> Source:
        response = pb.GetSourceResponse.FromString(answer)
        return to_source(response.source, response.revision)

    request = pb.GetSourceRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        source_id=source_id,
        as_of=as_of_message(as_of),
    )
    return Call(f"{_SOURCES}GetSource", request, decode, request_id, timeout_s)


def list_sources(
    corpus_id: Id,
    *,
    as_of: AsOf | None = None,
    page_size: int = 0,
    page_token: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Page[Source]]:
    """One page of the sources of a corpus."""

    def decode(answer: bytes) -> Page[Source]:
        return to_sources(pb.ListSourcesResponse.FromString(answer))

    request = pb.ListSourcesRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        as_of=as_of_message(as_of),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_SOURCES}ListSources", request, decode, request_id, timeout_s)


def erase_source(
    corpus_id: Id,
    source_id: str,
    *,
    reason: str,
    purge_now: bool = False,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Erasure]:
    """Make everything from a source unreadable, at every revision. This cannot be undone.

    The same revision makes sections, master and communities again from what is left. `reason` is part of the audit
    record. The unreadable bytes are removed some days later, or now with `purge_now`. Raises NotFound, or
    FailedPrecondition if the corpus is on legal hold or the source was erased already.
    """

    def decode(answer: bytes) -> Erasure:
        return to_erasure(pb.EraseSourceResponse.FromString(answer).erasure)

    request = pb.EraseSourceRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        source_id=source_id,
        reason=reason,
        purge_now=purge_now,
    )
    return Call(f"{_SOURCES}EraseSource", request, decode, request_id, timeout_s)


def list_erasures(
    corpus_id: Id,
    *,
    page_size: int = 0,
    page_token: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Page[Erasure]]:
    """One page of the erasures of a corpus."""

    def decode(answer: bytes) -> Page[Erasure]:
        return to_erasures(pb.ListErasuresResponse.FromString(answer))

    request = pb.ListErasuresRequest(
        tenant_id=id_text(tenant_id), corpus_id=id_text(corpus_id), page_size=page_size, page_token=page_token
    )
    return Call(f"{_SOURCES}ListErasures", request, decode, request_id, timeout_s)


def purge_erased(
    corpus_id: Id,
    *,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Purged]:
    """Remove the unreadable bytes of erased sources now. The server does this on its own some days after an erasure.

    If the purge is not `finished`, the next call continues it.
    """

    def decode(answer: bytes) -> Purged:
        return to_purged(pb.PurgeErasedResponse.FromString(answer))

    request = pb.PurgeErasedRequest(tenant_id=id_text(tenant_id), corpus_id=id_text(corpus_id))
    return Call(f"{_SOURCES}PurgeErased", request, decode, request_id, timeout_s)
