"""Raw calls of the services for documents and nodes, as one caller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import documents_pb2 as pb
from drillcore_proto.v1 import documents_pb2_grpc, nodes_pb2, nodes_pb2_grpc

M = TypeVar("M", bound=Message)
ADDED, UPDATED = pb.OUTCOME_KIND_ADDED, pb.OUTCOME_KIND_UPDATED
UNCHANGED, FAILED = pb.OUTCOME_KIND_UNCHANGED, pb.OUTCOME_KIND_FAILED
RAW, CHUNK = nodes_pb2.LEVEL_RAW, nodes_pb2.LEVEL_CHUNK
SECTION, MASTER = nodes_pb2.LEVEL_SECTION, nodes_pb2.LEVEL_MASTER
LEVELS = (MASTER, SECTION, CHUNK, RAW)


@dataclass(frozen=True)
class File:
    """A document to send."""

    name: str
    content: str | bytes
    source_id: str = ""
    media_type: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        return self.content.encode() if isinstance(self.content, str) else self.content


@dataclass(frozen=True)
class Added:
    """The whole answer to one AddDocuments call."""

    outcomes: Sequence[pb.DocumentOutcome]
    progress: Sequence[pb.Progress]
    done: pb.AddDocumentsDone

    @property
    def kinds(self) -> list[int]:
        return [outcome.kind for outcome in self.outcomes]

    @property
    def by_name(self) -> dict[str, pb.DocumentOutcome]:
        return {outcome.name: outcome for outcome in self.outcomes}

    @property
    def ids(self) -> dict[str, str]:
        return {outcome.name: outcome.document_id for outcome in self.outcomes}


def files(texts: Mapping[str, str | bytes]) -> list[File]:
    return [File(name, text) for name, text in texts.items()]


def parts(
    corpus: str, sent: Iterable[File], *, tenant: str = "", part_bytes: int = 1 << 20
) -> Iterator[pb.AddDocumentsRequest]:
    """The requests that send these files."""
    sent = list(sent)
    yield pb.AddDocumentsRequest(target=pb.AddDocumentsTarget(tenant_id=tenant, corpus_id=corpus))
    for file in sent:
        yield pb.AddDocumentsRequest(
            header=pb.DocumentHeader(
                name=file.name, media_type=file.media_type, source_id=file.source_id, metadata=file.metadata
            )
        )
        for start in range(0, len(file.data), part_bytes):
            yield pb.AddDocumentsRequest(data=file.data[start : start + part_bytes])
    yield pb.AddDocumentsRequest(end=pb.AddDocumentsEnd(documents=len(sent)))


def update_parts(
    corpus: str,
    content: str | bytes,
    *,
    metadata: Mapping[str, str] | None = None,
    name: str = "",
    media_type: str = "",
    part_bytes: int = 1 << 20,
    **target: Any,
) -> Iterator[pb.UpdateDocumentRequest]:
    """The requests that give a document new content."""
    yield pb.UpdateDocumentRequest(target=pb.UpdateDocumentTarget(corpus_id=corpus, **target))
    given = None if metadata is None else pb.NewMetadata(entries=metadata)
    yield pb.UpdateDocumentRequest(header=pb.UpdateDocumentHeader(name=name, media_type=media_type, metadata=given))
    data = content.encode() if isinstance(content, str) else content
    for start in range(0, len(data), part_bytes):
        yield pb.UpdateDocumentRequest(data=data[start : start + part_bytes])
    yield pb.UpdateDocumentRequest(end=pb.UpdateDocumentEnd())


def at_revision(revision: int) -> nodes_pb2.AsOf:
    return nodes_pb2.AsOf(revision=revision)


class Caller:
    """Calls raise `grpc.RpcError`; see `refused`."""

    def __init__(self, address: str, token: str) -> None:
        self._channel = grpc.insecure_channel(
            address, [("grpc.enable_retries", 0), ("grpc.max_receive_message_length", 1 << 26)]
        )
        self.documents = documents_pb2_grpc.DocumentServiceStub(self._channel)
        self.nodes = nodes_pb2_grpc.NodeServiceStub(self._channel)
        self._token = token

    def close(self) -> None:
        self._channel.close()

    def options(self, request_id: str | None = None, timeout_s: float = 60.0) -> dict[str, Any]:
        metadata = [("authorization", f"Bearer {self._token}")]
        if request_id is not None:
            metadata.append(("drillcore-request-id", request_id))
        return {"metadata": metadata, "timeout": timeout_s}

    def send(self, requests: Iterable[pb.AddDocumentsRequest], request_id: str | None = None) -> Added:
        events = list(self.documents.AddDocuments(iter(requests), **self.options(request_id)))
        assert [event.WhichOneof("event") for event in events].count("done") == 1
        assert events[-1].WhichOneof("event") == "done"
        return Added(
            [event.outcome for event in events if event.WhichOneof("event") == "outcome"],
            [event.progress for event in events if event.WhichOneof("event") == "progress"],
            events[-1].done,
        )

    def add(self, corpus: str, *sent: File, request_id: str | None = None) -> Added:
        return self.send(parts(corpus, sent), request_id)

    def add_texts(self, corpus: str, texts: Mapping[str, str]) -> dict[str, str]:
        """Adds texts, all of which must be new. Returns their document ids by name."""
        added = self.add(corpus, *files(texts))
        assert set(added.kinds) == {ADDED}
        return added.ids

    def remove(self, corpus: str, *ids: str, request_id: str | None = None) -> pb.RemoveDocumentsResponse:
        request = pb.RemoveDocumentsRequest(corpus_id=corpus, document_ids=ids)
        return self.documents.RemoveDocuments(request, **self.options(request_id))

    def document(self, corpus: str, document_id: str, as_of: nodes_pb2.AsOf | None = None) -> pb.GetDocumentResponse:
        """The document with its text."""
        request = pb.GetDocumentRequest(corpus_id=corpus, id=document_id, with_text=True, as_of=as_of)
        return self.documents.GetDocument(request, **self.options())

    def text(self, corpus: str, document_id: str, as_of: nodes_pb2.AsOf | None = None) -> str:
        return self.document(corpus, document_id, as_of).text

    def pages_of_documents(self, corpus: str, **fields: Any) -> Iterator[pb.ListDocumentsResponse]:
        return _pages(
            lambda request: self.documents.ListDocuments(request, **self.options()),
            pb.ListDocumentsRequest(corpus_id=corpus, **fields),
        )

    def list_documents(self, corpus: str, **fields: Any) -> list[pb.Document]:
        return [document for page in self.pages_of_documents(corpus, **fields) for document in page.documents]

    def head(self, corpus: str) -> int:
        request = pb.ListDocumentsRequest(corpus_id=corpus, page_size=1)
        return self.documents.ListDocuments(request, **self.options()).revision

    def node(self, node_id: str, **fields: Any) -> nodes_pb2.Node:
        return self.nodes.GetNode(nodes_pb2.GetNodeRequest(id=node_id, **fields), **self.options()).node

    def pages_of_query(self, *corpora: str, level: int, **fields: Any) -> Iterator[nodes_pb2.QueryResponse]:
        return _pages(
            lambda request: self.nodes.Query(request, **self.options()),
            nodes_pb2.QueryRequest(corpus_ids=corpora, level=level, **fields),
        )

    def hits(self, *corpora: str, level: int, **fields: Any) -> list[nodes_pb2.QueryHit]:
        return [hit for page in self.pages_of_query(*corpora, level=level, **fields) for hit in page.hits]

    def query(self, *corpora: str, level: int, **fields: Any) -> list[nodes_pb2.Node]:
        """The nodes of all pages."""
        return [hit.node for hit in self.hits(*corpora, level=level, **fields)]

    def master(self, corpus: str, **fields: Any) -> nodes_pb2.Node:
        (master,) = self.query(corpus, level=MASTER, **fields)
        return master

    def pages_below(self, node_id: str, target: int, **fields: Any) -> Iterator[nodes_pb2.DrillDownResponse]:
        return _pages(
            lambda request: self.nodes.DrillDown(request, **self.options()),
            nodes_pb2.DrillDownRequest(id=node_id, target=target, **fields),
        )

    def below(self, node_id: str, target: int, **fields: Any) -> list[nodes_pb2.Node]:
        """The nodes of all pages."""
        return [node for page in self.pages_below(node_id, target, **fields) for node in page.nodes]

    def roll_up(self, *ids: str, target: int, **fields: Any) -> nodes_pb2.RollUpResponse:
        return self.nodes.RollUp(nodes_pb2.RollUpRequest(ids=ids, target=target, **fields), **self.options())

    def history(self, **fields: Any) -> list[nodes_pb2.Revision]:
        """The revisions of all pages."""
        pages = _pages(
            lambda request: self.nodes.GetHistory(request, **self.options()), nodes_pb2.GetHistoryRequest(**fields)
        )
        return [revision for page in pages for revision in page.revisions]


def _pages(ask: Any, request: M) -> Iterator[Any]:
    while True:
        page = ask(request)
        yield page
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token  # type: ignore[attr-defined]


def info_of(error: grpc.RpcError) -> error_details_pb2.ErrorInfo:
    """The error details that a refusal carries."""
    trailing = dict(error.trailing_metadata() or ())
    assert "grpc-status-details-bin" in trailing, f"{error.code()} without a reason: {error.details()}"
    status = status_pb2.Status.FromString(trailing["grpc-status-details-bin"])
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return info


@contextmanager
def refused(*reasons: Reason, field: str | None = None, saying: str = "") -> Iterator[None]:
    """The block must be refused for one of these reasons, with a message that contains `saying`."""
    with pytest.raises(grpc.RpcError) as caught:
        yield
    info = info_of(caught.value)
    assert info.reason in {reason.name for reason in reasons}, f"{info.reason}: {caught.value.details()}"
    assert caught.value.code() is Reason[info.reason].code
    assert saying in (caught.value.details() or "")
    if field is not None:
        assert info.metadata["field"] == field
