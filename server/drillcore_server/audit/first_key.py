"""The server's first signing key."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from drillcore_fdb.engine import Engine, Options, Transaction
from drillcore_server.secret_file import make_secret_file
from drillcore_server.store import audit_records
from drillcore_server.store.audit_records import AuditState
from drillcore_server.store.keyspace import Keyspace


class FirstKey:
    def __init__(self, engine: Engine, keys: Keyspace, store: UUID, path: Path) -> None:
        if not path.exists():
            make_secret_file(path, secrets.token_bytes(32))
        self._key = Ed25519PrivateKey.from_private_bytes(path.read_bytes())
        self.public_key = self._key.public_key().public_bytes_raw()
        named = f"drillcore-{store}\n".encode() + b"\1" + self.public_key
        self.key_hash = hashlib.sha256(named).digest()[:4]

        def work(tr: Transaction) -> None:
            if tr.get(keys.audit_state()) is None:
                audit_records.set_state(tr, keys, AuditState(0, 1))

        engine.run(work, Options(idempotent=True))

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)

    def signer(self, _number: int) -> FirstKey:
        return self
