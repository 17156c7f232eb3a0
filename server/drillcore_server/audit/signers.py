"""What signs audit records and checkpoints: Ed25519 keys, one after the other, each vouched for by the one before it.

The private halves are in files (`key_files.py`) or with a program (`signer_program.py`); the store has the chain of the
public ones, and which of them is in use. That number is read in every transaction that makes a record, so after a
rotation's commit no record is signed by the old key, on any server.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

import orjson

from drillcore.audit.checkpoints import Checkpoint, key_name, log_origin, make_checkpoint
from drillcore.audit.keys import ChainedKey, KeyChain, TrustedKeys, trust, vouch
from drillcore.audit.notes import Note, Sign, VerifierKey
from drillcore_fdb.engine import Engine, Options, Reader, Transaction
from drillcore_fdb.errors import UnavailableError
from drillcore_server.domain.audit import time_text
from drillcore_server.store import audit_keys, audit_records
from drillcore_server.store.audit_records import AuditState
from drillcore_server.store.keyspace import Keyspace


class SignerUnavailableError(UnavailableError):
    """A record cannot be signed, so nothing can be done that is recorded. Says why and what to do."""


@dataclass(frozen=True, slots=True)
class PrivateHalf:
    """A key pair as whoever keeps it gives it out."""

    public_key: bytes
    sign: Sign
    """64 bytes for a message. Raises `SignerUnavailableError` if it cannot."""


class KeyKeeper(Protocol):
    """Who keeps the private halves, by number."""

    @property
    def place(self) -> str:
        """Where the keys are, for a message."""

    def find(self, number: int) -> PrivateHalf | None:
        """The key of this number, if it is there. Raises `SignerUnavailableError` if it cannot be used."""

    def find_or_make(self, number: int) -> PrivateHalf:
        """The key of this number, durable. One that is there already is taken."""

    def discard(self, number: int) -> None:
        """Removes a key that never signed anything."""


@dataclass(frozen=True, slots=True)
class Signer:
    verifier: VerifierKey
    key_hash: bytes
    """4 bytes that name the key, as C2SP signed notes have it."""
    sign: Sign

    @property
    def public_key(self) -> bytes:
        return self.verifier.public_key


class SigningKeys:
    """The keys of one store, as this server has them."""

    def __init__(self, engine: Engine, keys: Keyspace, store: UUID, keeper: KeyKeeper) -> None:
        self._engine = engine
        self._keys = keys
        self._lock = threading.Lock()
        self._signers: dict[int, Signer] = {}
        self.store = store
        self.keeper = keeper
        self.notice: str | None = None
        """What the operator should be told: that a key was made, and which."""

    @classmethod
    def open(cls, engine: Engine, keys: Keyspace, store: UUID, keeper: KeyKeeper, now: datetime) -> SigningKeys:
        """The keys of a store; the first is made with it.

        Raises `SignerUnavailableError` if the key in use is gone, is another, or cannot be read: nothing could be
        recorded, and a new key that nobody vouches for would look like a forgery.
        """
        signing = cls(engine, keys, store, keeper)
        if not engine.run(lambda tr: audit_keys.chain(tr, keys)):
            signing._begin(now)
        signing.signer(engine.run(lambda tr: audit_records.state(tr, keys)).key_number)
        return signing

    def signer(self, number: int) -> Signer:
        """The key of this number. Raises `SignerUnavailableError`, saying what to do, if this server has it not."""
        known = self._signers.get(number)
        return self._find(number) if known is None else known

    def chain(self, tr: Reader) -> KeyChain:
        return KeyChain(self.store, tuple(audit_keys.chain(tr, self._keys)))

    def trusted(self, tr: Reader) -> TrustedKeys:
        """All keys of the chain, for the server's own checks: the first is what it was begun with.

        Raises `VerificationFailed` if a key is not vouched for.
        """
        chain = self.chain(tr)
        return trust(self.store, [chain.verifier(key) for key in chain.keys[:1]], chain)

    def checkpoint(self, key_number: int, log: UUID, size: int, root: bytes) -> Note:
        signer = self.signer(key_number)
        return make_checkpoint(Checkpoint(log_origin(self.store, log), size, root), signer.verifier, signer.sign)

    def prepare_next(self, number: int, chain: Iterable[ChainedKey]) -> PrivateHalf:
        """A key to go on with under this number, durable and not yet in use.

        One that an attempt which came to nothing left is taken. It must not share its short hash with one of the chain.
        """
        hashes = {self._verifier(key.public_key).key_hash for key in chain}
        while True:
            made = self.keeper.find_or_make(number)
            if self._verifier(made.public_key).key_hash not in hashes:
                return made
            self.keeper.discard(number)

    def introduce(self, tr: Transaction, number: int, public_key: bytes, at: datetime) -> ChainedKey:
        """Adds a key to the chain, vouched for by the one before it. It is in use once the state says so."""
        new = vouch(self.store, number, public_key, time_text(at), self.signer(number - 1).sign)
        audit_keys.put(tr, self._keys, new)
        return new

    def verifier_key(self, number: int) -> str:
        """The public key as people pin it."""
        return self.signer(number).verifier.encode()

    def _begin(self, now: datetime) -> None:
        half = self.keeper.find_or_make(1)
        first = ChainedKey(1, half.public_key, time_text(now))
        made = self._engine.run(lambda tr: _begin_chain(tr, self._keys, first), Options(idempotent=True))
        if made.public_key == half.public_key:
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
            raise SignerUnavailableError(
                f"the audit key {number} is not in {self.keeper.place}; restore it from its backup, or copy it from a "
                "server that has it"
            )
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
    """JSON, as it is handed out."""
    return orjson.dumps(chain.document(), option=orjson.OPT_SORT_KEYS).decode()


def _begin_chain(tr: Transaction, keys: Keyspace, first: ChainedKey) -> ChainedKey:
    """The chain's first key: this one, unless another server was faster."""
    there = audit_keys.find(tr, keys, 1)
    if there is not None:
        return there
    audit_keys.put(tr, keys, first)
    audit_records.set_state(tr, keys, AuditState(incarnation=0, key_number=1))
    return first
