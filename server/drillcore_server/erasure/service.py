"""SourceService: requests to commands, results to responses."""

from __future__ import annotations

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import sources_pb2 as pb
from drillcore_server.erasure.destroy_keys import Eraser
from drillcore_server.erasure.erase import erase_source, list_erasures
from drillcore_server.erasure.purge import purge_erased
from drillcore_server.facts.sources import get_source, list_sources
from drillcore_server.hierarchy.service import as_of
from drillcore_server.hierarchy.source_model import Source, SourceStatus
from drillcore_server.kernel.corpus_at_revision import CorpusReads
from drillcore_server.kernel.erasures import Erasure
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.messages import corpus_id, optional_tenant_id, timestamp
from drillcore_server.kernel.revise import Target
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import SOURCE_CHARACTERS_MAX, CorpusId, SourceId

_STATUSES = {
    SourceStatus.ACTIVE: pb.SOURCE_STATUS_ACTIVE,
    SourceStatus.UPDATED: pb.SOURCE_STATUS_UPDATED,
    SourceStatus.REMOVED: pb.SOURCE_STATUS_REMOVED,
}


class SourceService:
    def __init__(self, reads: CorpusReads, eraser: Eraser) -> None:
        self._reads = reads
        self._eraser = eraser

    def GetSource(self, request: pb.GetSourceRequest, call: Call) -> pb.GetSourceResponse:
        corpus = corpus_id(request.corpus_id, "corpus_id")
        found, revision = get_source(
            self._reads,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            corpus=corpus,
            source=source_id(request.source_id),
            as_of=as_of(request.as_of),
        )
        return pb.GetSourceResponse(source=source_message(found, corpus), revision=revision)

    def ListSources(self, request: pb.ListSourcesRequest, call: Call) -> pb.ListSourcesResponse:
        corpus = corpus_id(request.corpus_id, "corpus_id")
        found = list_sources(
            self._reads,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            corpus=corpus,
            as_of=as_of(request.as_of),
            size=request.page_size,
            token=request.page_token,
        )
        sources = [source_message(source, corpus) for source in found.sources]
        return pb.ListSourcesResponse(sources=sources, next_page_token=found.next_token, revision=found.revision)

    def EraseSource(self, request: pb.EraseSourceRequest, call: Call) -> pb.EraseSourceResponse:
        target = _target(request)
        source, purge_now = SourceId(request.source_id), request.purge_now
        erased = erase_source(self._eraser, call, target, source, reason=request.reason, purge_now=purge_now)
        return pb.EraseSourceResponse(erasure=erasure_message(erased, target.corpus), revision=erased.revision)

    def ListErasures(self, request: pb.ListErasuresRequest, call: Call) -> pb.ListErasuresResponse:
        corpus = corpus_id(request.corpus_id, "corpus_id")
        found = list_erasures(
            self._reads,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            corpus=corpus,
            size=request.page_size,
            token=request.page_token,
        )
        shown = [erasure_message(erasure, corpus) for erasure in found.items]
        return pb.ListErasuresResponse(erasures=shown, next_page_token=found.next_token)

    def PurgeErased(self, request: pb.PurgeErasedRequest, call: Call) -> pb.PurgeErasedResponse:
        done = purge_erased(self._eraser.purger, call, _target(request))
        return pb.PurgeErasedResponse(erasures=done.erasures, records_removed=done.records, finished=done.finished)


def _target(request: pb.EraseSourceRequest | pb.PurgeErasedRequest) -> Target:
    return Target(optional_tenant_id(request.tenant_id), corpus_id(request.corpus_id, "corpus_id"))


def erasure_message(erasure: Erasure, corpus: CorpusId) -> pb.Erasure:
    return pb.Erasure(
        id=str(erasure.id),
        corpus_id=str(corpus),
        erased_at=timestamp(erasure.at),
        erased_by=erasure.by,
        revision=erasure.revision,
        erased_keys=erasure.key_numbers,
        documents=erasure.documents,
        chunks=erasure.chunks,
        facts=erasure.facts,
        sections_regenerated=erasure.sections,
        purge_due=timestamp(erasure.purge_due),
        purged_at=None if erasure.purged_at is None else timestamp(erasure.purged_at),
        audit_record_id=str(erasure.record),
    )


def source_id(text: str, field: str = "source_id") -> SourceId:
    if not 0 < len(text) <= SOURCE_CHARACTERS_MAX:
        message = f"{field} must have 1 to {SOURCE_CHARACTERS_MAX} characters"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field=field)
    return SourceId(text)


def source_message(source: Source, corpus: CorpusId) -> pb.Source:
    return pb.Source(
        source_id=source.id,
        corpus_id=str(corpus),
        title=source.title,
        uri=source.uri,
        document_hash=source.content_hash,
        ingested_at=timestamp(source.first_seen_at),
        changed_at=timestamp(source.changed_at),
        fact_count=source.fact_count,
        status=_STATUSES[source.status],
        document_id=str(source.document or ""),
        version=source.version,
        source_type=source.source_type.value if source.source_type else "",
    )
