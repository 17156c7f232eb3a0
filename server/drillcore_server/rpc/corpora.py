"""CorpusService: requests to commands, results to responses."""

from __future__ import annotations

from drillcore_proto.v1 import corpora_pb2 as pb
from drillcore_server.commands.create_corpus import create_corpus
from drillcore_server.commands.delete_corpus import delete_corpus
from drillcore_server.commands.get_corpus import get_corpus
from drillcore_server.commands.list_corpora import list_corpora
from drillcore_server.commands.unit import Call, Unit
from drillcore_server.commands.update_corpus import update_corpus
from drillcore_server.domain.corpora import Corpus
from drillcore_server.rpc.messages import corpus_id, optional_corpus_id, optional_tenant_id, timestamp


class CorpusService:
    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def CreateCorpus(self, request: pb.CreateCorpusRequest, call: Call) -> pb.CreateCorpusResponse:
        corpus = create_corpus(
            self._unit,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            name=request.name,
            description=request.description,
            metadata=request.metadata,
            corpus_id=optional_corpus_id(request.id),
        )
        return pb.CreateCorpusResponse(corpus=_message(corpus))

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
            expected_version=request.expected_version if request.HasField("expected_version") else None,
        )
        return pb.UpdateCorpusResponse(corpus=_message(corpus))

    def DeleteCorpus(self, request: pb.DeleteCorpusRequest, call: Call) -> pb.DeleteCorpusResponse:
        delete_corpus(
            self._unit,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            corpus_id=corpus_id(request.id),
            expected_version=request.expected_version if request.HasField("expected_version") else None,
        )
        return pb.DeleteCorpusResponse()


def _message(corpus: Corpus) -> pb.Corpus:
    return pb.Corpus(
        id=str(corpus.id),
        tenant_id=str(corpus.tenant_id),
        name=corpus.name,
        description=corpus.description,
        metadata=corpus.metadata,
        created_at=timestamp(corpus.created_at),
        created_by=corpus.created_by,
        updated_at=timestamp(corpus.updated_at),
        version=corpus.version,
    )
