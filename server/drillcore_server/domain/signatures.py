"""Electronic signatures: who signed what, when, and what they meant by it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import BadInput, NotReady
from drillcore_server.domain.ids import AccountId, CorpusId, RecordId

MEANING_CHARACTERS_MAX: Final = 200
CHALLENGE_BYTES: Final = 32
CHALLENGE_LIFETIME: Final = timedelta(minutes=5)
SIGNED: Final = b"drillcore signature 1\n"
"""Before the manifestation, in what the server's key signs."""


class TargetKind(enum.IntEnum):
    """Numbers are part of keys and of the protocol."""

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
    """One version of what is signed. What never changes is at version 1; 0 asks for the one there is."""

    kind: TargetKind
    id: UUID
    version: int = 0


@dataclass(frozen=True, slots=True)
class Signature:
    """Never changed, never removed."""

    id: UUID
    target: Target
    tenant: UUID
    """Or, like the server's own log, zero."""
    corpus: CorpusId | None
    signer: AccountId
    signer_login: str
    signer_name: str
    """As it is printed."""
    signed_at: datetime
    meaning: str
    content_hash: bytes
    """SHA-256 over a salt and the content that was signed."""
    record: RecordId
    """The audit record of the signing."""
    key_hash: bytes
    """Names the server's key that `signature` is by."""
    signature: bytes
    """Ed25519 over the manifestation: nothing of it can be changed, nor moved to another record or version."""
    manifestation: str
    """Canonical JSON of all that is above."""
    sealed_by: tuple[int, ...]
    """The keys that seal what was signed. The salt is made from them, and is gone with any of them."""
    content_salt: bytes = b""
    """Never stored. Empty where what was signed is erased."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is to be signed, as the signer sees it."""

    session: bytes
    """SHA-256 of the session's token: what one session prepared no other can sign."""
    target: Target
    content_hash: bytes
    meaning: str


@dataclass(frozen=True, slots=True)
class Challenge:
    """Good for one signature of what was prepared, within a few minutes."""

    prepared: Prepared
    expires_at: datetime


def checked_meaning(meaning: str) -> str:
    if not meaning.strip() or len(meaning) > MEANING_CHARACTERS_MAX or not meaning.isprintable():
        message = f"meaning must be 1 to {MEANING_CHARACTERS_MAX} printable characters: what the signature stands for"
        raise BadInput(Reason.INVALID_ARGUMENT, message, field="meaning")
    return meaning


def check_challenge(known: Challenge | None, asked: Prepared, now: datetime) -> None:
    """Raises `NotReady` unless what is asked is what was prepared. It does not say what of it is not."""
    if known is None or known.prepared != asked or now >= known.expires_at:
        message = "the challenge was used, has expired, or was for something else; prepare the signature again"
        raise NotReady(Reason.CHALLENGE_REFUSED, message)
