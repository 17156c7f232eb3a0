"""Signs a call's audit record and writes it in the transaction of the call itself.

    what the call touched -> canonical JSON -> salted commitment -> signed -> sealed -> under a versionstamped key

No caller can leave the record out: `kernel/unit.py` writes it before every commit it makes for a caller.

Records and checkpoints are signed with Ed25519 keys; each new key is signed by the one before it. The private halves
are in files or with a signer program (`audit/signing_keys.py`). The store has the chain of public keys and the number
of the one in use. Every transaction that makes a record reads that number, so after a rotation's commit no server signs
with the old key.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol
from uuid import UUID

import orjson

from drillcore_fdb.engine import Engine, Options, Reader, Transaction
from drillcore_fdb.errors import UnavailableError
from drillcore_formats.audit.checkpoints import Checkpoint, key_name, log_origin, make_checkpoint
from drillcore_formats.audit.keys import ChainedKey, KeyChain, TrustedKeys, trust, vouch
from drillcore_formats.audit.leaves import SALT_BYTES, SERVER_LOG, commit_to, signed_message
from drillcore_formats.audit.notes import Note, Sign, VerifierKey
from drillcore_server.kernel.access import Principal
from drillcore_server.kernel.canonical_json import canonical_record
from drillcore_server.kernel.trail import ACTIONS, OK, Trail, time_text
from drillcore_server.storage import audit_keys, audit_records
from drillcore_server.storage.audit_records import AuditState, StoredRecord
from drillcore_server.storage.ids import CorpusNumber, RecordId, RequestId, Revision, SourceId, TenantId
from drillcore_server.storage.keyring import HOW_TO_JOIN, KeyNumber, Keyring
from drillcore_server.storage.keyspace import Keyspace
from drillcore_server.storage.sealed import SealedRecords


class SignerUnavailableError(UnavailableError):
    """The audit record cannot be signed, so the call cannot be done. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class PrivateHalf:
    """A key pair: its public half, and a way to sign with the private one."""

    public_key: bytes
    sign: Sign
    """The signature of a message, 64 bytes. Raises `SignerUnavailableError`."""


class KeyKeeper(Protocol):
    """Keeps the private halves of the keys, by number."""

    @property
    def place(self) -> str:
        """Where the keys are kept, for error messages."""

    def find(self, number: int) -> PrivateHalf | None:
        """The key of this number; None if there is none. Raises `SignerUnavailableError` if it cannot be used."""

    def find_or_make(self, number: int) -> PrivateHalf:
        """Makes the key of this number, durably, or returns the one that exists."""

    def discard(self, number: int) -> None:
        """Removes a key that never signed anything."""


@dataclass(frozen=True, slots=True)
class Signer:
    verifier: VerifierKey
    key_hash: bytes
    """The 4 bytes that identify the key in signed notes (c2sp.org/signed-note)."""
    sign: Sign

    @property
    def public_key(self) -> bytes:
        return self.verifier.public_key


