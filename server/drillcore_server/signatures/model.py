"""Electronic signatures: who signed what, when, and what the signer meant by it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from drillcore_proto.reasons import Reason
from drillcore_server.kernel.errors import BadInput, NotReady
from drillcore_server.storage.ids import AccountId, CorpusId, RecordId

MEANING_CHARACTERS_MAX: Final = 200
CHALLENGE_BYTES: Final = 32
CHALLENGE_LIFETIME: Final = timedelta(minutes=5)
FIXED_VERSION: Final = 1
"""The version of records that never change, such as exports and reviews."""


class TargetKind(enum.IntEnum):
    """What can be signed. The numbers are part of keys and of the protocol."""

    NODE = 1
    AUDIT_RECORD = 2
    EXPORT = 3
    REVIEW = 4
    FACT = 5

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Target:
    """One version of a record that can be signed. In a request, version 0 means the current version."""

    kind: TargetKind
    id: UUID
    version: int = 0

    def document(self) -> dict[str, str | int]:
        """The target as audit records and manifestations name it."""
        return {"kind": self.kind.word, "id": str(self.id), "version": self.version}


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature is never changed and never removed."""

    id: UUID
    target: Target
    tenant: UUID
    """All zeros for signatures of the server's own log."""
    corpus: CorpusId | None
    signer: AccountId
    signer_login: str
    signer_name: str
    """The name as it is printed."""
    signed_at: datetime
    meaning: str
    content_hash: bytes
    """SHA-256 over a salt and the content that was signed."""
    record: RecordId
    """The audit record of the signing."""
    key_hash: bytes
    """Names the server key that made `signature`."""
    signature: bytes
    """Ed25519 over the manifestation. It cannot be changed, or moved to another record or version."""
    manifestation: str
    """Canonical JSON of the fields above."""
    sealed_by: tuple[int, ...]
    """The keys that seal the signed content. The salt is derived from them and is lost with any of them."""
    content_salt: bytes = b""
    """Worked out when the signature is shown, never stored. Empty if the signed content was erased."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The content and meaning of a signature, as the signer sees them before signing."""

    session: bytes
    """SHA-256 of the session's token. Only the session that prepared a signature can make it."""
    target: Target
    content_hash: bytes
    meaning: str


@dataclass(frozen=True, slots=True)
class Challenge:
    """Allows one signature of the prepared content, within a few minutes."""

    prepared: Prepared
    expires_at: datetime


def check_meaning(meaning: str) -> None:
    if not meaning.strip() or len(meaning) > MEANING_CHARACTERS_MAX or not meaning.isprintable():
        message = f"meaning must say what the signature stands for, in 1 to {MEANING_CHARACTERS_MAX} characters"
        raise BadInput(Reason.INVALID_ARGUMENT, f"{message} without line breaks", field="meaning")


def check_challenge(known: Challenge | None, asked: Prepared, now: datetime) -> None:
    """Raises `NotReady` unless the request matches the prepared signature. The message does not say what differs."""
    if known is None or known.prepared != asked or now >= known.expires_at:
        message = "the challenge was used, has expired, or is for another signature; prepare the signature again"
        raise NotReady(Reason.CHALLENGE_REFUSED, message)
