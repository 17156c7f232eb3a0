"""Signed exports of corpora: the bundle is written piece by piece as it comes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final
from uuid import UUID

import grpc

from drillcore import _convert_nodes
from drillcore._call import Id, id_text
from drillcore._convert_nodes import AsOf
from drillcore._download import WritableFile, one_request
from drillcore._export_results import ExportFormat, ExportResult
from drillcore._upload import Listener, Upload
from drillcore.errors import Internal
from drillcore_proto.reasons import Reason
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
    return Upload(
        _PATH, request, (), one_request, lambda listener: _Bundle(file, listener), on_bytes, request_id, timeout_s
    )


class _Bundle:
    """Writes each piece as it comes, and checks that all of them came."""

    def __init__(self, file: WritableFile, on_bytes: Listener | None) -> None:
        self._file = file
        self._on_bytes = on_bytes
        self._hash = hashlib.sha256()
        self._size_bytes = 0
        self._done: pb.ExportDone | None = None

    def take(self, answer: bytes) -> None:
        response = pb.ExportCorpusResponse.FromString(answer)
        if response.WhichOneof("part") == "done":
            self._done = response.done
            return
        self._file.write(response.data)
        self._hash.update(response.data)
        self._size_bytes += len(response.data)
        if self._on_bytes is not None:
            self._on_bytes(self._size_bytes)

    def result(self, request_id: str) -> ExportResult:
        done = self._done
        if done is None or (done.size_bytes, done.bundle_sha256) != (self._size_bytes, self._hash.digest()):
            raise _not_whole(request_id)
        return ExportResult(
            UUID(done.export_id), done.revision, done.size_bytes, done.bundle_sha256.hex(), UUID(done.record_id)
        )


def _not_whole(request_id: str) -> Internal:
    message = "the bundle did not come whole; make the export again, with a new request id"
    code = grpc.StatusCode.INTERNAL
    return Internal(message, reason_name=Reason.INTERNAL.name, code=code, request_id=request_id)
