"""Signed exports of corpora: the bundle is written piece by piece as it comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from drillcore import _convert_nodes
from drillcore._call import Id, id_text
from drillcore._convert_nodes import AsOf
from drillcore._download import Whole, WritableFile, download
from drillcore._export_results import ExportFormat, ExportResult
from drillcore._upload import Upload
from drillcore_proto.v1 import exports_pb2 as pb

_PATH: Final = "/drillcore_proto.v1.ExportService/ExportCorpus"
_FORMATS: Final = {
    ExportFormat.JSON: pb.EXPORT_FORMAT_JSON,
    ExportFormat.MARKDOWN: pb.EXPORT_FORMAT_MARKDOWN,
    ExportFormat.PDF: pb.EXPORT_FORMAT_PDF,
}


def export_corpus(
    corpus_id: Id,
    file: WritableFile,
    *,
    format: ExportFormat = ExportFormat.JSON,  # noqa: A002 - the word for it
    as_of: AsOf | None = None,
    include_audit: bool = True,
    on_bytes: Callable[[int], object] | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Upload[ExportResult]:
    """Write a signed copy of a corpus, a ZIP file that `drillcore verify` checks, into a file that is open for bytes.

    `on_bytes` hears how many have come so far; the first come when the whole bundle is made and recorded. What is in
    the file after a failure is not whole. A bundle is made once: after a failure make another, with a new request id.
    """
    request = pb.ExportCorpusRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        format=_FORMATS[format],
        as_of=_convert_nodes.as_of_message(as_of),
        include_audit=include_audit,
    )
    return download(_PATH, request, file, _part, on_bytes, request_id, timeout_s)


def _part(answer: bytes) -> bytes | Whole[ExportResult]:
    response = pb.ExportCorpusResponse.FromString(answer)
    if response.WhichOneof("part") != "done":
        return response.data
    done = response.done
    result = ExportResult(
        UUID(done.export_id), done.revision, done.size_bytes, done.bundle_sha256.hex(), UUID(done.record_id)
    )
    return Whole(done.size_bytes, done.bundle_sha256, result)
