"""SignatureService: requests to commands, results to responses."""

from __future__ import annotations

from drillcore_proto.v1 import signatures_pb2 as pb
from drillcore_server.commands.list_signatures import Listing, list_signatures
from drillcore_server.commands.prepare_signature import prepare_signature
from drillcore_server.commands.sign_record import ToSign, sign_record
from drillcore_server.commands.signing import SigningDesk
from drillcore_server.commands.unit import Call
from drillcore_server.rpc.messages import optional_tenant_id
from drillcore_server.rpc.signature_messages import signature_message, target_message, target_of


class SignatureService:
    def __init__(self, desk: SigningDesk) -> None:
        self._desk = desk

    def PrepareSignature(self, request: pb.PrepareSignatureRequest, call: Call) -> pb.PrepareSignatureResponse:
        offer, content = prepare_signature(
            self._desk,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            target=target_of(request.target),
            meaning=request.meaning,
        )
        return pb.PrepareSignatureResponse(
            target=target_message(offer.target),
            content_hash=offer.content_hash,
            content=content.decode(),
            challenge=offer.challenge,
            needs_login=offer.needs_login,
        )

    def SignRecord(self, request: pb.SignRecordRequest, call: Call) -> pb.SignRecordResponse:
        asked = ToSign(
            challenge=request.challenge,
            target=target_of(request.target),
            content_hash=request.content_hash,
            meaning=request.meaning,
            login=request.login,
            password=request.password,
        )
        signature = sign_record(self._desk, call, tenant=optional_tenant_id(request.tenant_id), asked=asked)
        return pb.SignRecordResponse(signature=signature_message(signature))

    def ListSignatures(self, request: pb.ListSignaturesRequest, call: Call) -> pb.ListSignaturesResponse:
        target = target_of(request.target) if request.HasField("target") else None
        tenant = optional_tenant_id(request.tenant_id)
        page = list_signatures(self._desk.library, call, Listing(tenant, target, request.page_size, request.page_token))
        shown = [signature_message(one.signature, foreign=one.is_foreign) for one in page.items]
        return pb.ListSignaturesResponse(signatures=shown, next_page_token=page.next_token)
