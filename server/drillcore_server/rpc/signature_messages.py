"""Signatures and what they are of, as messages."""

from __future__ import annotations

from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import signatures_pb2 as pb
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.signatures import Signature, Target, TargetKind
from drillcore_server.rpc.messages import any_id, timestamp

_KINDS: Final = {
    pb.SIGNATURE_TARGET_KIND_NODE: TargetKind.NODE,
    pb.SIGNATURE_TARGET_KIND_AUDIT_RECORD: TargetKind.AUDIT_RECORD,
    pb.SIGNATURE_TARGET_KIND_EXPORT: TargetKind.EXPORT,
    pb.SIGNATURE_TARGET_KIND_REVIEW: TargetKind.REVIEW,
    pb.SIGNATURE_TARGET_KIND_FACT: TargetKind.FACT,
}
_MESSAGES: Final = {kind: message for message, kind in _KINDS.items()}
_VERSION_MAX: Final = (1 << 53) - 1
"""Larger numbers have no place in canonical JSON, and no record has so many versions."""


def target_of(message: pb.SignatureTarget) -> Target:
    if message.kind not in _KINDS:
        names = ", ".join(one.word for one in TargetKind)
        raise BadInput(Reason.INVALID_ARGUMENT, f"target.kind must be one of: {names}", field="target.kind")
    if message.version > _VERSION_MAX:
        raise BadInput(Reason.INVALID_ARGUMENT, "there is no such version", field="target.version")
    return Target(_KINDS[message.kind], any_id(message.id, "target.id"), message.version)


def target_message(target: Target) -> pb.SignatureTarget:
    return pb.SignatureTarget(kind=_MESSAGES[target.kind], id=str(target.id), version=target.version)


def signature_message(signature: Signature, *, foreign: bool = False) -> pb.Signature:
    return pb.Signature(
        id=str(signature.id),
        target=target_message(signature.target),
        corpus_id=str(signature.corpus or ""),
        signer_id=str(signature.signer),
        signer_login=signature.signer_login,
        signer_name=signature.signer_name,
        signed_at=timestamp(signature.signed_at),
        meaning=signature.meaning,
        content_hash=signature.content_hash,
        content_salt=signature.content_salt,
        record_id=signature.record.bytes,
        key_hash=signature.key_hash,
        signature=signature.signature,
        manifestation=signature.manifestation,
        foreign=foreign,
    )
