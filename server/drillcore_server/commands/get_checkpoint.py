"""GetCheckpoint."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from drillcore_fdb.engine import Reader
from drillcore_server.audit import proofs
from drillcore_server.audit.journal import log_of
from drillcore_server.audit.signers import chain_text
from drillcore_server.auth.access import Granted
from drillcore_server.commands.audit_logs import AuditLogs, WhichLog, auditing
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.audit import Trail
from drillcore_server.store import audit_log

_FIRST_RECORD_S: Final = 1.0
"""To wait for the first checkpoint of a log: its first record may have been made a moment ago."""
_LOOK_EVERY_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class CheckpointFound:
    note: str
    keys: str
    """The chain of signing keys, as JSON."""


def get_checkpoint(unit: Unit, logs: AuditLogs, call: Call, *, which: WhichLog, size: int | None) -> CheckpointFound:
    """The newest checkpoint of a log, or the one of a size, if it was kept."""
    if size is None:
        _wait_for_first(unit, logs, call, which)

    def work(tr: Reader, granted: Granted, trail: Trail) -> CheckpointFound:
        log = log_of(granted.tenant)
        if size is None:
            found = proofs.newest_checkpoint(tr, unit.keys, log)
        else:
            trail.detail["size"] = size
            found = proofs.checkpoint_of(tr, unit.keys, log, size)
        return CheckpointFound(found.note, chain_text(logs.signing.chain(tr)))

    return unit.read(call, auditing(which), work)


def _wait_for_first(unit: Unit, logs: AuditLogs, call: Call, which: WhichLog) -> None:
    def is_empty(tr: Reader, granted: Granted) -> bool:
        return audit_log.head(tr, unit.keys, log_of(granted.tenant)).size == 0

    deadline_s = time.monotonic() + min(_FIRST_RECORD_S, call.timeout_s / 2)
    while unit.look(call, auditing(which), is_empty) and time.monotonic() < deadline_s:
        logs.wait(_LOOK_EVERY_S)
