"""A small honest log: real keys, real trees, and the files that a server makes of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from drillcore.audit.notes import ED25519, VerifierKey


@dataclass(frozen=True)
class Key:
    """A key pair that follows from its name and seed, so that a test's files are the same each time."""

    name: str
    kind: int = ED25519
    seed: str = ""

    @property
    def private(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"{self.name} {self.seed}".encode()).digest())

    @property
    def verifier(self) -> VerifierKey:
        return VerifierKey(self.name, self.private.public_key().public_bytes_raw(), self.kind)

    def sign(self, message: bytes) -> bytes:
        return self.private.sign(message)
