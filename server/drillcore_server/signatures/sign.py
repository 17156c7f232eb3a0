"""SignRecord: makes a prepared signature, for a person who enters the password again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from drillcore_fdb.engine import Reader, Transaction
from drillcore_formats.audit.signatures import signed_manifestation
from drillcore_proto.reasons import Reason
from drillcore_server.identity.account_rules import checked_login
from drillcore_server.identity.credentials import Credentials, check_same
from drillcore_server.kernel import account_store as accounts
from drillcore_server.kernel.access import Granted
from drillcore_server.kernel.account_model import Account, Credential
from drillcore_server.kernel.canonical_json import canonical_record
from drillcore_server.kernel.errors import BadInput, Denied, NotReady, Refused, Stale
from drillcore_server.kernel.journal import SigningKeys, log_of
from drillcore_server.kernel.session_store import SESSION
from drillcore_server.kernel.trail import Trail, time_text
from drillcore_server.kernel.unit import Call, Unit, find_outcome
from drillcore_server.signatures import store as signatures
from drillcore_server.signatures.model import Prepared, Signature, Target, check_challenge, check_meaning
from drillcore_server.signatures.prepare import Signer, check_can_sign, find_signer
from drillcore_server.signatures.store import SIGNATURE
from drillcore_server.signatures.targets import FoundTarget, Targets
from drillcore_server.storage import audit_records
from drillcore_server.storage.ids import TenantId, new_uuid


@dataclass(frozen=True, slots=True)
class ToSign:
    """The prepared signature as the signer repeats it, with login and password."""

    challenge: bytes
    target: Target
    content_hash: bytes
    meaning: str
    login: str
    password: str


@dataclass(frozen=True, slots=True)
class RecordSigner:
    """Makes signatures."""

    unit: Unit
    targets: Targets
    credentials: Credentials
    signing: SigningKeys

    def sign(self, call: Call, *, tenant: TenantId | None, asked: ToSign) -> Signature:
        """Makes the prepared signature, for the person whose session it is.

        The password is checked between two transactions, because that takes long. Everything else is checked in the
        transaction that signs. A repeated request returns the first signature.
        """
        check_meaning(asked.meaning)
        keys, target = self.unit.keys, asked.target
        expected = [keys.challenge(asked.challenge), keys.credential(check_can_sign(call.principal))]
        rule = self.targets.rule(call.principal, tenant, target.kind)
        signer, log, tried = self.unit.look_and_note(
            call, rule, lambda tr, granted: self._begin(tr, granted, call, asked), expected=expected
        )
        with _refusals_recorded(call, log, target):
            proven = self.credentials.prove(call, signer.account, tried, asked.password)
            self._check_not_expired(call, proven)
        signing = _Signing(self, call, asked, proven, new_uuid())
        expected.append(keys.signatures_of(log_of(log), target.kind, target.id, target.version))
        return self.targets.with_salt(self.unit.write(call, rule, SIGNATURE, signing.work, expected=expected))

    def check(self, tr: Reader, call: Call, asked: ToSign) -> Signer:
        """The signer. Raises `Refused` unless they may sign this with these components, password aside."""
        signer = find_signer(tr, self.unit.keys, call)
        if not asked.login and signer.needs_login:
            message = "the first signature of a session needs the login too: set login"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="login")
        if asked.login and checked_login(asked.login) != signer.account.login:
            message = "nobody can sign for another person: this login is not the one of the session"
            raise Denied(Reason.CANNOT_SIGN, message)
        challenge = signatures.find_challenge(tr, self.unit.keys, asked.challenge)
        prepared = Prepared(signer.token, asked.target, asked.content_hash, asked.meaning)
        check_challenge(challenge, prepared, call.at)
        return signer

    def _begin(
        self, tr: Transaction, granted: Granted, call: Call, asked: ToSign
    ) -> tuple[Signer, TenantId | None, Credential | None]:
        """The signer, the log of the signature, and the signer's credential, with this attempt counted.

        A retry has used up its challenge, but its password is still checked: it could be a guess.
        """
        answered = find_outcome(tr.snapshot, self.unit.keys, call.principal.id, call.request_id) is not None
        signer = find_signer(tr.snapshot, self.unit.keys, call) if answered else self.check(tr.snapshot, call, asked)
        with _refusals_recorded(call, granted.tenant, asked.target):
            return signer, granted.tenant, self.credentials.attempt(tr, call, signer.account)

    def _check_not_expired(self, call: Call, proven: Credential) -> None:
        if proven.is_expired(call.at, self.credentials.settings.password_age_s_max):
            message = "the password has expired; log in with a new password first, then sign"
            raise NotReady(Reason.PASSWORD_EXPIRED, message)


@contextmanager
def _refusals_recorded(call: Call, tenant: TenantId | None, target: Target) -> Iterator[None]:
    """Records a refusal of the block in the log that the signature would be in, with the target."""
    try:
        yield
    except Refused:
        call.trails[:] = [Trail(tenant=tenant, detail={"target": target.document()})]
        raise


@dataclass(frozen=True, slots=True)
class _Signing:
    """One signature, by somebody whose password was right."""

    by: RecordSigner
    call: Call
    asked: ToSign
    proven: Credential
    id: UUID

    def work(self, tr: Transaction, granted: Granted, trail: Trail) -> Signature:
        asked, targets = self.asked, self.by.targets
        signer = self.by.check(tr, self.call, asked)
        check_same(accounts.find_credential(tr, self.by.unit.keys, signer.account.id), self.proven)
        found = targets.find(tr, granted, trail, asked.target)
        if targets.hashed(found) != asked.content_hash:
            message = "the record has changed since the signature was prepared; read it again and prepare again"
            raise Stale(Reason.VERSION_MISMATCH, message)
        signature = self._signed(tr, signer.account, found, trail)
        self._store(tr, signer, signature)
        details = {"signature_id": self.id, "meaning": asked.meaning, "content_hash": asked.content_hash.hex()}
        trail.detail |= {name: str(value) for name, value in details.items()}
        return signature

    def _signed(self, tr: Reader, signer: Account, found: FoundTarget, trail: Trail) -> Signature:
        """The signature, made with the server key that is in use."""
        signing = self.by.signing
        key = signing.signer(audit_records.state(tr, self.by.unit.keys).key_number)
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
        manifestation = canonical_record(_manifestation(unsigned, str(signing.store)))
        signature = key.sign(signed_manifestation(manifestation))
        return replace(unsigned, manifestation=manifestation.decode(), signature=signature)

    def _store(self, tr: Transaction, signer: Signer, signature: Signature) -> None:
        """Stores the signature, uses up the challenge, and notes that the session has signed."""
        keys = self.by.unit.keys
        signatures.add(tr, keys, signature)
        signatures.forget_challenge(tr, keys, self.asked.challenge)
        SESSION.write(tr, keys.session(signer.token), replace(signer.session, signed_at=self.call.at))


def _manifestation(signature: Signature, store: str) -> dict[str, Any]:
    fields = {
        "id": str(signature.id),
        "store": store,
        "tenant": str(signature.tenant),
        "target": signature.target.document(),
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
    return {name: value for name, value in fields.items() if value is not None}
