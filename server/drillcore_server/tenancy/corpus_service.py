"""CorpusService: converts requests to commands and results to responses."""

from __future__ import annotations

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import corpora_pb2 as pb
from drillcore_server.kernel.corpus_model import (
    Corpus,
    HoldChange,
    LegalHold,
    RetentionChange,
    SeenCorpus,
    Sharing,
    SharingChange,
)
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.messages import corpus_id, optional_corpus_id, optional_tenant_id, tenant_id, timestamp
from drillcore_server.kernel.unit import Call, Unit
from drillcore_server.tenancy.corpora import create_corpus, delete_corpus, get_corpus, list_corpora, update_corpus
from drillcore_server.tenancy.trim import Trimmer, trim_corpus


class CorpusService:
    def __init__(self, unit: Unit, trimmer: Trimmer) -> None:
        self._unit = unit
        self._trimmer = trimmer

    def CreateCorpus(self, request: pb.CreateCorpusRequest, call: Call) -> pb.CreateCorpusResponse:
        corpus = create_corpus(
            self._unit,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            name=request.name,
            description=request.description,
            metadata=request.metadata,
            corpus_id=optional_corpus_id(request.id),
            region=request.region,
        )
        return pb.CreateCorpusResponse(corpus=_message(SeenCorpus(corpus)))

    def GetCorpus(self, request: pb.GetCorpusRequest, call: Call) -> pb.GetCorpusResponse:
        key = request.name if request.WhichOneof("key") == "name" else corpus_id(request.id)
        corpus = get_corpus(self._unit, call, tenant=optional_tenant_id(request.tenant_id), key=key)
        return pb.GetCorpusResponse(corpus=_message(corpus))

    def ListCorpora(self, request: pb.ListCorporaRequest, call: Call) -> pb.ListCorporaResponse:
        tenant = optional_tenant_id(request.tenant_id)
        page = list_corpora(self._unit, call, tenant=tenant, size=request.page_size, token=request.page_token)
        return pb.ListCorporaResponse(corpora=map(_message, page.items), next_page_token=page.next_token)

    def UpdateCorpus(self, request: pb.UpdateCorpusRequest, call: Call) -> pb.UpdateCorpusResponse:
        corpus = update_corpus(
            self._unit,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            corpus_id=corpus_id(request.id),
            name=request.name if request.HasField("name") else None,
            description=request.description if request.HasField("description") else None,
            set_metadata=request.set_metadata,
            remove_metadata=request.remove_metadata,
            retention=_retention(request),
            hold=_hold(request),
            region=request.region,
            sharing=_sharing(request),
            expected_version=request.expected_version if request.HasField("expected_version") else None,
        )
        return pb.UpdateCorpusResponse(corpus=_message(SeenCorpus(corpus)))

    def DeleteCorpus(self, request: pb.DeleteCorpusRequest, call: Call) -> pb.DeleteCorpusResponse:
        delete_corpus(
            self._unit,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            corpus_id=corpus_id(request.id),
            expected_version=request.expected_version if request.HasField("expected_version") else None,
        )
        return pb.DeleteCorpusResponse()

    def TrimCorpus(self, request: pb.TrimCorpusRequest, call: Call) -> pb.TrimCorpusResponse:
        tenant = optional_tenant_id(request.tenant_id)
        done = trim_corpus(self._unit, self._trimmer, call, tenant=tenant, corpus_id=corpus_id(request.id))
        return pb.TrimCorpusResponse(oldest_revision=done.oldest, records_removed=done.removed, finished=done.finished)


def _retention(request: pb.UpdateCorpusRequest) -> RetentionChange | None:
    chosen = request.WhichOneof("retention")
    if chosen == "keep_everything" and not request.keep_everything:
        raise BadInput(Reason.INVALID_ARGUMENT, "keep_everything is true or left out", field="keep_everything")
    return None if chosen is None else RetentionChange(request.retention_days if chosen == "retention_days" else None)


def _hold(request: pb.UpdateCorpusRequest) -> HoldChange | None:
    chosen = request.WhichOneof("hold")
    return None if chosen is None else HoldChange(chosen == "hold_reason", getattr(request, chosen))


def _sharing(request: pb.UpdateCorpusRequest) -> SharingChange | None:
    chosen = request.WhichOneof("sharing")
    if chosen is None:
        return None
    if not (request.share_with_everyone or request.share_with_tenants.ids or request.stop_sharing):
        raise BadInput(Reason.INVALID_ARGUMENT, f"{chosen} is true, or names tenants, or is left out", field=chosen)
    tenants = [tenant_id(named, "share_with_tenants") for named in request.share_with_tenants.ids]
    return SharingChange(request.share_with_everyone, tenants)


def _message(seen: SeenCorpus) -> pb.Corpus:
    corpus = seen.corpus
    message = pb.Corpus(
        id=str(corpus.id),
        name=corpus.name,
        description=corpus.description,
        metadata=corpus.metadata,
        created_at=timestamp(corpus.created_at),
        updated_at=timestamp(corpus.updated_at),
        version=corpus.version,
        region=corpus.region,
        shared=seen.shared,
    )
    if not seen.shared:
        message.MergeFrom(_of_owner(corpus))
    return message


def _of_owner(corpus: Corpus) -> pb.Corpus:
    """The fields that only the corpus's own tenant and operators who act in that tenant see."""
    return pb.Corpus(
        tenant_id=str(corpus.tenant_id),
        created_by=corpus.created_by,
        retention_days=corpus.retention_days,
        legal_hold=None if corpus.legal_hold is None else _legal_hold(corpus.legal_hold),
        sharing=None if corpus.sharing is None else _shared_with(corpus.sharing),
    )


def _shared_with(sharing: Sharing) -> pb.Sharing:
    tenants = map(str, sharing.tenants)
    return pb.Sharing(everyone=sharing.everyone, tenant_ids=tenants, by=sharing.by, at=timestamp(sharing.at))


def _legal_hold(hold: LegalHold) -> pb.LegalHold:
    return pb.LegalHold(on=hold.on, reason=hold.reason, by=hold.by, at=timestamp(hold.at))
