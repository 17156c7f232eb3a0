"""PrepareSignature."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.auth.access import Granted
from drillcore_server.commands.signing import SigningDesk, check_can_sign
from drillcore_server.commands.unit import Call
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import Stale
from drillcore_server.domain.ids import TenantId
from drillcore_server.domain.signatures import (
    CHALLENGE_BYTES,
    CHALLENGE_LIFETIME,
    Challenge,
    Prepared,
    Target,
    checked_meaning,
)
from drillcore_server.exporting.canonical import canonical
from drillcore_server.store import signatures
from drillcore_server.store.records import RecordKind


@dataclass(frozen=True, slots=True)
class Offer:
    """What may be signed now. Without the content, which must not be kept with outcomes: it may be erased."""

    target: Target
    content_hash: bytes
    challenge: bytes
    needs_login: bool


OFFER = RecordKind(Offer)


def prepare_signature(
    desk: SigningDesk, call: Call, *, tenant: TenantId | None, target: Target, meaning: str
) -> tuple[Offer, bytes]:
    """What would be signed, with its content in canonical JSON, which is empty if it is too large for an answer."""
    checked_meaning(meaning)
    check_can_sign(call.principal)
    rule = desk.targets.rule(call.principal, tenant, target.kind)
    challenge = secrets.token_bytes(CHALLENGE_BYTES)

    def work(tr: Transaction, granted: Granted, trail: Trail) -> Offer:
        signer = desk.signer(tr, call)
        found = desk.targets.find(tr.snapshot, granted, trail, target)
        hashed = desk.targets.hashed(found)
        trail.detail["meaning"] = meaning
        trail.detail["content_hash"] = hashed.hex()
        prepared = Prepared(signer.token, found.target, hashed, meaning)
        signatures.put_challenge(
            tr, desk.unit.keys, challenge, Challenge(prepared, expires_at=call.at + CHALLENGE_LIFETIME)
        )
        return Offer(found.target, hashed, challenge, signer.needs_login)

    offer = desk.unit.write(call, rule, OFFER, work)

    def show(tr: Reader, granted: Granted) -> bytes:
        found = desk.targets.find(tr, granted, Trail(), offer.target)
        if desk.targets.hashed(found) != offer.content_hash:
            raise Stale(Reason.VERSION_MISMATCH, "it has changed meanwhile; prepare the signature again")
        content = canonical(dict(found.content))
        return content if len(content) <= desk.unit.page_bytes_max else b""

    return offer, desk.unit.look(call, rule, show)
