"""WaitProof."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from drillcore.audit.proofs import make_proof
from drillcore_fdb.engine import Reader
from drillcore_fdb.errors import StoreCorruptError
from drillcore_proto.reasons import Reason
from drillcore_server.audit import proofs
from drillcore_server.audit.journal import log_of
from drillcore_server.auth.access import Granted
from drillcore_server.commands.audit_logs import AuditLogs, WhichLog, auditing, taking_part
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import Missing, Unavailable
from drillcore_server.domain.ids import RecordId, RequestId
from drillcore_server.store import audit_log, audit_records

_LOOK_EVERY_S: Final = 0.05
"""Where another server puts records in order, which cannot tell us."""
_LEFT_S: Final = 0.5
"""Of the time of a call, to make the proof in."""


@dataclass(frozen=True, slots=True)
class WaitedFor:
    proof: str
    index: int
    tree_size: int


@dataclass(frozen=True, slots=True)
class _Located:
    log: UUID
    record: RecordId
    index: int | None


def wait_proof(
    unit: Unit, logs: AuditLogs, call: Call, *, which: WhichLog, wanted: RecordId | RequestId, without_content: bool
) -> WaitedFor:
    """The proof that a record is in the log, once it is: of any record, or of a request of the caller's own.

    Raises `Unavailable` if the log does not have it in time.
    """
    rule = auditing(which) if isinstance(wanted, UUID) else taking_part(which)

    def locate(tr: Reader, granted: Granted) -> _Located:
        return _locate(tr, unit, logs, call, log_of(granted.tenant), wanted)

    deadline_s = time.monotonic() + call.timeout_s - min(_LEFT_S, call.timeout_s / 2)
    while unit.look(call, rule, locate).index is None:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise Unavailable(Reason.DEADLINE_EXCEEDED, "the log does not have the record yet; ask again")
        logs.wait(min(_LOOK_EVERY_S, left_s))

    def work(tr: Reader, granted: Granted, trail: Trail) -> WaitedFor:
        found = locate(tr, granted)
        assert found.index is not None
        trail.detail |= {"record_id": str(found.record), "index": found.index}
        return _prove(tr, unit, logs, found.log, found.index, without_content)

    return unit.read(call, rule, work)


def _locate(tr: Reader, unit: Unit, logs: AuditLogs, call: Call, log: UUID, wanted: RecordId | RequestId) -> _Located:
    record = wanted if isinstance(wanted, UUID) else _of_request(tr, unit, call, log, wanted)
    placed = audit_log.place_of(tr, unit.keys, record)
    if placed is not None and placed.log == log:
        return _Located(log, record, placed.index)
    if audit_log.head(tr, unit.keys, log).problem:
        message = "the log has stopped, and its operator finds why with VerifyAudit; nothing is lost"
        raise Unavailable(Reason.STORE_UNAVAILABLE, message)
    if isinstance(wanted, UUID) and (placed is not None or logs.search.get(tr, log, record) is None):
        raise Missing(Reason.AUDIT_RECORD_NOT_FOUND, f"the log has no record {record}")
    return _Located(log, record, None)


def _of_request(tr: Reader, unit: Unit, call: Call, log: UUID, request: RequestId) -> RecordId:
    """The record of a request of the caller's own."""
    found = audit_records.find_request(tr, unit.keys, call.principal.id, request)
    if found is None or found.log != log:
        message = f"no request {request} of yours was answered in this log"
        raise Missing(Reason.AUDIT_RECORD_NOT_FOUND, message)
    return found.id


def _prove(tr: Reader, unit: Unit, logs: AuditLogs, log: UUID, index: int, without_content: bool) -> WaitedFor:
    shown = next(logs.search.at(tr, log, index, index + 1), None)
    if shown is None:
        raise StoreCorruptError(f"the entry {index} of an audit log is gone; VerifyAudit finds what else is")
    proved = proofs.inclusion(tr, unit.keys, log, index)
    document = shown.opened.document(with_content=not without_content)
    proof = make_proof(index, proved.hashes, proved.checkpoint.note, document, logs.signing.chain(tr))
    return WaitedFor(proof, index, proved.checkpoint.size)
