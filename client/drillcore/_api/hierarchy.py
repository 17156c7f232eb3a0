"""Stores a whole hierarchy that the client made.

The server itself computes counts, tokens, spans of chunks, and embeddings where there are none.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from drillcore._api.node_data import Citation, Entity, Finding, Processing, Span, entity_message, span_message
from drillcore._transport.call import Id, id_text
from drillcore._transport.upload import Upload, unanswered
from drillcore_proto.v1 import documents_pb2, nodes_pb2
from drillcore_proto.v1.documents_pb2 import PutHierarchyRequest

_UNKNOWN = Processing("", "")


@dataclass(frozen=True, slots=True)
class HierarchyDocument:
    """A document that nodes are made from. If the corpus has or had its id, it is a new version of that document."""

    id: UUID
    source_id: str
    """The source it comes from."""
    title: str = ""
    media_type: str = ""
    preprocessing: Sequence[str] = ()
    """The steps from the bytes to the text, in order."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    characters: int = 0
    """The length of its whole text; 0 if the text ends with its last raw."""
    content_hash: str = ""
    """SHA-256 of the whole text, in hex. The server computes it if the raws cover the whole text."""


@dataclass(frozen=True, slots=True)
class NewMaster:
    """The single node above all others."""

    id: UUID
    summary: str = ""
    citations: Sequence[Citation] = ()
    findings: Sequence[Finding] = ()
    keywords: Sequence[str] = ()
    processing: Processing = _UNKNOWN


@dataclass(frozen=True, slots=True)
class NewSection:
    """A node below the master. It has at least one chunk below it, and cites only its chunks."""

    id: UUID
    parent_id: UUID
    title: str = ""
    category: str = ""
    summary: str = ""
    citations: Sequence[Citation] = ()
    entities: Sequence[Entity] = ()
    keywords: Sequence[str] = ()
    processing: Processing = _UNKNOWN


@dataclass(frozen=True, slots=True)
class NewChunk:
    """A node below a section. It has at least one raw below it."""

    id: UUID
    parent_id: UUID
    document_id: UUID
    headings: Sequence[str] = ()
    page: int | None = None
    summary: str = ""
    quotes: Sequence[Citation] = ()
    """Passages of its raws. Their `chunk_id` may be None."""
    entities: Sequence[Entity] = ()
    keywords: Sequence[str] = ()
    embedding: Sequence[float] = ()
    """Either all chunks have one, or none has."""
    processing: Processing = _UNKNOWN


@dataclass(frozen=True, slots=True)
class NewRaw:
    """Original text below a chunk. Raws of one chunk do not overlap; there may be gaps between them."""

    parent_id: UUID
    document_id: UUID
    span: Span
    content: str
    """The original characters of the span."""
    id: UUID | None = None
    """None: the server makes one."""


NewNode = NewMaster | NewSection | NewChunk | NewRaw


@dataclass(frozen=True, slots=True)
class PutProgress:
    """The progress of a running call. Nothing of the hierarchy can be read yet."""

    documents_received: int
    nodes_received: int
    chunks_prepared: int


OnPutProgress = Callable[[PutProgress], object]


@dataclass(frozen=True, slots=True)
class PutResult:
    """How much was stored."""

    revision: int
    documents: int
    sections: int
    chunks: int
    raws: int


def _document_message(document: HierarchyDocument) -> documents_pb2.HierarchyDocument:
    return documents_pb2.HierarchyDocument(
        id=id_text(document.id),
        source_id=document.source_id,
        title=document.title,
        media_type=document.media_type,
        preprocessing=document.preprocessing,
        metadata=document.metadata,
        characters=document.characters,
        content_hash=document.content_hash,
    )


def _node_message(node: NewNode) -> documents_pb2.HierarchyNode:
    if isinstance(node, NewMaster):
        return documents_pb2.HierarchyNode(id=id_text(node.id), master=_master_message(node))
    if not isinstance(node, NewSection | NewChunk | NewRaw):
        raise TypeError(f"a hierarchy consists of documents and nodes, not of {type(node).__name__}")
    message = documents_pb2.HierarchyNode(id=id_text(node.id), parent_id=id_text(node.parent_id))
    if isinstance(node, NewSection):
        message.section.CopyFrom(_section_message(node))
    elif isinstance(node, NewChunk):
        message.chunk.CopyFrom(_chunk_message(node))
    else:
        message.raw.CopyFrom(_raw_message(node))
    return message


