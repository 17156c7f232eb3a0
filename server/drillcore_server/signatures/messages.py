"""Signatures as messages of the protocol, and as JSON in copies of a corpus."""

from __future__ import annotations

from typing import Any, Final

import orjson

from drillcore_formats.audit.encoding import to_base64
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import signatures_pb2 as pb
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.messages import any_id, timestamp
from drillcore_server.signatures.model import Signature, Target, TargetKind

SignatureContent = dict[str, Any]
_KINDS: Final = {
    pb.SIGNATURE_TARGET_KIND_NODE: TargetKind.NODE,
    pb.SIGNATURE_TARGET_KIND_AUDIT_RECORD: TargetKind.AUDIT_RECORD,
    pb.SIGNATURE_TARGET_KIND_EXPORT: TargetKind.EXPORT,
    pb.SIGNATURE_TARGET_KIND_REVIEW: TargetKind.REVIEW,
    pb.SIGNATURE_TARGET_KIND_FACT: TargetKind.FACT,
}
_MESSAGES: Final = {kind: message for message, kind in _KINDS.items()}
_VERSION_MAX: Final = (1 << 53) - 1
"""The largest whole number in canonical JSON. No record has that many versions."""


def read_target(message: pb.SignatureTarget) -> Target:
    if message.kind not in _KINDS:
        names = ", ".join(kind.word for kind in TargetKind)
        raise BadInput(Reason.INVALID_ARGUMENT, f"target.kind must be one of: {names}", field="target.kind")
    if message.version > _VERSION_MAX:
        raise BadInput(
            Reason.INVALID_ARGUMENT,
            f"target.version must be at most {_VERSION_MAX}; 0 means the current version",
            field="target.version",
        )
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


def signature_content(signature: Signature) -> SignatureContent:
    """The fields of the manifestation, and the further fields that are needed to verify them."""
    fields: SignatureContent = orjson.loads(signature.manifestation)
    return fields | {
        "manifestation": signature.manifestation,
        "signature": to_base64(signature.signature),
        "key_hash": signature.key_hash.hex(),
        "content_salt": signature.content_salt.hex(),
    }
