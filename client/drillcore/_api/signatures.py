"""Electronic signatures."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from drillcore._api.messages import enum_member, enum_number, to_datetime, to_id
from drillcore._transport.call import Call, Id, Page, id_text
from drillcore_proto.v1 import signatures_pb2 as pb


class SignatureTargetKind(enum.Enum):
    """What can be signed."""

    NODE = "node"
    """A version of a node."""
    AUDIT_RECORD = "audit_record"
    EXPORT = "export"
    """A signed export."""
    REVIEW = "review"
    """A review of a range of the audit trail."""
    FACT = "fact"
    """A version of a fact. The signature of a quarantined fact can lift its quarantine."""


@dataclass(frozen=True, slots=True)
class SignatureTarget:
    """What is signed."""

    kind: SignatureTargetKind
    id: UUID
    version: int = 0
    """The version of a node or a fact; 1 for what never changes. 0: the current version, or all versions in a list."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A person's signature of one version of one record."""

    id: UUID
    target: SignatureTarget
    corpus_id: UUID | None
    """Set for a node or an export."""
    signer_id: UUID
    signer_login: str
    signer_name: str
    """The printed name."""
    signed_at: datetime
    meaning: str
    content_hash: bytes
    """SHA-256 over a salt and the signed content."""
    content_salt: bytes
    """Empty if the content was erased."""
    record_id: UUID
    """The audit record of the signing."""
    key_hash: bytes
    """Identifies the server's key that made `signature`."""
    signature: bytes
    """Ed25519 over the manifestation."""
    manifestation: str
    """All fields above except the salt, in canonical JSON."""
    foreign: bool = False
    """Whether it was made on another server and came with a core. This server does not vouch for it."""


@dataclass(frozen=True, slots=True)
class PreparedSignature:
    """What would be signed. It is valid for one `sign_record` in the same session, within a few minutes."""

    target: SignatureTarget
    """The target, with its version."""
    meaning: str
    content_hash: bytes
    content: str
    """The content to sign, in canonical JSON; empty if it is too large for one answer."""
    challenge: bytes
    needs_login: bool
    """Whether the login is needed too. The first signature of a session needs it."""


def target_message(target: SignatureTarget) -> pb.SignatureTarget:
    return pb.SignatureTarget(
        kind=enum_number(pb.SignatureTargetKind, target.kind), id=str(target.id), version=target.version
    )


def to_target(message: pb.SignatureTarget) -> SignatureTarget:
    return SignatureTarget(
        enum_member(SignatureTargetKind, pb.SignatureTargetKind, message.kind), UUID(message.id), message.version
    )


def to_signature(message: pb.Signature) -> Signature:
    return Signature(
        id=UUID(message.id),
        target=to_target(message.target),
        corpus_id=to_id(message.corpus_id),
        signer_id=UUID(message.signer_id),
        signer_login=message.signer_login,
        signer_name=message.signer_name,
        signed_at=to_datetime(message.signed_at),
        meaning=message.meaning,
        content_hash=message.content_hash,
        content_salt=message.content_salt,
        record_id=UUID(bytes=message.record_id),
        key_hash=message.key_hash,
        signature=message.signature,
        manifestation=message.manifestation,
        foreign=message.foreign,
    )


def to_signatures(message: pb.ListSignaturesResponse) -> Page[Signature]:
    return Page(tuple(map(to_signature, message.signatures)), message.next_page_token)


def to_prepared(message: pb.PrepareSignatureResponse, meaning: str) -> PreparedSignature:
    return PreparedSignature(
        target=to_target(message.target),
        meaning=meaning,
        content_hash=message.content_hash,
        content=message.content,
        challenge=message.challenge,
        needs_login=message.needs_login,
    )


_SIGNATURES: Final = "/drillcore_proto.v1.SignatureService/"


def prepare_signature(
    target: SignatureTarget,
    meaning: str,
    *,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[PreparedSignature]:
    """What would be signed. Look at it, then call `sign_record`. Needs a session that was opened with a password.

    Raises NotFound, or Conflict if the target is not at the given version.
    """

    def decode(answer: bytes) -> PreparedSignature:
        return to_prepared(pb.PrepareSignatureResponse.FromString(answer), meaning)

    request = pb.PrepareSignatureRequest(tenant_id=id_text(tenant_id), target=target_message(target), meaning=meaning)
    return Call(f"{_SIGNATURES}PrepareSignature", request, decode, request_id, timeout_s)


def sign_record(
    prepared: PreparedSignature,
    password: str,
    *,
    login: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Signature]:
    """Sign what was prepared. It takes the password and, for the first signature of a session, the login.

    Raises PermissionDenied if the caller cannot sign; Unauthenticated for a wrong password, which counts as a failed
    login; Conflict if the target has changed; FailedPrecondition if the preparation was used before or is too old.
    """

    def decode(answer: bytes) -> Signature:
        return to_signature(pb.SignRecordResponse.FromString(answer).signature)

    request = pb.SignRecordRequest(
        tenant_id=id_text(tenant_id),
        challenge=prepared.challenge,
        target=target_message(prepared.target),
        content_hash=prepared.content_hash,
        meaning=prepared.meaning,
        login=login,
        password=password,
    )
    return Call(f"{_SIGNATURES}SignRecord", request, decode, request_id, timeout_s)


def list_signatures(
    target: SignatureTarget | None = None,
    *,
    page_size: int = 0,
    page_token: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Page[Signature]]:
    """One page of the signatures of a target, or of all that the caller may see, oldest first."""

    def decode(answer: bytes) -> Page[Signature]:
        return to_signatures(pb.ListSignaturesResponse.FromString(answer))

    request = pb.ListSignaturesRequest(
        tenant_id=id_text(tenant_id),
        target=None if target is None else target_message(target),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_SIGNATURES}ListSignatures", request, decode, request_id, timeout_s)
