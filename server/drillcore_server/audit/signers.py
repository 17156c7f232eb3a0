"""What signs audit records and checkpoints: Ed25519, from a file, or by a program that keeps the key to itself."""

from __future__ import annotations

from typing import Protocol


class Signer(Protocol):
    @property
    def public_key(self) -> bytes:
        """32 bytes."""

    @property
    def key_hash(self) -> bytes:
        """4 bytes that name the key, as C2SP signed notes have it."""

    def sign(self, message: bytes) -> bytes:
        """64 bytes. Raises `UnavailableError` if it cannot."""


class SigningKeys(Protocol):
    def signer(self, number: int) -> Signer:
        """The key of this number. Raises `UnavailableError`, saying what to do, if this server does not have it."""
