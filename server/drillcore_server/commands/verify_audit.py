"""VerifyAudit."""

from __future__ import annotations

from typing import Final

from drillcore_fdb.engine import Reader
from drillcore_server.audit.checking import RECORDS_MAX, Checked
from drillcore_server.audit.journal import log_of
from drillcore_server.auth.access import Granted
from drillcore_server.commands.audit_logs import AuditLogs, WhichLog, auditing
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.audit import Trail

_TIME_S: Final = 2.0
"""For one call: its transaction must not be older than five seconds."""


def verify_audit(unit: Unit, logs: AuditLogs, call: Call, *, which: WhichLog, start: int, records_max: int) -> Checked:
    """Checks records of a log from an index on, as many as a call can; the answer says where to go on."""
    count = min(records_max or RECORDS_MAX, RECORDS_MAX)

    def work(tr: Reader, granted: Granted, trail: Trail) -> Checked:
        done = logs.checker.check(tr, log_of(granted.tenant), start, count, min(_TIME_S, call.timeout_s / 2))
        trail.detail |= {
            "start": start,
            "next_start": done.next_start,
            "verified": done.verified,
            "erased": done.erased,
            "problems": len(done.problems),
        }
        return done

    return unit.read(call, auditing(which), work)
