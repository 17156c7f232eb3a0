"""SignatureService: requests to commands, results to responses."""

from __future__ import annotations

from drillcore_proto.v1 import signatures_pb2 as pb
from drillcore_server.identity.credentials import Credentials
from drillcore_server.kernel.journal import SigningKeys
from drillcore_server.kernel.messages import optional_tenant_id
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.signatures.list import Listing, SignatureReader
from drillcore_server.signatures.messages import read_target, signature_message, target_message
from drillcore_server.signatures.prepare import prepare_signature
from drillcore_server.signatures.sign import RecordSigner, ToSign
from drillcore_server.signatures.targets import Targets
from drillcore_server.storage.sealed import SealedRecords


class SignatureService:
    def __init__(
        self, unit: Unit, sealed: SealedRecords, targets: Targets, credentials: Credentials, signing: SigningKeys
    ) -> None:
        self._unit = unit
        self._targets = targets
        self._signer = RecordSigner(unit, targets, credentials, signing)
        self._reader = SignatureReader(unit, sealed, targets)

    def PrepareSignature(self, request: pb.PrepareSignatureRequest, call: Call) -> pb.PrepareSignatureResponse:
        offer, content = prepare_signature(
            self._unit,
            self._targets,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            target=read_target(request.target),
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
            target=read_target(request.target),
            content_hash=request.content_hash,
            meaning=request.meaning,
            login=request.login,
            password=request.password,
        )
        signature = self._signer.sign(call, tenant=optional_tenant_id(request.tenant_id), asked=asked)
        return pb.SignRecordResponse(signature=signature_message(signature))

    def ListSignatures(self, request: pb.ListSignaturesRequest, call: Call) -> pb.ListSignaturesResponse:
        target = read_target(request.target) if request.HasField("target") else None
        tenant = optional_tenant_id(request.tenant_id)
        page = self._reader.list_signatures(call, Listing(tenant, target, request.page_size, request.page_token))
        shown = [signature_message(listed.signature, foreign=listed.is_foreign) for listed in page.items]
        return pb.ListSignaturesResponse(signatures=shown, next_page_token=page.next_token)
