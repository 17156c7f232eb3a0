"""ExportService: requests to commands, results to responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import exports_pb2 as pb
from drillcore_server.exports.export import Exporter, ExportOrder, export_corpus
from drillcore_server.exports.store import Export, ExportFormat
from drillcore_server.hierarchy.service import as_of
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.messages import corpus_id, one_request, optional_tenant_id
from drillcore_server.kernel.unit import Call

_FORMATS = {
    pb.EXPORT_FORMAT_JSON: ExportFormat.JSON,
    pb.EXPORT_FORMAT_MARKDOWN: ExportFormat.MARKDOWN,
    pb.EXPORT_FORMAT_PDF: ExportFormat.PDF,
}


class ExportService:
    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter

    def ExportCorpus(
        self,
        requests: Iterator[pb.ExportCorpusRequest],
        call: Call,
        emit: Callable[[pb.ExportCorpusResponse], None],
    ) -> None:
        request, known = one_request(requests, call)
        export = export_corpus(
            self._exporter, known, _order(request), lambda piece: emit(pb.ExportCorpusResponse(data=piece))
        )
        emit(pb.ExportCorpusResponse(done=_done(export)))


def _order(request: pb.ExportCorpusRequest) -> ExportOrder:
    if request.format not in _FORMATS:
        raise BadInput(Reason.INVALID_ARGUMENT, "format must be JSON, MARKDOWN or PDF", field="format")
    return ExportOrder(
        optional_tenant_id(request.tenant_id),
        corpus_id(request.corpus_id, "corpus_id"),
        _FORMATS[request.format],
        as_of(request.as_of),
        request.include_audit if request.HasField("include_audit") else True,
    )


def _done(export: Export) -> pb.ExportDone:
    return pb.ExportDone(
        export_id=str(export.id),
        revision=export.revision,
        bundle_sha256=export.bundle_sha256,
        size_bytes=export.size_bytes,
        record_id=str(export.record),
    )
