"""PrepareSignature: shows the content to sign, and issues a challenge that allows one signature of it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from drillcore_fdb.engine import Engine, Options, Reader, Transaction
from drillcore_fdb.tuples import KeyRange
from drillcore_proto.reasons import Reason
from drillcore_server.kernel import account_store as accounts
from drillcore_server.kernel import session_store as sessions
from drillcore_server.kernel.access import Granted, Principal, PrincipalKind, Proof
from drillcore_server.kernel.account_model import Account, AccountKind, Session
from drillcore_server.kernel.canonical_json import canonical
from drillcore_server.kernel.errors import Denied, Stale
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.signatures import store as signatures
from drillcore_server.signatures.model import (
    CHALLENGE_BYTES,
    CHALLENGE_LIFETIME,
    Challenge,
    Prepared,
    Target,
    check_meaning,
)
from drillcore_server.signatures.targets import Targets
from drillcore_server.storage.ids import AccountId, TenantId
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.records import RecordKind

_CHALLENGES_AT_ONCE: Final = 1_000
"""Challenges that are read in one transaction."""


@dataclass(frozen=True, slots=True)
class Signer:
    account: Account
    session: Session
    token: bytes
    """SHA-256 of the session's token."""

    @property
    def needs_login(self) -> bool:
        """The first signature of a session needs login and password, later ones only the password."""
        return self.session.signed_at is None


def find_signer(tr: Reader, keys: Keyspace, call: Call) -> Signer:
    """The calling person, in the session that their password opened. Raises `Denied` for any other caller."""
    account_id, token = _account_and_session(call.principal)
    session = sessions.find_session(tr, keys, token)
    account = accounts.find(tr, keys, account_id)
    if session is None or not session.is_login or account is None or account.kind is not AccountKind.PERSON:
        raise _cannot_sign()
    return Signer(account, session, token)


def check_can_sign(principal: Principal) -> AccountId:
    """The caller's account. Raises `Denied` for services, and for people who did not log in with a password."""
    return _account_and_session(principal)[0]


def _account_and_session(principal: Principal) -> tuple[AccountId, bytes]:
    is_login = principal.kind is PrincipalKind.PERSON and principal.proof is Proof.SESSION
    if not is_login or principal.account is None or principal.session is None:
        raise _cannot_sign()
    return principal.account, principal.session


def _cannot_sign() -> Denied:
    return Denied(Reason.CANNOT_SIGN, "only a person who logged in with a password can sign; log in first")


@dataclass(frozen=True, slots=True)
class Offer:
    """The signature that is offered. It leaves out the content, because outcomes are kept and content may be erased."""

    target: Target
    content_hash: bytes
    challenge: bytes
    needs_login: bool


OFFER: Final = RecordKind(Offer)


def prepare_signature(
    unit: Unit, targets: Targets, call: Call, *, tenant: TenantId | None, target: Target, meaning: str
) -> tuple[Offer, bytes]:
    """The offer, and the content to sign in canonical JSON. The content is empty if it is too large to send."""
    check_meaning(meaning)
    check_can_sign(call.principal)
    rule = targets.rule(call.principal, tenant, target.kind)
    challenge = secrets.token_bytes(CHALLENGE_BYTES)
    shown: list[bytes] = []

    def work(tr: Transaction, granted: Granted, trail: Trail) -> Offer:
        signer = find_signer(tr, unit.keys, call)
        found = targets.find(tr.snapshot, granted, trail, target)
        hashed = targets.hashed(found)
        trail.detail["meaning"] = meaning
        trail.detail["content_hash"] = hashed.hex()
        shown[:] = [canonical(dict(found.content))]
        prepared = Prepared(signer.token, found.target, hashed, meaning)
        signatures.put_challenge(tr, unit.keys, challenge, Challenge(prepared, call.at + CHALLENGE_LIFETIME))
        return Offer(found.target, hashed, challenge, signer.needs_login)

    offer = unit.write(call, rule, OFFER, work)

    def show(tr: Reader, granted: Granted) -> bytes:
        found = targets.find(tr, granted, Trail(), offer.target)
        if targets.hashed(found) != offer.content_hash:
            raise Stale(Reason.VERSION_MISMATCH, "the record has changed meanwhile; prepare the signature again")
        return canonical(dict(found.content))

    # A repeated request gets its offer without running the work.
    content = shown[0] if shown and offer.challenge == challenge else unit.look(call, rule, show)
    return offer, content if len(content) <= unit.page_bytes_max else b""


def forget_challenges(engine: Engine, keys: Keyspace, now: datetime) -> int:
    """Removes all expired challenges, in as many transactions as needed, and returns their number. May be re-run."""
    forgotten, left = 0, keys.challenges()
    while True:
        work = partial(signatures.forget_expired, left=left, now=now, limit=_CHALLENGES_AT_ONCE)
        batch, last = engine.run(work, Options(idempotent=True))
        forgotten += batch
        if last is None:
            return forgotten
        left = KeyRange(last + b"\xff", left.end)
