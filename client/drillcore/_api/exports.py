"""Signed exports of corpora."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from drillcore._api.messages import AsOf, as_of_message, enum_number
from drillcore._transport.call import Id, id_text
from drillcore._transport.download import Whole, WritableFile, download
from drillcore._transport.upload import Upload
from drillcore_proto.v1 import exports_pb2 as pb


class ExportFormat(enum.Enum):
    JSON = "json"
    """Canonical JSON (RFC 8785)."""
    MARKDOWN = "markdown"
    PDF = "pdf"
    """PDF with a PAdES digital signature."""


@dataclass(frozen=True, slots=True)
class ExportResult:
    export_id: UUID
    revision: int
    """The revision of the corpus that was exported."""
    size_bytes: int
    sha256: str
    """SHA-256 of the bundle, in hex. The received file matches what the server recorded."""
    record_id: UUID
    """The id of the audit record."""


_PATH: Final = "/drillcore_proto.v1.ExportService/ExportCorpus"


def export_corpus(
    corpus_id: Id,
    file: WritableFile,
    *,
    format: ExportFormat = ExportFormat.JSON,  # noqa: A002 - the usual name
    as_of: AsOf | None = None,
    include_audit: bool = True,
    on_bytes: Callable[[int], object] | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Upload[ExportResult]:
    """Write a signed copy of a corpus to an open binary file. It is a ZIP file that `drillcore verify` checks.

    `on_bytes` is called with the number of bytes so far. The first bytes arrive once the server has made and recorded
    the whole bundle. After a failure the file is incomplete: make another bundle, with a new request id.
    """
    request = pb.ExportCorpusRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        format=enum_number(pb.ExportFormat, format),
        as_of=as_of_message(as_of),
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
