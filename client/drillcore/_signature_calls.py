"""Calls about electronic signatures. See `_calls`."""

from __future__ import annotations

from typing import Final

from drillcore import _convert_signatures as convert
from drillcore._call import Call, Id, Pages, id_text
from drillcore._results import Page
from drillcore._signature_results import PreparedSignature, Signature, SignatureTarget
from drillcore_proto.v1 import signatures_pb2 as pb

_SIGNATURES: Final = "/drillcore_proto.v1.SignatureService/"


def prepare_signature(
    target: SignatureTarget,
    meaning: str,
    *,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[PreparedSignature]:
    """What a signature would stand under: look at it, then `sign_record`. Only in a session that a password opened.

    Raises NotFound, and Conflict if the target is at another version than the one that is named.
    """

    def decode(answer: bytes) -> PreparedSignature:
        return convert.prepared(pb.PrepareSignatureResponse.FromString(answer), meaning)

    request = pb.PrepareSignatureRequest(
        tenant_id=id_text(tenant_id), target=convert.target_message(target), meaning=meaning
    )
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
    """Sign what was prepared, with the password, and for the first signature of a session with the login too.

    Raises PermissionDenied for whoever cannot sign, Unauthenticated for a wrong password, which counts as a failed
    login, Conflict if the target has changed, FailedPrecondition if the preparation is used up or too old.
    """

    def decode(answer: bytes) -> Signature:
        return convert.signature(pb.SignRecordResponse.FromString(answer).signature)

    request = pb.SignRecordRequest(
        tenant_id=id_text(tenant_id),
        challenge=prepared.challenge,
        target=convert.target_message(prepared.target),
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
    """One page of the signatures of a record, or of all that the caller may see, oldest first."""

    def decode(answer: bytes) -> Page[Signature]:
        return convert.signatures(pb.ListSignaturesResponse.FromString(answer))

    request = pb.ListSignaturesRequest(
        tenant_id=id_text(tenant_id),
        target=None if target is None else convert.target_message(target),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_SIGNATURES}ListSignatures", request, decode, request_id, timeout_s)


def iter_signatures(
    target: SignatureTarget | None = None,
    *,
    page_size: int = 0,
    tenant_id: Id | None = None,
    timeout_s: float | None = None,
) -> Pages[Signature]:
    """Every signature of a record, or every one that the caller may see. `timeout_s` is for each page."""
    return lambda token: list_signatures(
        target, page_size=page_size, page_token=token, tenant_id=tenant_id, timeout_s=timeout_s
    )
