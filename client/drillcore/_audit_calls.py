"""Calls about the audit trail. See `_calls`.

Each is about one log: the caller's tenant's, or with `server_log` the server's own, for operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from drillcore import _convert_audit as convert
from drillcore._audit_results import (
    AuditCheck,
    AuditFilter,
    AuditFormat,
    AuditRecord,
    LogCheckpoint,
    RecordProof,
    Review,
    RotatedKey,
)
from drillcore._call import Call, Id, Pages, id_text
from drillcore._download import Download, WritableFile, one_request
from drillcore._results import Page
from drillcore._upload import Upload
from drillcore_proto.v1 import audit_pb2 as pb

_AUDIT: Final = "/drillcore_proto.v1.AuditService/"
_EVERYTHING: Final = AuditFilter()


def query_audit(
    wanted: AuditFilter = _EVERYTHING,
    *,
    server_log: bool = False,
    page_size: int = 0,
    page_token: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Page[AuditRecord]]:
    """One page of the records that match, newest first. Auditors only."""

    def decode(answer: bytes) -> Page[AuditRecord]:
        return convert.records(pb.QueryAuditResponse.FromString(answer))

    request = pb.QueryAuditRequest(
        tenant_id=id_text(tenant_id),
        server_log=server_log,
        filter=convert.filter_message(wanted),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_AUDIT}QueryAudit", request, decode, request_id, timeout_s)


def iter_audit(
    wanted: AuditFilter = _EVERYTHING,
    *,
    server_log: bool = False,
    page_size: int = 0,
    tenant_id: Id | None = None,
    timeout_s: float | None = None,
) -> Pages[AuditRecord]:
    """Every record that matches, newest first, fetched page by page. `timeout_s` is for each page."""
    return lambda token: query_audit(
        wanted,
        server_log=server_log,
        page_size=page_size,
        page_token=token,
        tenant_id=tenant_id,
        timeout_s=timeout_s,
    )


def wait_proof(
    record_id: Id | None = None,
    *,
    of_request: str | None = None,
    without_content: bool = False,
    server_log: bool = False,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[RecordProof]:
    """The proof that a record is in the log, as soon as it is. Raises NotFound.

    The record is named by its id, or as that of the request `of_request`, a call of the caller's own. `without_content`
    proves that it is there without showing what it says.
    """
    if (record_id is None) == (of_request is None):
        raise TypeError("name either a record or a request")

    def decode(answer: bytes) -> RecordProof:
        return convert.proof(pb.WaitProofResponse.FromString(answer))

    request = pb.WaitProofRequest(tenant_id=id_text(tenant_id), server_log=server_log, without_content=without_content)
    if of_request is None:
        request.record_id = id_text(record_id)
    else:
        request.request_id = of_request
    return Call(f"{_AUDIT}WaitProof", request, decode, request_id, timeout_s)


def get_checkpoint(
    *,
    size: int | None = None,
    server_log: bool = False,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[LogCheckpoint]:
    """The newest checkpoint of a log, or the one of a size that was published. Raises NotFound."""

    def decode(answer: bytes) -> LogCheckpoint:
        return convert.checkpoint(pb.GetCheckpointResponse.FromString(answer))

    request = pb.GetCheckpointRequest(tenant_id=id_text(tenant_id), server_log=server_log, size=size)
    return Call(f"{_AUDIT}GetCheckpoint", request, decode, request_id, timeout_s)


def consistency_proof(
    first_size: int,
    second_size: int,
    *,
    server_log: bool = False,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[tuple[bytes, ...]]:
    """The hashes that show that the log of one size continues the log of another (RFC 6962)."""

    def decode(answer: bytes) -> tuple[bytes, ...]:
        return tuple(pb.GetConsistencyProofResponse.FromString(answer).hashes)

    request = pb.GetConsistencyProofRequest(
        tenant_id=id_text(tenant_id), server_log=server_log, first_size=first_size, second_size=second_size
    )
    return Call(f"{_AUDIT}GetConsistencyProof", request, decode, request_id, timeout_s)


def verify_audit(
    *,
    start: int = 0,
    records_max: int = 0,
    server_log: bool = False,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[AuditCheck]:
    """Lets the server check some of its records, from index `start` on; `next_start` says where to go on.

    Who does not trust the server exports the log and verifies it: `drillcore.audit`.
    """

    def decode(answer: bytes) -> AuditCheck:
        return convert.check(pb.VerifyAuditResponse.FromString(answer))

    request = pb.VerifyAuditRequest(
        tenant_id=id_text(tenant_id), server_log=server_log, start=start, records_max=records_max
    )
    return Call(f"{_AUDIT}VerifyAudit", request, decode, request_id, timeout_s)


def export_audit(
    file: WritableFile,
    wanted: AuditFilter = _EVERYTHING,
    *,
    format: AuditFormat = AuditFormat.NDJSON,  # noqa: A002 - the word for it
    on_bytes: Callable[[int], object] | None = None,
    server_log: bool = False,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Upload[int]:
    """Write the records that match, oldest first, into a file that is open for bytes; how many bytes it was.

    `on_bytes` hears how many have come so far. What is in the file after a failure is not whole.
    """
    request = pb.ExportAuditRequest(
        tenant_id=id_text(tenant_id),
        server_log=server_log,
        filter=convert.filter_message(wanted),
        format=convert.FORMATS[format],
    )
    return Upload(
        f"{_AUDIT}ExportAudit",
        request,
        (),
        one_request,
        lambda listener: Download(file, lambda answer: pb.ExportAuditResponse.FromString(answer).data, listener),
        on_bytes,
        request_id,
        timeout_s,
    )


def review_audit(
    first: int,
    last: int,
    *,
    findings: str = "",
    server_log: bool = False,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Review]:
    """Mark the records from index `first` to `last` as reviewed. The review counts once it is signed."""

    def decode(answer: bytes) -> Review:
        return convert.review(pb.ReviewAuditResponse.FromString(answer).review)

    request = pb.ReviewAuditRequest(
        tenant_id=id_text(tenant_id), server_log=server_log, first=first, last=last, findings=findings
    )
    return Call(f"{_AUDIT}ReviewAudit", request, decode, request_id, timeout_s)


def list_reviews(
    *,
    server_log: bool = False,
    page_size: int = 0,
    page_token: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Page[Review]]:
    """One page of the reviews of a log, oldest first, each with its signatures."""

    def decode(answer: bytes) -> Page[Review]:
        return convert.reviews(pb.ListReviewsResponse.FromString(answer))

    request = pb.ListReviewsRequest(
        tenant_id=id_text(tenant_id), server_log=server_log, page_size=page_size, page_token=page_token
    )
    return Call(f"{_AUDIT}ListReviews", request, decode, request_id, timeout_s)


def iter_reviews(
    *, server_log: bool = False, page_size: int = 0, tenant_id: Id | None = None, timeout_s: float | None = None
) -> Pages[Review]:
    """Every review of a log, oldest first. `timeout_s` is for each page."""
    return lambda token: list_reviews(
        server_log=server_log, page_size=page_size, page_token=token, tenant_id=tenant_id, timeout_s=timeout_s
    )


def rotate_audit_key(*, request_id: str | None = None, timeout_s: float | None = None) -> Call[RotatedKey]:
    """Begin to sign with a new key, which the one before it vouches for. Operators only."""

    def decode(answer: bytes) -> RotatedKey:
        return convert.rotated(pb.RotateAuditKeyResponse.FromString(answer))

    return Call(f"{_AUDIT}RotateAuditKey", pb.RotateAuditKeyRequest(), decode, request_id, timeout_s)
