"""AuditService: converts requests to commands and results to responses."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, Protocol

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import audit_pb2 as pb
from drillcore_server.audit.check_log import Problem
from drillcore_server.audit.checkpoints import get_checkpoint, get_consistency_proof, verify_audit, wait_proof
from drillcore_server.audit.query import AuditFormat, AuditLogs, Wanted, WhichLog, export_audit, query_audit
from drillcore_server.audit.reviews import Reviews, ShownReview
from drillcore_server.audit.search import AuditFilter, FoundRecord
from drillcore_server.audit.signing_keys import rotate_audit_key
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.messages import optional_tenant_id, optional_uuid, record_id, timestamp, utc
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.signatures.messages import signature_message
from drillcore_server.storage.ids import RecordId, RequestId

_FORMATS: Final = {pb.AUDIT_FORMAT_NDJSON: AuditFormat.NDJSON, pb.AUDIT_FORMAT_OCSF: AuditFormat.OCSF}
_PIECE_BYTES: Final = 256 * 1024
_INDEX_MAX: Final = (1 << 53) - 1
"""The largest whole number in canonical JSON. No log has that many records."""


class AboutLog(Protocol):
    """A request about one log."""

    @property
    def tenant_id(self) -> str: ...
    @property
    def server_log(self) -> bool: ...


class AuditService:
    def __init__(self, unit: Unit, logs: AuditLogs, reviews: Reviews) -> None:
        self._unit = unit
        self._logs = logs
        self._reviews = reviews

    def WaitProof(self, request: pb.WaitProofRequest, call: Call) -> pb.WaitProofResponse:
        found = wait_proof(
            self._unit,
            self._logs,
            call,
            which=which_log(request),
            wanted=_wanted(request),
            without_content=request.without_content,
        )
        return pb.WaitProofResponse(proof=found.proof, index=found.index, tree_size=found.tree_size)

    def GetCheckpoint(self, request: pb.GetCheckpointRequest, call: Call) -> pb.GetCheckpointResponse:
        size = request.size if request.HasField("size") else None
        found = get_checkpoint(self._unit, self._logs, call, which=which_log(request), size=size)
        return pb.GetCheckpointResponse(checkpoint=found.note, keys=found.keys)

    def GetConsistencyProof(self, request: pb.GetConsistencyProofRequest, call: Call) -> pb.GetConsistencyProofResponse:
        first, second = request.first_size, request.second_size
        hashes = get_consistency_proof(self._unit, call, which=which_log(request), first=first, second=second)
        return pb.GetConsistencyProofResponse(hashes=hashes)

    def VerifyAudit(self, request: pb.VerifyAuditRequest, call: Call) -> pb.VerifyAuditResponse:
        done = verify_audit(
            self._unit,
            self._logs,
            call,
            which=which_log(request),
            start=request.start,
            records_max=request.records_max,
        )
        return pb.VerifyAuditResponse(
            verified=done.verified,
            erased=done.erased,
            problems=map(_problem, done.problems),
            next_start=done.next_start,
            tree_size=done.size,
            checkpoint=done.checkpoint,
        )

    def RotateAuditKey(self, _request: pb.RotateAuditKeyRequest, call: Call) -> pb.RotateAuditKeyResponse:
        done = rotate_audit_key(self._unit, self._logs.signing, call)
        return pb.RotateAuditKeyResponse(key=done.key, keys=done.keys)

    def QueryAudit(self, request: pb.QueryAuditRequest, call: Call) -> pb.QueryAuditResponse:
        found = query_audit(
            self._unit,
            self._logs,
            call,
            which=which_log(request),
            wanted=_filter(request.filter),
            size=request.page_size,
            token=request.page_token,
        )
        return pb.QueryAuditResponse(records=map(_record, found.records), next_page_token=found.next_token)

    def ExportAudit(
        self, requests: Iterator[pb.ExportAuditRequest], call: Call, emit: Callable[[pb.ExportAuditResponse], None]
    ) -> None:
        request = next(requests, None)
        if request is None:
            raise BadInput(
                Reason.INVALID_ARGUMENT,
                "the stream ended before it said what to export: send one request",
                field="format",
            )
        content = request.SerializeToString(deterministic=True)
        fingerprint = hashlib.sha256(call.action.encode() + b"\0" + content).digest()
        wanted = Wanted(which_log(request), _filter(request.filter), _format(request.format))
        lines = export_audit(self._unit, self._logs, replace(call, fingerprint=fingerprint), wanted)
        for piece in _pieces(lines):
            emit(pb.ExportAuditResponse(data=piece))

    def ReviewAudit(self, request: pb.ReviewAuditRequest, call: Call) -> pb.ReviewAuditResponse:
        if max(request.first, request.last) > _INDEX_MAX:
            raise BadInput(Reason.INVALID_ARGUMENT, f"first and last must be at most {_INDEX_MAX}", field="last")
        review = self._reviews.review_audit(
            call,
            which=which_log(request),
            first=request.first,
            last=request.last,
            findings=request.findings,
        )
        return pb.ReviewAuditResponse(review=_review(ShownReview(review)))

    def ListReviews(self, request: pb.ListReviewsRequest, call: Call) -> pb.ListReviewsResponse:
        page = self._reviews.list_reviews(
            call, which=which_log(request), size=request.page_size, token=request.page_token
        )
        return pb.ListReviewsResponse(reviews=map(_review, page.items), next_page_token=page.next_token)


def which_log(request: AboutLog) -> WhichLog:
    return WhichLog(optional_tenant_id(request.tenant_id), request.server_log)


def _wanted(request: pb.WaitProofRequest) -> RecordId | RequestId:
    chosen = request.WhichOneof("record")
    if chosen is None:
        raise BadInput(
            Reason.INVALID_ARGUMENT, "set record_id or request_id, to say which record to prove", field="record_id"
        )
    return record_id(request.record_id, "record_id") if chosen == "record_id" else RequestId(request.request_id)


def _problem(problem: Problem) -> pb.AuditProblem:
    record = "" if problem.record is None else str(problem.record)
    return pb.AuditProblem(index=problem.index, record_id=record, problem=problem.problem)


def _filter(message: pb.AuditFilter) -> AuditFilter:
    since = getattr(message, "from")  # `from` is a keyword of Python
    return AuditFilter(
        corpus=optional_uuid(message.corpus_id, "filter.corpus_id"),
        node=optional_uuid(message.node_id, "filter.node_id"),
        operator=message.operator,
        action=message.action,
        since=utc(since, "filter.from") if message.HasField("from") else None,
        until=utc(message.until, "filter.until") if message.HasField("until") else None,
        request_id=message.request_id,
        record=optional_uuid(message.record_id, "filter.record_id"),
    )


def _format(value: pb.AuditFormat.ValueType) -> AuditFormat:
    if value not in _FORMATS:
        raise BadInput(Reason.INVALID_ARGUMENT, "format must be NDJSON or OCSF", field="format")
    return _FORMATS[value]


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Joins lines into pieces, so that each message carries many of them."""
    piece = bytearray()
    for line in lines:
        piece += line
        if len(piece) >= _PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _record(found: FoundRecord) -> pb.AuditRecord:
    opened = found.opened
    return pb.AuditRecord(
        index=found.index or 0,
        sequenced=found.index is not None,
        id=str(opened.leaf.record),
        leaf=opened.leaf.encode(),
        salt=opened.salt,
        body=opened.body.decode(),
        private_salt=opened.private_salt,
        private=(opened.private or b"").decode(),
        erased=opened.erased,
    )


def _review(shown: ShownReview) -> pb.Review:
    review = shown.review
    return pb.Review(
        id=str(review.id),
        first=review.first,
        last=review.last,
        root=review.root,
        findings=review.findings,
        created_by=review.created_by,
        created_at=timestamp(review.created_at),
        signed=bool(shown.signatures),
        signatures=map(signature_message, shown.signatures),
    )
