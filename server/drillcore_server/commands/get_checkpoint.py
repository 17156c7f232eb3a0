"""GetCheckpoint."""

from __future__ import annotations

from dataclasses import dataclass

from drillcore_fdb.engine import Reader
from drillcore_server.audit import proofs
from drillcore_server.audit.journal import log_of
from drillcore_server.audit.signers import chain_text
from drillcore_server.auth.access import Granted
from drillcore_server.commands.audit_logs import AuditLogs, WhichLog, auditing
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.audit import Trail


@dataclass(frozen=True, slots=True)
class CheckpointFound:
    note: str
    keys: str
    """The chain of signing keys, as JSON."""


def get_checkpoint(unit: Unit, logs: AuditLogs, call: Call, *, which: WhichLog, size: int | None) -> CheckpointFound:
    """The newest checkpoint of a log, or the one of a size, if it was kept."""

    def work(tr: Reader, granted: Granted, trail: Trail) -> CheckpointFound:
        log = log_of(granted.tenant)
        if size is None:
            found = proofs.newest_checkpoint(tr, unit.keys, log)
        else:
            trail.detail["size"] = size
            found = proofs.checkpoint_of(tr, unit.keys, log, size)
        return CheckpointFound(found.note, chain_text(logs.signing.chain(tr)))

    return unit.read(call, auditing(which), work)
