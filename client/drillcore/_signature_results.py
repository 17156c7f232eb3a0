"""Electronic signatures as calls return them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


class SignatureTargetKind(enum.Enum):
    """What can be signed."""

    NODE = "node"
    """A version of a node."""
    AUDIT_RECORD = "audit_record"
    EXPORT = "export"
    """A signed export that was made."""
    REVIEW = "review"
    """A review of a range of the audit trail."""
    FACT = "fact"
    """A version of a fact. The signature of a quarantined one can lift the quarantine."""


@dataclass(frozen=True, slots=True)
class SignatureTarget:
    """What is signed."""

    kind: SignatureTargetKind
    id: UUID
    version: int = 0
    """Of a node or a fact: its version; 1 for what never changes. 0 asks for the current one, in a list for all."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A person's signature of one version of one record."""

    id: UUID
    target: SignatureTarget
    corpus_id: UUID | None
    """Of a node or an export."""
    signer_id: UUID
    signer_login: str
    signer_name: str
    """As it is printed."""
    signed_at: datetime
    meaning: str
    content_hash: bytes
    """SHA-256 over a salt and the content that was signed."""
    content_salt: bytes
    """Empty where the content was erased."""
    record_id: UUID
    """The audit record of the signing."""
    key_hash: bytes
    """Names the server's key that `signature` is by."""
    signature: bytes
    """Ed25519 over the manifestation."""
    manifestation: str
    """Everything above but the salt, in canonical JSON."""
    foreign: bool = False
    """Whether it was made on another server, and came with a core: the server that shows it does not vouch for it."""


@dataclass(frozen=True, slots=True)
class PreparedSignature:
    """What would be signed. Good for one `sign_record` of the same session, within a few minutes."""

    target: SignatureTarget
    """With its version."""
    meaning: str
    content_hash: bytes
    content: str
    """What would be signed, in canonical JSON; empty if it is too large for one answer."""
    challenge: bytes
    needs_login: bool
    """Whether the login is needed beside the password: the first signature of a session does."""
