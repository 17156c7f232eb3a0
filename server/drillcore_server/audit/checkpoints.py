"""GetCheckpoint, GetConsistencyProof, WaitProof and VerifyAudit."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from drillcore_fdb.engine import Reader
from drillcore_fdb.errors import StoreCorruptError
from drillcore_formats.audit.proofs import make_proof
from drillcore_proto.reasons import Reason
from drillcore_server.audit import log_store as audit_log
from drillcore_server.audit.check_log import RECORDS_MAX, Checked
from drillcore_server.audit.query import (
    AuditLogs,
    NotYet,
    WhichLog,
    auditor_of,
    expected_keys,
    participant_of,
    read_when_there,
)
from drillcore_server.kernel.access import Granted
from drillcore_server.kernel.errors import Missing, Unavailable
from drillcore_server.kernel.journal import chain_text, log_of
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.storage import audit_records
from drillcore_server.storage.ids import RecordId, RequestId

_FIRST_RECORD_S: Final = 1.0
"""How long to wait for the first checkpoint of a log, whose first record may just have been made."""
_LOOK_EVERY_S: Final = 0.05
"""How often to look for a record that another server puts in order. That server cannot notify this one."""
_LEFT_S: Final = 0.5
"""Part of the call's time limit that is kept for making the proof."""


@dataclass(frozen=True, slots=True)
class CheckpointFound:
    note: str
    keys: str
    """The chain of signing keys, as JSON."""


def get_checkpoint(unit: Unit, logs: AuditLogs, call: Call, *, which: WhichLog, size: int | None) -> CheckpointFound:
    """The newest checkpoint of a log, or the checkpoint of a size, if that was kept."""
    first_until_s = time.monotonic() + min(_FIRST_RECORD_S, call.timeout_s / 2)

    def work(tr: Reader, granted: Granted, trail: Trail) -> CheckpointFound:
        log = log_of(granted.tenant)
        if size is not None:
            trail.detail["size"] = size
            found = audit_log.checkpoint_of(tr, unit.keys, log, size)
        elif audit_log.head(tr, unit.keys, log).size == 0 and time.monotonic() < first_until_s:
            raise NotYet
        else:
            found = audit_log.newest_checkpoint(tr, unit.keys, log)
        return CheckpointFound(found.note, chain_text(logs.signing.chain(tr)))

    expected = expected_keys(unit, call, which)
    return read_when_there(unit, logs, call, auditor_of(which), work, expected=expected, look_every_s=_LOOK_EVERY_S)


def get_consistency_proof(unit: Unit, call: Call, *, which: WhichLog, first: int, second: int) -> list[bytes]:
    """The hashes that prove that the log at the second size continues the log at the first size."""

    def work(tr: Reader, granted: Granted, trail: Trail) -> list[bytes]:
        trail.detail |= {"first_size": first, "second_size": second}
        return audit_log.consistency(tr, unit.keys, log_of(granted.tenant), first, second)

    return unit.read(call, auditor_of(which), work, expected=expected_keys(unit, call, which))


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
    """Waits until a record is in the log, and returns the proof.

    An auditor may ask for any record, others for the record of their own request. Raises `Unavailable` if the log does
    not have the record in time.
    """
    rule = auditor_of(which) if isinstance(wanted, UUID) else participant_of(which)
    until_s = time.monotonic() + call.timeout_s - min(_LEFT_S, call.timeout_s / 2)

    def work(tr: Reader, granted: Granted, trail: Trail) -> WaitedFor:
        found = _locate(tr, unit, logs, call, log_of(granted.tenant), wanted)
        if found.index is None:
            if time.monotonic() < until_s:
                raise NotYet
            raise Unavailable(Reason.DEADLINE_EXCEEDED, "the log does not have the record yet; ask again")
        trail.detail |= {"record_id": str(found.record), "index": found.index}
        return _prove(tr, unit, logs, found.log, found.index, without_content)

    keys = unit.keys
    subject = keys.audit_place(wanted) if isinstance(wanted, UUID) else keys.audit_request(call.principal.id, wanted)
    expected = [*expected_keys(unit, call, which), subject]
    return read_when_there(unit, logs, call, rule, work, expected=expected, look_every_s=_LOOK_EVERY_S)


def _locate(tr: Reader, unit: Unit, logs: AuditLogs, call: Call, log: UUID, wanted: RecordId | RequestId) -> _Located:
    record = wanted if isinstance(wanted, UUID) else _of_request(tr, unit, call, log, wanted)
    placed = audit_log.place_of(tr, unit.keys, record)
    if placed is not None and placed.log == log:
        return _Located(log, record, placed.index)
    if audit_log.head(tr, unit.keys, log).problem:
        message = "the log has stopped; nothing is lost, and its operator finds out why with VerifyAudit"
        raise Unavailable(Reason.STORE_UNAVAILABLE, message)
    if isinstance(wanted, UUID) and (placed is not None or not logs.search.may_be_waiting(tr, log, record)):
        raise Missing(Reason.AUDIT_RECORD_NOT_FOUND, f"the log has no record {record}")
    return _Located(log, record, None)


def _of_request(tr: Reader, unit: Unit, call: Call, log: UUID, request: RequestId) -> RecordId:
    """The record of one of the caller's own requests."""
    found = audit_records.find_request(tr, unit.keys, call.principal.id, request)
    if found is None or found.log != log:
        message = f"this log has no record of a request {request} of yours"
        raise Missing(Reason.AUDIT_RECORD_NOT_FOUND, message)
    return found.id


def _prove(tr: Reader, unit: Unit, logs: AuditLogs, log: UUID, index: int, without_content: bool) -> WaitedFor:
    shown = next(logs.search.at(tr, log, [index]), None)
    if shown is None:
        raise StoreCorruptError(f"the entry {index} of an audit log is missing; run VerifyAudit to see what else is")
    proved = audit_log.inclusion(tr, unit.keys, log, index)
    document = shown.opened.document(with_content=not without_content)
    proof = make_proof(index, proved.hashes, proved.checkpoint.note, document, logs.signing.chain(tr))
    return WaitedFor(proof, index, proved.checkpoint.size)


_VERIFY_S: Final = 2.0
"""How long one call may check records. Its transaction must not get older than five seconds."""


def verify_audit(unit: Unit, logs: AuditLogs, call: Call, *, which: WhichLog, start: int, records_max: int) -> Checked:
    """Checks as many records of a log as fit into a call, from `start` on. The answer says where to continue."""
    count = min(records_max or RECORDS_MAX, RECORDS_MAX)

    def work(tr: Reader, granted: Granted, trail: Trail) -> Checked:
        done = logs.checker.check(tr, log_of(granted.tenant), start, count, min(_VERIFY_S, call.timeout_s / 2))
        trail.detail |= {
            "start": start,
            "next_start": done.next_start,
            "verified": done.verified,
            "erased": done.erased,
            "problems": len(done.problems),
        }
        return done

    return unit.read(call, auditor_of(which), work, expected=expected_keys(unit, call, which))
