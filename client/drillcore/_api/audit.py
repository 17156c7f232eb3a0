"""The audit trail. Each call concerns the log of a tenant or, with `server_log`, the server's own, for operators."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from drillcore._api.messages import enum_number, timestamp, to_datetime, to_id
from drillcore._api.signatures import Signature, to_signature
from drillcore._transport.call import Call, Id, Page, id_text
from drillcore._transport.download import Download, WritableFile, one_request
from drillcore._transport.upload import Upload
from drillcore_proto.v1 import audit_pb2 as pb


class AuditFormat(enum.Enum):
    """The format of an export of the audit trail."""

    NDJSON = "ndjson"
    """Complete; can be verified offline."""
    OCSF = "ocsf"
    """Events of the Open Cybersecurity Schema Framework, for other tools."""


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which records. All fields that are set must match."""

    corpus_id: UUID | str | None = None
    node_id: UUID | str | None = None
    """A node or a document."""
    operator: str = ""
    """The id of the caller, as in the record."""
    action: str = ""
    """The kind of call, such as ACCESS or UPDATE."""
    since: datetime | None = None
    until: datetime | None = None
    """Records before this time."""
    request_id: str = ""
    record_id: UUID | str | None = None


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """The record of one call."""

    id: UUID
    index: int | None
    """The place in the log. None until the log has the record, moments after the call."""
    body: Mapping[str, Any]
    """The part that is never erased."""
    private: Mapping[str, Any] | None
    """The part that may be erased: query text, reason, values before and after."""
    erased: bool
    """Whether the private part was erased."""
    leaf: bytes
    """The leaf of the log's tree; see `drillcore_formats.audit.leaves`."""
    salt: bytes
    private_salt: bytes


@dataclass(frozen=True, slots=True)
class RecordProof:
    """The proof that a record is in the log."""

    proof: str
    """A file that can be verified with only the server's public key (c2sp.org/tlog-proof)."""
    index: int
    tree_size: int


@dataclass(frozen=True, slots=True)
class LogCheckpoint:
    """The signed state of a log at one size."""

    checkpoint: str
    """A C2SP signed note."""
    keys: str
    """The chain of signing keys, in JSON."""


@dataclass(frozen=True, slots=True)
class AuditProblem:
    """A problem with a record in the server's store."""

    index: int
    record_id: UUID | None
    problem: str


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """The result of a server's check of some of its records."""

    verified: int
    erased: int
    problems: tuple[AuditProblem, ...]
    next_start: int
    """Where to continue; equals `tree_size` when all records are checked."""
    tree_size: int
    checkpoint: str

    @property
    def finished(self) -> bool:
        return self.next_start >= self.tree_size


@dataclass(frozen=True, slots=True)
class Review:
    """An auditor's review of a range of the log. It counts once it is signed."""

    id: UUID
    first: int
    """The index of the first record."""
    last: int
    """The index of the last record."""
    root: bytes
    """The root of the tree that ends with the last record."""
    findings: str
    created_by: str
    created_at: datetime
    signed: bool
    signatures: tuple[Signature, ...]


@dataclass(frozen=True, slots=True)
class RotatedKey:
    """The key that signs from now on."""

    key: str
    """The public key, as a verifier key of C2SP signed notes."""
    keys: str
    """The chain of signing keys, in JSON."""


def filter_message(filters: AuditFilter) -> pb.AuditFilter:
    """Raises ValueError for a time without a zone."""
    message = pb.AuditFilter(
        corpus_id=id_text(filters.corpus_id),
        node_id=id_text(filters.node_id),
        operator=filters.operator,
        action=filters.action,
        until=timestamp(filters.until),
        request_id=filters.request_id,
        record_id=id_text(filters.record_id),
    )
    since = timestamp(filters.since)
    if since is not None:
        getattr(message, "from").CopyFrom(since)  # `from` is a keyword of Python
    return message


def to_record(message: pb.AuditRecord) -> AuditRecord:
    return AuditRecord(
        id=UUID(message.id),
        index=message.index if message.sequenced else None,
        body=json.loads(message.body),
        private=json.loads(message.private) if message.private else None,
        erased=message.erased,
        leaf=message.leaf,
        salt=message.salt,
        private_salt=message.private_salt,
    )


def to_records(message: pb.QueryAuditResponse) -> Page[AuditRecord]:
    return Page(tuple(map(to_record, message.records)), message.next_page_token)


def to_proof(message: pb.WaitProofResponse) -> RecordProof:
    return RecordProof(message.proof, message.index, message.tree_size)


