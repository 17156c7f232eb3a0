"""The call that stores a whole hierarchy. See `_calls`."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Iterator
from typing import Final

from drillcore import _convert_hierarchy
from drillcore._call import Id, id_text
from drillcore._hierarchy import HierarchyDocument, NewNode, OnPutProgress, PutResult
from drillcore._upload import Upload, unanswered
from drillcore_proto.v1 import documents_pb2
from drillcore_proto.v1.documents_pb2 import PutHierarchyRequest

_PATH: Final = "/drillcore_proto.v1.DocumentService/PutHierarchy"

HierarchyPart = HierarchyDocument | NewNode | PutHierarchyRequest
"""A document or a node; as a message of the protocol, if it is one already."""


def put_hierarchy(
    corpus_id: Id,
    parts: Iterable[HierarchyPart] | AsyncIterable[HierarchyPart],
    *,
    embedding_model: str = "",
    expected_revision: int | None = None,
    on_event: OnPutProgress | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Upload[PutResult]:
    """Store a hierarchy that you made, whatever its size: the corpus's next revision is exactly this one.

    First its documents (HierarchyDocument), then its nodes in any order: one NewMaster, any number of NewSection,
    NewChunk, NewRaw. An id that the corpus has, or had, is a new version of that node. `embedding_model` names what
    made the chunks' embeddings; without embeddings the server makes them.

    What is wrong is refused as a whole: InvalidArgument, whose message names the node, AlreadyExists for an id that
    another corpus or level has, Conflict if the corpus is not at `expected_revision`. As with `add_documents`, nothing
    is stored if `parts` raises, and repeating it under the same `request_id` does it once. `timeout_s` is for the
    whole call; by default it has no limit.
    """
    target = documents_pb2.PutHierarchyTarget(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        embedding_model=embedding_model,
        expected_revision=expected_revision,
    )
    return Upload(_PATH, target, parts, _requests, _Receipt, on_event, request_id, timeout_s)


def _requests(
    target: documents_pb2.PutHierarchyTarget, parts: Iterable[HierarchyPart]
) -> Iterator[PutHierarchyRequest]:
    yield PutHierarchyRequest(target=target)
    documents = nodes = 0
    for part in parts:
        request = _request(part)
        if request.HasField("document"):
            documents += 1
        else:
            nodes += 1
        yield request
    yield PutHierarchyRequest(end=documents_pb2.PutHierarchyEnd(documents=documents, nodes=nodes))


def _request(part: HierarchyPart) -> PutHierarchyRequest:
    if isinstance(part, PutHierarchyRequest):
        return part
    if isinstance(part, HierarchyDocument):
        return PutHierarchyRequest(document=_convert_hierarchy.document(part))
    return PutHierarchyRequest(node=_convert_hierarchy.node(part))


class _Receipt:
    """What the answers say."""

    def __init__(self, on_event: OnPutProgress | None) -> None:
        self._on_event = on_event or (lambda _event: None)
        self._done: documents_pb2.PutHierarchyDone | None = None

    def take(self, answer: bytes) -> None:
        response = documents_pb2.PutHierarchyResponse.FromString(answer)
        match response.WhichOneof("event"):
            case "progress":
                self._on_event(_convert_hierarchy.progress(response.progress))
            case "done":
                self._done = response.done

    def result(self, request_id: str) -> PutResult:
        if self._done is None:
            raise unanswered(request_id)
        return _convert_hierarchy.put_result(self._done)
