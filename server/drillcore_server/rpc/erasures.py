"""The calls of SourceService that erase: requests to commands, results to responses."""

from __future__ import annotations

from drillcore_proto.v1 import sources_pb2 as pb
from drillcore_server.commands.erase_source import erase_source
from drillcore_server.commands.erasing import Eraser
from drillcore_server.commands.list_erasures import list_erasures
from drillcore_server.commands.purge_erased import purge_erased
from drillcore_server.commands.revise import Target
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.erasures import Erasure
from drillcore_server.domain.ids import CorpusId, SourceId
from drillcore_server.rpc.messages import corpus_id, optional_tenant_id, timestamp


class ErasureCalls:
    def __init__(self, library: Library, eraser: Eraser) -> None:
        self._library = library
        self._eraser = eraser

    def EraseSource(self, request: pb.EraseSourceRequest, call: Call) -> pb.EraseSourceResponse:
        target = _target(request)
        source, purge_now = SourceId(request.source_id), request.purge_now
        erased = erase_source(self._eraser, call, target, source, reason=request.reason, purge_now=purge_now)
        return pb.EraseSourceResponse(erasure=erasure_message(erased, target.corpus), revision=erased.revision)

    def ListErasures(self, request: pb.ListErasuresRequest, call: Call) -> pb.ListErasuresResponse:
        corpus = corpus_id(request.corpus_id, "corpus_id")
        found = list_erasures(
            self._library,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            corpus=corpus,
            size=request.page_size,
            token=request.page_token,
        )
        shown = [erasure_message(one, corpus) for one in found.items]
        return pb.ListErasuresResponse(erasures=shown, next_page_token=found.next_token)

    def PurgeErased(self, request: pb.PurgeErasedRequest, call: Call) -> pb.PurgeErasedResponse:
        done = purge_erased(self._eraser, call, _target(request))
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
