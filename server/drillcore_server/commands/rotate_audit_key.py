"""RotateAuditKey."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from drillcore.audit.base64_text import to_base64
from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.audit.signers import SigningKeys, chain_text
from drillcore_server.auth import access
from drillcore_server.auth.access import Granted
from drillcore_server.commands.unit import Call, Unit, refusing
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import Unavailable
from drillcore_server.store import audit_keys, audit_records
from drillcore_server.store.records import RecordKind


@dataclass(frozen=True, slots=True)
class Rotated:
    key: str
    """The new public key, as people pin it."""
    keys: str
    """The chain, as JSON."""


ROTATED: Final = RecordKind(Rotated)


def rotate_audit_key(unit: Unit, signing: SigningKeys, call: Call) -> Rotated:
    """Signs with a new key from the next record on. The record of the rotation itself is the old key's last.

    The new key is durable before the store names it. If nothing comes of it, the next rotation takes it.
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
            raise Unavailable(Reason.CONFLICT, "another rotation was made at the same time")
        introduced = signing.introduce(tr, number, half.public_key, call.at)
        trail.detail |= {"key_number": number, "public_key": to_base64(introduced.public_key)}
        trail.next_key = number
        made = signing.chain(tr)
        return Rotated(made.verifier(introduced).encode(), chain_text(made))

    return unit.write(call, access.operator, ROTATED, work)
