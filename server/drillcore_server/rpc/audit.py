"""AuditService: requests to commands, results to responses."""

from __future__ import annotations

from typing import Protocol

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import audit_pb2 as pb
from drillcore_server.audit.checking import Problem
from drillcore_server.commands.audit_logs import AuditLogs, WhichLog
from drillcore_server.commands.get_checkpoint import get_checkpoint
from drillcore_server.commands.get_consistency_proof import get_consistency_proof
from drillcore_server.commands.rotate_audit_key import rotate_audit_key
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.commands.verify_audit import verify_audit
from drillcore_server.commands.wait_proof import wait_proof
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.ids import RecordId, RequestId
from drillcore_server.rpc.messages import optional_tenant_id, record_id


class AboutLog(Protocol):
    """A request about a log."""

    @property
    def tenant_id(self) -> str: ...
    @property
    def server_log(self) -> bool: ...


class AuditService:
    def __init__(self, unit: Unit, logs: AuditLogs) -> None:
        self._unit = unit
        self._logs = logs

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


def which_log(request: AboutLog) -> WhichLog:
    return WhichLog(optional_tenant_id(request.tenant_id), request.server_log)


def _wanted(request: pb.WaitProofRequest) -> RecordId | RequestId:
    chosen = request.WhichOneof("record")
    if chosen is None:
        raise BadInput(Reason.INVALID_ARGUMENT, "name the record, or the request", field="record_id")
    return record_id(request.record_id, "record_id") if chosen == "record_id" else RequestId(request.request_id)


def _problem(problem: Problem) -> pb.AuditProblem:
    record = "" if problem.record is None else str(problem.record)
    return pb.AuditProblem(index=problem.index, record_id=record, problem=problem.problem)
