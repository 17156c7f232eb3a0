"""EnvelopeService: requests to commands, results to responses."""

from __future__ import annotations

from uuid import UUID

from drillcore_proto.v1 import envelopes_pb2 as pb
from drillcore_server.commands.continue_envelope import continue_envelope
from drillcore_server.commands.envelope_library import EnvelopeLibrary
from drillcore_server.commands.get_envelope import get_envelope
from drillcore_server.commands.issuing import Issued
from drillcore_server.commands.pack_envelope import pack_envelope
from drillcore_server.commands.preview_envelope import preview_envelope
from drillcore_server.commands.unit import Call
from drillcore_server.domain.ids import EnvelopeId
from drillcore_server.rpc.envelope_messages import Sent, asked, candidate_messages, cap_message
from drillcore_server.rpc.messages import any_id, optional_tenant_id, timestamp


class EnvelopeService:
    def __init__(self, library: EnvelopeLibrary) -> None:
        self._library = library

    def PreviewEnvelope(self, request: pb.PreviewEnvelopeRequest, call: Call) -> pb.PreviewEnvelopeResponse:
        tenant = optional_tenant_id(request.tenant_id)
        previewed = preview_envelope(self._library, call, tenant=tenant, asked=asked(request.question))
        envelope, quality = previewed.envelope, previewed.envelope.quality
        return pb.PreviewEnvelopeResponse(
            facts_available=envelope.available,
            facts_included=len(envelope.packing.included),
            estimated_tokens=envelope.packing.tokens,
            quality_tier=pb.QualityTier.ValueType(quality.tier),
            saturation=quality.saturation,
            etag=envelope.etag,
            communities=envelope.communities,
            memory_tier_hit=envelope.memory_tier_hit,
            token_budget=envelope.budget.tokens,
            caps=map(cap_message, quality.caps),
            warnings=envelope.warnings,
            revisions={str(corpus): revision for corpus, revision in envelope.revisions.items()},
            headers=previewed.headers,
        )

    def PackEnvelope(self, request: pb.PackEnvelopeRequest, call: Call) -> pb.PackEnvelopeResponse:
        sent = Sent()
        issued = pack_envelope(
            self._library,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            asked=asked(request.question),
            if_match=request.if_match,
            salted=request.salted_etag,
            digest=sent.digest,
        )
        return _issued(issued, sent, explain=request.explain)

    def ContinueEnvelope(self, request: pb.ContinueEnvelopeRequest, call: Call) -> pb.PackEnvelopeResponse:
        sent = Sent()
        issued = continue_envelope(
            self._library,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            continuation=EnvelopeId(any_id(request.continuation_id, "continuation_id")),
            answer=request.previous_answer,
            digest=sent.digest,
        )
        return _issued(issued, sent, explain=request.explain)

    def GetEnvelope(self, request: pb.GetEnvelopeRequest, call: Call) -> pb.GetEnvelopeResponse:
        tenant, wanted = optional_tenant_id(request.tenant_id), EnvelopeId(any_id(request.envelope_id, "envelope_id"))
        sent = Sent()
        replayed = get_envelope(self._library, call, tenant=tenant, wanted=wanted, digest=sent.digest)
        issued = replayed.issued
        return pb.GetEnvelopeResponse(
            envelope_id=str(issued.id),
            created_at=timestamp(issued.at),
            created_by=issued.principal,
            query=issued.plan.query,
            replay=pb.Replay.ValueType(replayed.replay),
            envelope=None if replayed.envelope is None else sent.message(replayed.envelope),
            issued_sha256=issued.digest.hex(),
            fact_ids=[str(one.id) for one in issued.facts],
            missing_fact_ids=map(str, replayed.missing),
            parent_envelope_id=_text(issued.parent),
            audit_record_id=str(issued.record),
            quality_tier=pb.QualityTier.ValueType(issued.tier),
            window_number=issued.window,
            revisions={str(one.corpus): one.revision for one in issued.corpora},
        )


def _issued(issued: Issued, sent: Sent, *, explain: bool) -> pb.PackEnvelopeResponse:
    envelope = issued.envelope
    return pb.PackEnvelopeResponse(
        envelope_id=str(issued.id),
        not_modified=envelope is None,
        envelope=None if envelope is None else sent.message(envelope),
        created_at=timestamp(issued.created_at),
        headers=issued.headers,
        continuation_id=issued.continuation,
        quality_history=[pb.QualityTier.ValueType(one) for one in issued.history],
        candidates=candidate_messages(envelope.explained) if explain and envelope is not None else (),
        session_id=issued.session,
    )


def _text(one: UUID | None) -> str:
    return "" if one is None else str(one)