def to_checkpoint(message: pb.GetCheckpointResponse) -> LogCheckpoint:
    return LogCheckpoint(message.checkpoint, message.keys)


def to_check(message: pb.VerifyAuditResponse) -> AuditCheck:
    return AuditCheck(
        verified=message.verified,
        erased=message.erased,
        problems=tuple(
            AuditProblem(problem.index, to_id(problem.record_id), problem.problem) for problem in message.problems
        ),
        next_start=message.next_start,
        tree_size=message.tree_size,
        checkpoint=message.checkpoint,
    )


def to_review(message: pb.Review) -> Review:
    return Review(
        id=UUID(message.id),
        first=message.first,
        last=message.last,
        root=message.root,
        findings=message.findings,
        created_by=message.created_by,
        created_at=to_datetime(message.created_at),
        signed=message.signed,
        signatures=tuple(map(to_signature, message.signatures)),
    )


def to_reviews(message: pb.ListReviewsResponse) -> Page[Review]:
    return Page(tuple(map(to_review, message.reviews)), message.next_page_token)


def to_rotated(message: pb.RotateAuditKeyResponse) -> RotatedKey:
    return RotatedKey(message.key, message.keys)


_AUDIT: Final = "/drillcore_proto.v1.AuditService/"
_EVERY_RECORD: Final = AuditFilter()


def query_audit(
    filters: AuditFilter = _EVERY_RECORD,
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
        return to_records(pb.QueryAuditResponse.FromString(answer))

    request = pb.QueryAuditRequest(
        tenant_id=id_text(tenant_id),
        server_log=server_log,
        filter=filter_message(filters),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_AUDIT}QueryAudit", request, decode, request_id, timeout_s)


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
    """The proof that a record is in the log. The call waits until it is. Raises NotFound.

    Give the id of the record, or with `of_request` the id of a request that the caller made. `without_content` proves
    that the record is there without showing its content.
    """
    if (record_id is None) == (of_request is None):
        raise TypeError("give either record_id or of_request=")

    def decode(answer: bytes) -> RecordProof:
        return to_proof(pb.WaitProofResponse.FromString(answer))

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
    """The newest checkpoint of a log, or the published one of this size. Raises NotFound."""

    def decode(answer: bytes) -> LogCheckpoint:
        return to_checkpoint(pb.GetCheckpointResponse.FromString(answer))

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
    """The hashes that prove that the log of the second size continues the log of the first (RFC 6962)."""

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
    """Let the server check some of its records, from index `start` on. `next_start` says where to continue.

    If you do not trust the server, export the log and verify it with `drillcore.audit`.
    """

    def decode(answer: bytes) -> AuditCheck:
        return to_check(pb.VerifyAuditResponse.FromString(answer))

    request = pb.VerifyAuditRequest(
        tenant_id=id_text(tenant_id), server_log=server_log, start=start, records_max=records_max
    )
    return Call(f"{_AUDIT}VerifyAudit", request, decode, request_id, timeout_s)


def export_audit(
    file: WritableFile,
    filters: AuditFilter = _EVERY_RECORD,
    *,
    format: AuditFormat = AuditFormat.NDJSON,  # noqa: A002 - the word for it
    on_bytes: Callable[[int], object] | None = None,
    server_log: bool = False,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Upload[int]:
    """Write the records that match, oldest first, to an open binary file. Returns the number of bytes.

    `on_bytes` is called with the number of bytes so far. After a failure the file is incomplete.
    """
    request = pb.ExportAuditRequest(
        tenant_id=id_text(tenant_id),
        server_log=server_log,
        filter=filter_message(filters),
        format=enum_number(pb.AuditFormat, format),
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
        return to_review(pb.ReviewAuditResponse.FromString(answer).review)

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
        return to_reviews(pb.ListReviewsResponse.FromString(answer))

    request = pb.ListReviewsRequest(
        tenant_id=id_text(tenant_id), server_log=server_log, page_size=page_size, page_token=page_token
    )
    return Call(f"{_AUDIT}ListReviews", request, decode, request_id, timeout_s)


def rotate_audit_key(*, request_id: str | None = None, timeout_s: float | None = None) -> Call[RotatedKey]:
    """Start to sign with a new key, which the old key vouches for. Operators only."""

    def decode(answer: bytes) -> RotatedKey:
        return to_rotated(pb.RotateAuditKeyResponse.FromString(answer))

    return Call(f"{_AUDIT}RotateAuditKey", pb.RotateAuditKeyRequest(), decode, request_id, timeout_s)
