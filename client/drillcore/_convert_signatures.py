"""Protocol messages about signatures to results, and targets back to messages."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from drillcore._convert import to_datetime, to_id
from drillcore._results import Page
from drillcore._signature_results import PreparedSignature, Signature, SignatureTarget, SignatureTargetKind
from drillcore_proto.v1 import signatures_pb2 as pb

_KINDS: Final = {
    pb.SIGNATURE_TARGET_KIND_NODE: SignatureTargetKind.NODE,
    pb.SIGNATURE_TARGET_KIND_AUDIT_RECORD: SignatureTargetKind.AUDIT_RECORD,
    pb.SIGNATURE_TARGET_KIND_EXPORT: SignatureTargetKind.EXPORT,
    pb.SIGNATURE_TARGET_KIND_REVIEW: SignatureTargetKind.REVIEW,
    pb.SIGNATURE_TARGET_KIND_FACT: SignatureTargetKind.FACT,
}
_MESSAGES: Final = {kind: message for message, kind in _KINDS.items()}


def target_message(target: SignatureTarget) -> pb.SignatureTarget:
    return pb.SignatureTarget(kind=_MESSAGES[target.kind], id=str(target.id), version=target.version)


def target(message: pb.SignatureTarget) -> SignatureTarget:
    return SignatureTarget(_KINDS[message.kind], UUID(message.id), message.version)


def signature(message: pb.Signature) -> Signature:
    return Signature(
        id=UUID(message.id),
        target=target(message.target),
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


def signatures(message: pb.ListSignaturesResponse) -> Page[Signature]:
    return Page(tuple(map(signature, message.signatures)), message.next_page_token)


def prepared(message: pb.PrepareSignatureResponse, meaning: str) -> PreparedSignature:
    return PreparedSignature(
        target=target(message.target),
        meaning=meaning,
        content_hash=message.content_hash,
        content=message.content,
        challenge=message.challenge,
        needs_login=message.needs_login,
    )
