"""Writes a call's audit record, in the transaction of the call itself.

    what the call touched -> canonical JSON -> salted commitment -> signed -> sealed -> under a versionstamped key

There is no way to leave it out: `commands/unit.py` writes it before each commit it makes for a caller.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import orjson

from drillcore.audit.leaves import SALT_BYTES, SERVER_LOG, commit_to, signed_message
from drillcore_fdb.engine import Transaction
from drillcore_server.audit.signers import SigningKeys
from drillcore_server.auth.principal import Principal
from drillcore_server.domain.audit import ACTIONS, OK, Trail, time_text
from drillcore_server.domain.ids import CorpusNumber, RecordId, RequestId, Revision, SourceId, TenantId
from drillcore_server.store import audit_records
from drillcore_server.store.audit_records import AuditState, StoredRecord
from drillcore_server.store.keyring import KeyNumber, Keyring
from drillcore_server.store.keyspace import Keyspace
from drillcore_server.store.sealed import SealedRecords

_LOG_SCOPE: Final = "audit log "
_SQUEEZE_FROM_BYTES: Final = 2_000
_NO_CORPUS: Final = CorpusNumber(1 << 40)
"""Above every number of a corpus: keys of logs are kept with those of corpora."""


@dataclass(frozen=True, slots=True)
class Client:
    """Where a call comes from, as far as it is known."""

    peer: str = ""
    certificate: str = ""
    """Subject of the certificate it showed."""
    version: str = ""
    """Of the protocol it speaks."""

    @property
    def host(self) -> str:
        """The peer without its port."""
        return self.peer.rpartition(":")[0]


UNKNOWN_CLIENT: Final = Client()


@dataclass(frozen=True, slots=True)
class Occasion:
    """The call that a record is of."""

    call: str
    """The RPC's name."""
    request_id: RequestId
    principal: Principal
    at: datetime
    fingerprint: bytes
    reason: str = ""
    """The caller's own words why."""
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
        """What is stored of a request's fingerprint: who has the store alone cannot guess passwords or texts by it."""
        return hmac.digest(self._fingerprint_key, fingerprint, "sha256")

    def append(self, tr: Transaction, occasion: Occasion, trail: Trail, outcome: str = OK) -> RecordId:
        """Writes the record of a call, and notes it under its request. May be run again: it is another record then."""
        state = audit_records.state(tr, self._keys)
        signer = self._signing.signer(state.key_number)
        record = trail.record
        log = log_of(trail.tenant)
        effects = trail.effects()
        body = self._body(occasion, record, log, effects, outcome)
        log_key = self._log_key(log)
        private = self._private(record, occasion, trail, body, log_key)
        salt = os.urandom(SALT_BYTES)
        written = canonical(body)
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
        """Seals the private part, and commits the body to it."""
        content = {**trail.private, "reason": occasion.reason} if occasion.reason else trail.private
        if not content:
            return None
        number = log_key
        if len(trail.sources) == 1:
            ((corpus, source),) = trail.sources
            (number,) = self.keyring.numbers(corpus, [source])
        salt, written = os.urandom(SALT_BYTES), canonical(content)
        body["private"] = {"commitment": commit_to(salt, written).hex(), "key": number}
        return self._seal(record.bytes + b"private", number, salt + written)

    def _seal(self, bound_to: bytes, number: KeyNumber, content: bytes) -> bytes:
        """Short ones are not compressed: that would take longer than everything else."""
        return self._sealed.seal(bound_to, Revision(0), number, content, is_dense=len(content) < _SQUEEZE_FROM_BYTES)

    def _log_key(self, log: UUID) -> KeyNumber:
        return log_key(self.keyring, log)


def log_key(keyring: Keyring, log: UUID) -> KeyNumber:
    """Of the key that bodies of a log are sealed under; made on first use."""
    (number,) = keyring.numbers(_NO_CORPUS, [SourceId(_LOG_SCOPE + str(log))])
    return number


def canonical(value: dict[str, Any]) -> bytes:
    """RFC 8785 for what records hold, ids as texts: as `drillcore.audit.documents` has it, many times as fast."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def hashed(effects: dict[str, Any]) -> bytes:
    return hashlib.sha256(canonical(effects)).digest()


def log_of(tenant: TenantId | None) -> UUID:
    return SERVER_LOG if tenant is None else tenant
