"""VerifyAudit and RotateAuditKey."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from drillcore_fdb.engine import Reader, Transaction
from drillcore_formats.audit.encoding import to_base64
from drillcore_proto.reasons import Reason
from drillcore_server.audit.check_log import RECORDS_MAX, Checked
from drillcore_server.audit.query import AuditLogs, WhichLog, auditing
from drillcore_server.kernel import access
from drillcore_server.kernel.access import Granted
from drillcore_server.kernel.errors import Unavailable
from drillcore_server.kernel.journal import SigningKeys, chain_text, log_of
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit, refusing
from drillcore_server.storage import audit_keys, audit_records
from drillcore_server.storage.records import RecordKind

_TIME_S: Final = 2.0
"""Time for one call. Its transaction must not get older than five seconds."""


def verify_audit(unit: Unit, logs: AuditLogs, call: Call, *, which: WhichLog, start: int, records_max: int) -> Checked:
    """Checks as many records of a log as fit into a call, from `start` on. The answer says where to continue."""
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


@dataclass(frozen=True, slots=True)
class Rotated:
    key: str
    """The new public key as a verifier key, for pinning."""
    keys: str
    """The chain of keys, as JSON."""


ROTATED: Final = RecordKind(Rotated)


def rotate_audit_key(unit: Unit, signing: SigningKeys, call: Call) -> Rotated:
    """Signs with a new key from the next record on. The record of the rotation itself is the last of the old key.

    The new key is durable before the store names it. If the rotation fails, the next one uses the same key.
    """

    def prepare(tr: Reader, _granted: Granted) -> tuple[Rotated | None, int]:
        return unit.known(tr, call, ROTATED), audit_records.state(tr, unit.keys).key_number

    known, old = unit.look(call, access.operator, prepare)
    if known is not None:
        return known
    number = old + 1
    with refusing():
        chain = unit.look(call, access.operator, lambda tr, _: audit_keys.chain(tr, unit.keys))
        half = signing.prepare_next(number, chain)

    def work(tr: Transaction, _granted: Granted, trail: Trail) -> Rotated:
        if audit_records.state(tr, unit.keys).key_number != old:
            raise Unavailable(
                Reason.CONFLICT, "another rotation was made at the same time; look at the keys before you rotate again"
            )
        introduced = signing.introduce(tr, number, half.public_key, call.at)
        trail.detail |= {"key_number": number, "public_key": to_base64(introduced.public_key)}
        trail.next_key = number
        made = signing.chain(tr)
        return Rotated(made.verifier(introduced).encode(), chain_text(made))

    return unit.write(call, access.operator, ROTATED, work)
