"""SignRecord."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from drillcore_fdb.engine import Reader, Transaction
from drillcore_proto.reasons import Reason
from drillcore_server.audit.journal import canonical, log_of
from drillcore_server.auth.access import Granted
from drillcore_server.commands.credentials import check_same
from drillcore_server.commands.signing import Signer, SigningDesk, check_can_sign
from drillcore_server.commands.signing_targets import FoundTarget
from drillcore_server.commands.unit import Call
from drillcore_server.domain.account_checks import checked_login
from drillcore_server.domain.accounts import Account, Credential
from drillcore_server.domain.audit import Trail, time_text
from drillcore_server.domain.errors import BadInput, Denied, NotReady, Refused, Stale
from drillcore_server.domain.ids import TenantId, new_uuid
from drillcore_server.domain.signatures import SIGNED, Prepared, Signature, Target, check_challenge, checked_meaning
from drillcore_server.store import accounts, audit_records, requests, signatures
from drillcore_server.store.sessions import SESSION
from drillcore_server.store.signatures import SIGNATURE


@dataclass(frozen=True, slots=True)
class ToSign:
    """What was prepared, as the signer says it, and the components of the signature."""

    challenge: bytes
    target: Target
    content_hash: bytes
    meaning: str
    login: str
    password: str


def sign_record(desk: SigningDesk, call: Call, *, tenant: TenantId | None, asked: ToSign) -> Signature:
    """Signs what was prepared, for the person whose session it is and who shows their password once more.

    The password is looked at between transactions, since that takes long; all else is checked in the one that signs.
    """
    checked_meaning(asked.meaning)
    check_can_sign(call.principal)
    unit, rule = desk.unit, desk.targets.rule(call.principal, tenant, asked.target.kind)
    signer, log = unit.look(call, rule, lambda tr, granted: (_begin(desk, tr, call, asked), granted.tenant))
    with _telling(call, log, asked.target):
        proven = desk.credentials.prove(call, signer.account, asked.password)
        _check_not_expired(desk, call, proven)
    signing = _Signing(desk, call, asked, proven, new_uuid())
    return signatures.with_salt(desk.library.keyring, unit.write(call, rule, SIGNATURE, signing.work))


def _begin(desk: SigningDesk, tr: Reader, call: Call, asked: ToSign) -> Signer:
    """The signer. A retry has used its challenge up; its password is looked at all the same, or it could be guessed."""
    answered = requests.find(tr, desk.unit.keys, call.principal.id, call.request_id) is not None
    return desk.signer(tr, call) if answered else _check(desk, tr, call, asked)


def _check(desk: SigningDesk, tr: Reader, call: Call, asked: ToSign) -> Signer:
    """The signer. Raises `Refused` unless they may sign this, with these components but for the password."""
    signer = desk.signer(tr, call)
    if not asked.login and signer.needs_login:
        message = "the first signature of a session needs the login too"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="login")
    if asked.login and checked_login(asked.login) != signer.account.login:
        raise Denied(Reason.CANNOT_SIGN, "nobody can sign for another: the session is not of this login")
    challenge = signatures.find_challenge(tr, desk.unit.keys, asked.challenge)
    prepared = Prepared(signer.token, asked.target, asked.content_hash, asked.meaning)
    check_challenge(challenge, prepared, call.at)
    return signer


def _check_not_expired(desk: SigningDesk, call: Call, proven: Credential) -> None:
    if proven.is_expired(call.at, desk.credentials.settings.password_age_s_max):
        message = "the password must be changed before it signs: log in with a new one beside it"
        raise NotReady(Reason.PASSWORD_EXPIRED, message)


@contextmanager
def _telling(call: Call, tenant: TenantId | None, target: Target) -> Iterator[None]:
    """A refusal in the block is recorded in the log that the signature would be in, with what was to be signed."""
    try:
        yield
    except Refused:
        said = {"kind": target.kind.word, "id": str(target.id), "version": target.version}
        call.trails[:] = [Trail(tenant=tenant, detail={"target": said})]
        raise


@dataclass(frozen=True, slots=True)
class _Signing:
    """One signature in the making, by somebody whose password was right."""

    desk: SigningDesk
    call: Call
    asked: ToSign
    proven: Credential
    id: UUID

    def work(self, tr: Transaction, granted: Granted, trail: Trail) -> Signature:
        desk, asked = self.desk, self.asked
        signer = _check(desk, tr, self.call, asked)
        check_same(accounts.find_credential(tr, desk.unit.keys, signer.account.id), self.proven)
        found = desk.targets.find(tr, granted, trail, asked.target)
        if desk.targets.hashed(found) != asked.content_hash:
            raise Stale(Reason.VERSION_MISMATCH, "it has changed since it was prepared; look at it again")
        signature = self._signed(tr, signer.account, found, trail)
        self._keep(tr, signer, signature)
        said = {"signature_id": self.id, "meaning": asked.meaning, "content_hash": asked.content_hash.hex()}
        trail.detail |= {name: str(value) for name, value in said.items()}
        return signature

    def _signed(self, tr: Reader, signer: Account, found: FoundTarget, trail: Trail) -> Signature:
        """The signature, by the server's key that is in use."""
        desk = self.desk
        key = desk.signing.signer(audit_records.state(tr, desk.unit.keys).key_number)
        unsigned = Signature(
            id=self.id,
            target=found.target,
            tenant=log_of(trail.tenant),
            corpus=found.corpus,
            signer=signer.id,
            signer_login=signer.login,
            signer_name=signer.name,
            signed_at=self.call.at,
            meaning=self.asked.meaning,
            content_hash=self.asked.content_hash,
            record=trail.record,
            key_hash=key.key_hash,
            signature=b"",
            manifestation="",
            sealed_by=found.sealed_by,
        )
        manifestation = canonical(_manifestation(unsigned, str(desk.signing.store)))
        return replace(unsigned, manifestation=manifestation.decode(), signature=key.sign(SIGNED + manifestation))

    def _keep(self, tr: Transaction, signer: Signer, signature: Signature) -> None:
        """Stores the signature, uses the challenge up, and notes that the session has signed."""
        keys = self.desk.unit.keys
        signatures.add(tr, keys, signature)
        signatures.forget_challenge(tr, keys, self.asked.challenge)
        SESSION.write(tr, keys.session(signer.token), replace(signer.session, signed_at=self.call.at))


def _manifestation(signature: Signature, store: str) -> dict[str, Any]:
    target = signature.target
    said = {
        "id": str(signature.id),
        "store": store,
        "tenant": str(signature.tenant),
        "target": {"kind": target.kind.word, "id": str(target.id), "version": target.version},
        "corpus_id": None if signature.corpus is None else str(signature.corpus),
        "signer_id": str(signature.signer),
        "signer_login": signature.signer_login,
        "signer_name": signature.signer_name,
        "signed_at": time_text(signature.signed_at),
        "meaning": signature.meaning,
        "content_hash": signature.content_hash.hex(),
        "record_id": str(signature.record),
        "key_hash": signature.key_hash.hex(),
    }
    return {name: value for name, value in said.items() if value is not None}