def _master_message(master: NewMaster) -> nodes_pb2.MasterContent:
    return nodes_pb2.MasterContent(
        summary=master.summary,
        citations=map(_citation_message, master.citations),
        findings=map(_finding_message, master.findings),
        keywords=master.keywords,
        processing=_processing_message(master.processing),
    )


def _section_message(section: NewSection) -> nodes_pb2.SectionContent:
    return nodes_pb2.SectionContent(
        title=section.title,
        category=section.category,
        summary=section.summary,
        citations=map(_citation_message, section.citations),
        entities=map(entity_message, section.entities),
        keywords=section.keywords,
        processing=_processing_message(section.processing),
    )


def _chunk_message(chunk: NewChunk) -> nodes_pb2.ChunkContent:
    return nodes_pb2.ChunkContent(
        document_id=id_text(chunk.document_id),
        headings=chunk.headings,
        page=chunk.page,
        summary=chunk.summary,
        quotes=map(_citation_message, chunk.quotes),
        entities=map(entity_message, chunk.entities),
        keywords=chunk.keywords,
        embedding=chunk.embedding,
        processing=_processing_message(chunk.processing),
    )


def _raw_message(raw: NewRaw) -> nodes_pb2.RawContent:
    return nodes_pb2.RawContent(document_id=id_text(raw.document_id), span=span_message(raw.span), content=raw.content)


def _citation_message(citation: Citation) -> nodes_pb2.Citation:
    return nodes_pb2.Citation(
        document_id=id_text(citation.document_id),
        chunk_id=id_text(citation.chunk_id),
        span=span_message(citation.span),
        text=citation.text,
        weight=citation.weight,
    )


def _finding_message(finding: Finding) -> nodes_pb2.Finding:
    return nodes_pb2.Finding(kind=finding.kind, text=finding.text, citation=_citation_message(finding.citation))


def _processing_message(processing: Processing) -> nodes_pb2.Processing:
    return nodes_pb2.Processing(
        processor=processing.processor, version=processing.version, fallback_reason=processing.fallback_reason
    )


def to_progress(message: documents_pb2.PutHierarchyProgress) -> PutProgress:
    return PutProgress(message.documents_received, message.nodes_received, message.chunks_prepared)


def to_put_result(message: documents_pb2.PutHierarchyDone) -> PutResult:
    return PutResult(message.revision, message.documents, message.sections, message.chunks, message.raws)


_PATH: Final = "/drillcore_proto.v1.DocumentService/PutHierarchy"
HierarchyPart = HierarchyDocument | NewNode | PutHierarchyRequest
"""A document or a node, or a message of the protocol with one."""


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
    """Store a hierarchy that you made, of any size. The next revision of the corpus is exactly this hierarchy.

    Give its documents first (HierarchyDocument), then its nodes in any order: one NewMaster, and any number of
    NewSection, NewChunk and NewRaw. If the corpus has or had the id of a node, it is a new version of that node.
    `embedding_model` names the model that made the chunks' embeddings; without embeddings the server makes them.

    If anything is wrong, nothing is stored. Raises InvalidArgument, whose message names the node; AlreadyExists for an
    id that another corpus or level has; Conflict if the corpus is not at `expected_revision`. As with `add_documents`,
    nothing is stored if `parts` raises, and a call repeated under the same `request_id` takes effect once. `timeout_s`
    is for the whole call; by default there is no limit.
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
        return PutHierarchyRequest(document=_document_message(part))
    return PutHierarchyRequest(node=_node_message(part))


class _Receipt:
    """Collects the answers."""

    def __init__(self, on_event: OnPutProgress | None) -> None:
        self._on_event = on_event or (lambda _event: None)
        self._done: documents_pb2.PutHierarchyDone | None = None

    def take(self, answer: bytes) -> None:
        response = documents_pb2.PutHierarchyResponse.FromString(answer)
        match response.WhichOneof("event"):
            case "progress":
                self._on_event(to_progress(response.progress))
            case "done":
                self._done = response.done

    def result(self, request_id: str) -> PutResult:
        if self._done is None:
            raise unanswered(request_id)
        return to_put_result(self._done)
