"""ReviewAudit."""

from __future__ import annotations

from drillcore_fdb.engine import Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.audit.journal import log_key, log_of
from drillcore_server.audit.proofs import tree_of
from drillcore_server.auth.access import Granted
from drillcore_server.commands.audit_logs import WhichLog, auditing
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import BadInput, Missing
from drillcore_server.domain.ids import new_uuid
from drillcore_server.domain.reviews import Review, checked_findings
from drillcore_server.store import audit_log, reviews
from drillcore_server.store.sealed import SealedKind


def review_audit(library: Library, call: Call, *, which: WhichLog, first: int, last: int, findings: str) -> Review:
    """Notes that the caller has reviewed a range of a log, as it is now. The review counts once it is signed."""
    checked_findings(findings)
    if first > last:
        raise BadInput(Reason.INVALID_ARGUMENT, "first must not be after last", field="first")
    unit, made = library.unit, new_uuid()
    number = unit.look(call, auditing(which), lambda _tr, granted: log_key(library.keyring, log_of(granted.tenant)))

    def work(tr: Transaction, granted: Granted, trail: Trail) -> Review:
        log = log_of(granted.tenant)
        size = audit_log.head(tr.snapshot, unit.keys, log).size
        if last >= size:
            message = f"the log has {size} records, so the last that can be reviewed is {size - 1}"
            raise Missing(Reason.AUDIT_RECORD_NOT_FOUND, message)
        root = tree_of(tr.snapshot, unit.keys, log, size).root(last + 1)
        review = Review(made, log, first, last, root, findings, call.principal.id, call.at)
        reviews.add(tr, unit.keys, reviews.kind(library.sealed, log, number), review)
        trail.detail |= {"review_id": str(made), "first": first, "last": last, "root": root.hex()}
        if findings:
            trail.private["findings"] = findings
        return review

    return unit.write(
        call, auditing(which), SealedKind(reviews.REVIEW, library.sealed, "outcome of ReviewAudit", number), work
    )