class SigningKeys:
    """The signing keys of one store, as this server has them."""

    def __init__(self, engine: Engine, keys: Keyspace, store: UUID, keeper: KeyKeeper) -> None:
        self._engine = engine
        self._keys = keys
        self._lock = threading.Lock()
        self._signers: dict[int, Signer] = {}
        self.store = store
        self.keeper = keeper
        self.notice: str | None = None
        """A message for the operator if the server made a key, with its public half; otherwise None."""

    @classmethod
    def open(cls, engine: Engine, keys: Keyspace, store: UUID, keeper: KeyKeeper, now: datetime) -> SigningKeys:
        """The keys of a store. A new store gets its first key.

        Raises `SignerUnavailableError` if the key in use is gone, is another, or cannot be read: no call could be
        recorded, and a new key that no earlier key has signed would look like a forgery.
        """
        signing = cls(engine, keys, store, keeper)
        if not engine.run(lambda tr: audit_keys.chain(tr, keys)):
            signing._begin(now)
        signing.signer(engine.run(lambda tr: audit_records.state(tr, keys)).key_number)
        return signing

    def signer(self, number: int) -> Signer:
        """The key of this number.

        Raises `SignerUnavailableError`, which says what to do, if this server does not have it.
        """
        known = self._signers.get(number)
        return self._find(number) if known is None else known

    def chain(self, tr: Reader) -> KeyChain:
        return KeyChain(self.store, tuple(audit_keys.chain(tr, self._keys)))

    def trusted(self, tr: Reader) -> TrustedKeys:
        """All keys of the chain, for the server's own checks, which trust the first one.

        Raises `VerificationFailed` if a later key is not signed by the one before it.
        """
        chain = self.chain(tr)
        return trust(self.store, [chain.verifier(key) for key in chain.keys[:1]], chain)

    def checkpoint(self, key_number: int, log: UUID, size: int, root: bytes) -> Note:
        signer = self.signer(key_number)
        return make_checkpoint(Checkpoint(log_origin(self.store, log), size, root), signer.verifier, signer.sign)

    def prepare_next(self, number: int, chain: Iterable[ChainedKey]) -> PrivateHalf:
        """The next key, under this number: durable, and not yet in use.

        Takes a key that a failed attempt left. Its short hash differs from those of the chain.
        """
        hashes = {self._verifier(key.public_key).key_hash for key in chain}
        while True:
            made = self.keeper.find_or_make(number)
            if self._verifier(made.public_key).key_hash not in hashes:
                return made
            self.keeper.discard(number)

    def introduce(self, tr: Transaction, number: int, public_key: bytes, at: datetime) -> ChainedKey:
        """Adds a key to the chain, signed by the one before it. It is in use once the audit state names it."""
        new = vouch(self.store, number, public_key, time_text(at), self.signer(number - 1).sign)
        audit_keys.put(tr, self._keys, new)
        return new

    def _begin(self, now: datetime) -> None:
        was_there = self.keeper.find(1) is not None
        half = self.keeper.find_or_make(1)
        first = ChainedKey(1, half.public_key, time_text(now))
        made = self._engine.run(lambda tr: _begin_chain(tr, self._keys, first), Options(idempotent=True))
        if made.public_key != half.public_key and not was_there:  # another server began the chain at the same time
            self.keeper.discard(1)
        elif made.public_key == half.public_key:
            self.notice = (
                f"a key to sign the audit trail was made in {self.keeper.place}: back it up, and give its public half "
                f"to those who verify: {self._verifier(half.public_key).encode()}"
            )

    def _find(self, number: int) -> Signer:
        chained = self._engine.run(lambda tr: audit_keys.find(tr, self._keys, number))
        if chained is None:
            raise SignerUnavailableError(f"the store's chain of audit keys has no key {number}")
        half = self.keeper.find(number)
        if half is None:
            raise SignerUnavailableError(f"the audit key {number} is not in {self.keeper.place}. {HOW_TO_JOIN}")
        if half.public_key != chained.public_key:
            raise SignerUnavailableError(
                f"the audit key {number} in {self.keeper.place} is not this store's; restore the one with the public "
                f"half {self._verifier(chained.public_key).encode()}"
            )
        verifier = self._verifier(half.public_key)
        with self._lock:
            return self._signers.setdefault(number, Signer(verifier, verifier.key_hash, half.sign))

    def _verifier(self, public_key: bytes) -> VerifierKey:
        return VerifierKey(key_name(self.store), public_key)


def chain_text(chain: KeyChain) -> str:
    """The chain as the JSON that callers get."""
    return orjson.dumps(chain.document(), option=orjson.OPT_SORT_KEYS).decode()


def _begin_chain(tr: Transaction, keys: Keyspace, first: ChainedKey) -> ChainedKey:
    """The chain's first key: the given one, unless another server was faster."""
    there = audit_keys.find(tr, keys, 1)
    if there is not None:
        return there
    audit_keys.put(tr, keys, first)
    audit_records.set_state(tr, keys, AuditState(incarnation=0, key_number=1))
    return first


_LOG_SCOPE: Final = "audit log "
_SQUEEZE_FROM_BYTES: Final = 2_000
_NO_CORPUS: Final = CorpusNumber(1 << 40)
"""Higher than every corpus number: the keyring keeps the keys of logs beside those of corpora."""


@dataclass(frozen=True, slots=True)
class Client:
    """Where a call comes from, as far as known."""

    peer: str = ""
    certificate: str = ""
    """The subject of the client certificate."""
    version: str = ""
    """The protocol version that the client speaks."""

    @property
    def host(self) -> str:
        """The peer without its port."""
        return self.peer.rpartition(":")[0]


UNKNOWN_CLIENT: Final = Client()


@dataclass(frozen=True, slots=True)
class Occasion:
    """What a record says about its call."""

    call: str
    """The RPC's name."""
    request_id: RequestId
    principal: Principal
    at: datetime
    fingerprint: bytes
    reason: str = ""
    """The reason that the caller gave."""
    client: Client = UNKNOWN_CLIENT


