"""SourceService: requests to commands, results to responses."""

from __future__ import annotations

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import sources_pb2 as pb
from drillcore_server.commands.erasing import Eraser
from drillcore_server.commands.get_source import get_source
from drillcore_server.commands.list_sources import list_sources
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.ids import CorpusId, SourceId
from drillcore_server.domain.sources import SOURCE_CHARACTERS_MAX, Source, SourceStatus
from drillcore_server.rpc.erasures import ErasureCalls
from drillcore_server.rpc.messages import corpus_id, optional_tenant_id, timestamp
from drillcore_server.rpc.nodes import as_of

_STATUSES = {
    SourceStatus.ACTIVE: pb.SOURCE_STATUS_ACTIVE,
    SourceStatus.UPDATED: pb.SOURCE_STATUS_UPDATED,
    SourceStatus.REMOVED: pb.SOURCE_STATUS_REMOVED,
}


class SourceService(ErasureCalls):
    def __init__(self, library: Library, eraser: Eraser) -> None:
        super().__init__(library, eraser)

    def GetSource(self, request: pb.GetSourceRequest, call: Call) -> pb.GetSourceResponse:
        corpus = corpus_id(request.corpus_id, "corpus_id")
        found, revision = get_source(
            self._library,
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
            self._library,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            corpus=corpus,
            as_of=as_of(request.as_of),
            size=request.page_size,
            token=request.page_token,
        )
        sources = [source_message(one, corpus) for one in found.sources]
        return pb.ListSourcesResponse(sources=sources, next_page_token=found.next_token, revision=found.revision)


def source_id(text: str, field: str = "source_id") -> SourceId:
    if not 0 < len(text) <= SOURCE_CHARACTERS_MAX:
        message = f"{field} needs 1 to {SOURCE_CHARACTERS_MAX} characters"
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
