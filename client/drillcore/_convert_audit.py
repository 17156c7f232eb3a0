"""Protocol messages about the audit trail to results, and filters back to messages."""

from __future__ import annotations

import json
from typing import Final
from uuid import UUID

from drillcore._audit_results import (
    AuditCheck,
    AuditFilter,
    AuditFormat,
    AuditProblem,
    AuditRecord,
    LogCheckpoint,
    RecordProof,
    Review,
    RotatedKey,
)
from drillcore._call import id_text
from drillcore._convert import to_datetime, to_id
from drillcore._convert_nodes import timestamp
from drillcore._convert_signatures import signature
from drillcore._results import Page
from drillcore_proto.v1 import audit_pb2 as pb

FORMATS: Final = {AuditFormat.NDJSON: pb.AUDIT_FORMAT_NDJSON, AuditFormat.OCSF: pb.AUDIT_FORMAT_OCSF}


def filter_message(wanted: AuditFilter) -> pb.AuditFilter:
    """Raises ValueError for a time without zone."""
    message = pb.AuditFilter(
        corpus_id=id_text(wanted.corpus_id),
        node_id=id_text(wanted.node_id),
        operator=wanted.operator,
        action=wanted.action,
        until=timestamp(wanted.until),
        request_id=wanted.request_id,
        record_id=id_text(wanted.record_id),
    )
    since = timestamp(wanted.since)
    if since is not None:
        getattr(message, "from").CopyFrom(since)  # a word that Python keeps to itself
    return message


def record(message: pb.AuditRecord) -> AuditRecord:
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


def records(message: pb.QueryAuditResponse) -> Page[AuditRecord]:
    return Page(tuple(map(record, message.records)), message.next_page_token)


def proof(message: pb.WaitProofResponse) -> RecordProof:
    return RecordProof(message.proof, message.index, message.tree_size)


def checkpoint(message: pb.GetCheckpointResponse) -> LogCheckpoint:
    return LogCheckpoint(message.checkpoint, message.keys)


def check(message: pb.VerifyAuditResponse) -> AuditCheck:
    return AuditCheck(
        verified=message.verified,
        erased=message.erased,
        problems=tuple(AuditProblem(one.index, to_id(one.record_id), one.problem) for one in message.problems),
        next_start=message.next_start,
        tree_size=message.tree_size,
        checkpoint=message.checkpoint,
    )


def review(message: pb.Review) -> Review:
    return Review(
        id=UUID(message.id),
        first=message.first,
        last=message.last,
        root=message.root,
        findings=message.findings,
        created_by=message.created_by,
        created_at=to_datetime(message.created_at),
        signed=message.signed,
        signatures=tuple(map(signature, message.signatures)),
    )


def reviews(message: pb.ListReviewsResponse) -> Page[Review]:
    return Page(tuple(map(review, message.reviews)), message.next_page_token)


def rotated(message: pb.RotateAuditKeyResponse) -> RotatedKey:
    return RotatedKey(message.key, message.keys)