class Journal:
    def __init__(
        self, keys: Keyspace, keyring: Keyring, sealed: SealedRecords, store: UUID, signing: SigningKeys
    ) -> None:
        self._keys = keys
        self.keyring = keyring
        self._sealed = sealed
        self._store = store
        self._signing = signing
        self._fingerprint_key = keyring.derived(log_key(keyring, SERVER_LOG), b"fingerprints of requests")

    def keyed(self, fingerprint: bytes) -> bytes:
        """The keyed hash of a request's fingerprint.

        Nobody can use it to guess passwords or texts with the store alone.
        """
        return hmac.digest(self._fingerprint_key, fingerprint, "sha256")

    def append(self, tr: Transaction, occasion: Occasion, trail: Trail, outcome: str = OK) -> RecordId:
        """Writes the record of a call and notes it under its request. A second run makes another record."""
        state = audit_records.state(tr, self._keys)
        signer = self._signing.signer(state.key_number)
        record = trail.record
        log = log_of(trail.tenant)
        effects = trail.effects()
        body = self._body(occasion, record, log, effects, outcome)
        log_key = self._log_key(log)
        private = self._private(record, occasion, trail, body, log_key)
        salt = os.urandom(SALT_BYTES)
        written = canonical_record(body)
        commitment = commit_to(salt, written)
        stored = StoredRecord(
            log=log,
            id=record,
            key_hash=signer.key_hash,
            commitment=commitment,
            signature=signer.sign(signed_message(self._store, log, record, commitment)),
            body=self._seal(record.bytes, log_key, salt + written),
            private=private,
        )
        audit_records.append(tr, self._keys, state.incarnation, stored)
        key = self._keys.audit_request(occasion.principal.id, occasion.request_id, "" if outcome == OK else outcome)
        fingerprint = self.keyed(occasion.fingerprint)
        audit_records.note_request(tr, key, state.incarnation, stored, fingerprint, hashed(effects))
        if trail.next_key is not None:
            audit_records.set_state(tr, self._keys, AuditState(state.incarnation, trail.next_key))
        return record

    def _body(
        self, occasion: Occasion, record: RecordId, log: UUID, effects: dict[str, Any], outcome: str
    ) -> dict[str, Any]:
        principal, client = occasion.principal, occasion.client
        said = {
            "id": record,
            "store": self._store,
            "log": log,
            "at": time_text(occasion.at),
            "action": ACTIONS[occasion.call].value,
            "call": occasion.call,
            "outcome": outcome,
            "request_id": occasion.request_id,
            "operator": principal.id,
            "operator_kind": principal.kind.value,
            "operator_login": principal.login,
            "proof": principal.proof.value,
            "peer": client.peer,
            "certificate": client.certificate,
            "client_version": client.version,
            **effects,
        }
        return {name: value for name, value in said.items() if value != ""}

    def _private(
        self, record: RecordId, occasion: Occasion, trail: Trail, body: dict[str, Any], log_key: KeyNumber
    ) -> bytes | None:
        """Seals the private part and puts its commitment into the body."""
        content = {**trail.private, "reason": occasion.reason} if occasion.reason else trail.private
        if not content:
            return None
        number = log_key
        if len(trail.sources) == 1:
            ((corpus, source),) = trail.sources
            (number,) = self.keyring.numbers(corpus, [source])
        salt, written = os.urandom(SALT_BYTES), canonical_record(content)
        body["private"] = {"commitment": commit_to(salt, written).hex(), "key": number}
        return self._seal(record.bytes + audit_records.PRIVATE, number, salt + written)

    def _seal(self, bound_to: bytes, number: KeyNumber, content: bytes) -> bytes:
        """Seals content. Does not compress short records: that would take longer than all other steps together."""
        return self._sealed.seal(bound_to, Revision(0), number, content, is_dense=len(content) < _SQUEEZE_FROM_BYTES)

    def _log_key(self, log: UUID) -> KeyNumber:
        return log_key(self.keyring, log)


def log_key(keyring: Keyring, log: UUID) -> KeyNumber:
    """The number of the key that the record bodies of a log are sealed under. Made on first use."""
    (number,) = keyring.numbers(_NO_CORPUS, [SourceId(_LOG_SCOPE + str(log))])
    return number


def hashed(effects: dict[str, Any]) -> bytes:
    return hashlib.sha256(canonical_record(effects)).digest()


def log_of(tenant: TenantId | None) -> UUID:
    return SERVER_LOG if tenant is None else tenant
