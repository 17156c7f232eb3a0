"""Raw calls of FactService and of the services for documents and nodes, as one caller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from drillcore_proto.v1 import facts_pb2 as pb
from drillcore_proto.v1 import facts_pb2_grpc
from tests.support.callers.knowledge import Caller
from tests.support.servers.running import Running


class FactCaller(Caller):
    """Calls raise `grpc.RpcError`; see `knowledge.refused`."""

    def __init__(self, server: Running, token: str) -> None:
        super().__init__(server.address, token)
        self.server = server
        self.token = token
        self.facts = facts_pb2_grpc.FactServiceStub(self._channel)

    def __enter__(self) -> FactCaller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def corpus(self, name: str = "plan") -> str:
        """Makes a corpus and returns its id."""
        return str(self.server.client(self.token).create_corpus(name).id)

    def put(
        self, corpus: str, *drafts: pb.FactDraft, request_id: str | None = None, **fields: Any
    ) -> pb.PutFactsResponse:
        request = pb.PutFactsRequest(corpus_id=corpus, facts=drafts, **fields)
        return self.facts.PutFacts(request, **self.options(request_id))

    def get(self, fact: str, **fields: Any) -> pb.Fact:
        (found,) = self.facts.GetFacts(pb.GetFactsRequest(fact_ids=[fact], **fields), **self.options()).facts
        return found

    def pages(self, corpus: str, **fields: Any) -> Iterator[pb.ListFactsResponse]:
        token = ""
        while True:
            request = pb.ListFactsRequest(corpus_id=corpus, page_token=token, **fields)
            page = self.facts.ListFacts(request, **self.options())
            yield page
            token = page.next_page_token
            if not token:
                return

    def list(self, corpus: str, **fields: Any) -> list[pb.Fact]:
        return [fact for page in self.pages(corpus, **fields) for fact in page.facts]

    def update(self, fact: str, **fields: Any) -> pb.UpdateFactResponse:
        return self.facts.UpdateFact(pb.UpdateFactRequest(fact_id=fact, **fields), **self.options())

    def set_status(
        self, fact: str, status: pb.FactStatus.ValueType, request_id: str | None = None, **fields: Any
    ) -> pb.SetFactStatusResponse:
        request = pb.SetFactStatusRequest(fact_ids=[fact], status=status, **fields)
        return self.facts.SetFactStatus(request, **self.options(request_id))

    def archive(self, *facts: str, request_id: str | None = None) -> pb.ArchiveFactsResponse:
        return self.facts.ArchiveFacts(pb.ArchiveFactsRequest(fact_ids=facts), **self.options(request_id))

    def restore(self, *facts: str) -> pb.RestoreFactsResponse:
        return self.facts.RestoreFacts(pb.RestoreFactsRequest(fact_ids=facts), **self.options())

    def search(self, text: str, *corpora: str, **fields: Any) -> pb.SearchFactsResponse:
        request = pb.SearchFactsRequest(corpus_ids=corpora, text=text, **fields)
        return self.facts.SearchFacts(request, **self.options())

    def state(self, *corpora: str, **fields: Any) -> pb.GetStateResponse:
        return self.facts.GetState(pb.GetStateRequest(corpus_ids=corpora, **fields), **self.options())
