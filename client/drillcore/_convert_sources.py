"""Protocol messages about sources and their erasure to results."""

from __future__ import annotations

from uuid import UUID

from drillcore._convert import optional_datetime, to_datetime, to_id
from drillcore._results import Page
from drillcore._source_results import Erasure, Purged, Source, SourceStatus
from drillcore_proto.v1 import sources_pb2 as pb


def source(message: pb.Source, revision: int) -> Source:
    return Source(
        id=message.source_id,
        corpus_id=UUID(message.corpus_id),
        title=message.title,
        uri=message.uri,
        source_type=message.source_type,
        status=SourceStatus[pb.SourceStatus.Name(message.status).removeprefix("SOURCE_STATUS_")],
        version=message.version,
        document_id=to_id(message.document_id),
        document_hash=message.document_hash,
        fact_count=message.fact_count,
        ingested_at=to_datetime(message.ingested_at),
        changed_at=to_datetime(message.changed_at),
        revision=revision,
    )


def sources(message: pb.ListSourcesResponse) -> Page[Source]:
    return Page(tuple(source(one, message.revision) for one in message.sources), message.next_page_token)


def erasure(message: pb.Erasure) -> Erasure:
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


def erasures(message: pb.ListErasuresResponse) -> Page[Erasure]:
    return Page(tuple(map(erasure, message.erasures)), message.next_page_token)


def purged(message: pb.PurgeErasedResponse) -> Purged:
    return Purged(message.erasures, message.records_removed, message.finished)
