"""GetConsistencyProof."""

from __future__ import annotations

from drillcore_fdb.engine import Reader
from drillcore_server.audit import proofs
from drillcore_server.audit.journal import log_of
from drillcore_server.auth.access import Granted
from drillcore_server.commands.audit_logs import WhichLog, auditing
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.domain.audit import Trail


def get_consistency_proof(unit: Unit, call: Call, *, which: WhichLog, first: int, second: int) -> list[bytes]:
    """The hashes which show that the log of the second size continues that of the first."""

    def work(tr: Reader, granted: Granted, trail: Trail) -> list[bytes]:
        trail.detail |= {"first_size": first, "second_size": second}
        return proofs.consistency(tr, unit.keys, log_of(granted.tenant), first, second)

    return unit.read(call, auditing(which), work)
