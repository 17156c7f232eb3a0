"""AuditService as it is served: with the calls that find, export and review records."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import audit_pb2 as pb
from drillcore_server.audit.search import AuditFilter, FoundRecord
from drillcore_server.commands.audit_logs import AuditLogs
from drillcore_server.commands.export_audit import AuditFormat, Wanted, export_audit
from drillcore_server.commands.list_reviews import ShownReview, list_reviews
from drillcore_server.commands.query_audit import query_audit
from drillcore_server.commands.review_audit import review_audit
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.errors import BadInput
from drillcore_server.rpc.audit import AuditService, which_log
from drillcore_server.rpc.messages import optional_uuid, timestamp, utc
from drillcore_server.rpc.signature_messages import signature_message

_FORMATS: Final = {pb.AUDIT_FORMAT_NDJSON: AuditFormat.NDJSON, pb.AUDIT_FORMAT_OCSF: AuditFormat.OCSF}
_PIECE_BYTES: Final = 256 * 1024
_INDEX_MAX: Final = (1 << 53) - 1
"""Larger numbers have no place in canonical JSON, and no log has so many records."""


class AuditTrailService(AuditService):
    def __init__(self, library: Library, logs: AuditLogs) -> None:
        super().__init__(library.unit, logs)
        self._library = library

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
            raise BadInput(Reason.INVALID_ARGUMENT, "send one request: what to export", field="format")
        content = request.SerializeToString(deterministic=True)
        fingerprint = hashlib.sha256(call.action.encode() + b"\0" + content).digest()
        wanted = Wanted(which_log(request), _filter(request.filter), _format(request.format))
        lines = export_audit(self._unit, self._logs, replace(call, fingerprint=fingerprint), wanted)
        for piece in _pieces(lines):
            emit(pb.ExportAuditResponse(data=piece))

    def ReviewAudit(self, request: pb.ReviewAuditRequest, call: Call) -> pb.ReviewAuditResponse:
        if max(request.first, request.last) > _INDEX_MAX:
            raise BadInput(Reason.INVALID_ARGUMENT, "no log has so many records", field="last")
        review = review_audit(
            self._library,
            call,
            which=which_log(request),
            first=request.first,
            last=request.last,
            findings=request.findings,
        )
        return pb.ReviewAuditResponse(review=_review(ShownReview(review)))

    def ListReviews(self, request: pb.ListReviewsRequest, call: Call) -> pb.ListReviewsResponse:
        page = list_reviews(
            self._library, call, which=which_log(request), size=request.page_size, token=request.page_token
        )
        return pb.ListReviewsResponse(reviews=map(_review, page.items), next_page_token=page.next_token)


def _filter(message: pb.AuditFilter) -> AuditFilter:
    since = getattr(message, "from")  # a word that Python keeps to itself
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
    """Lines put together, so that a message is worth its while."""
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
