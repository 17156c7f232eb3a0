"""A hierarchy that a client made, to protocol messages."""

from __future__ import annotations

from collections.abc import Iterable

from drillcore._call import id_text
from drillcore._hierarchy import (
    HierarchyDocument,
    NewChunk,
    NewMaster,
    NewNode,
    NewRaw,
    NewSection,
    PutProgress,
    PutResult,
)
from drillcore._node_results import Citation, Entity, Finding, Processing, Span
from drillcore_proto.v1 import documents_pb2, nodes_pb2


def document(one: HierarchyDocument) -> documents_pb2.HierarchyDocument:
    return documents_pb2.HierarchyDocument(
        id=id_text(one.id),
        source_id=one.source_id,
        title=one.title,
        media_type=one.media_type,
        preprocessing=one.preprocessing,
        metadata=one.metadata,
        characters=one.characters,
        content_hash=one.content_hash,
    )


def node(one: NewNode) -> documents_pb2.HierarchyNode:
    if isinstance(one, NewMaster):
        return documents_pb2.HierarchyNode(id=id_text(one.id), master=_master(one))
    if not isinstance(one, NewSection | NewChunk | NewRaw):
        raise TypeError(f"a hierarchy is made of documents and nodes, not of {type(one).__name__}")
    message = documents_pb2.HierarchyNode(id=id_text(one.id), parent_id=id_text(one.parent_id))
    if isinstance(one, NewSection):
        message.section.CopyFrom(_section(one))
    elif isinstance(one, NewChunk):
        message.chunk.CopyFrom(_chunk(one))
    else:
        raw = nodes_pb2.RawContent(document_id=id_text(one.document_id), span=_span(one.span), content=one.content)
        message.raw.CopyFrom(raw)
    return message


def _master(one: NewMaster) -> nodes_pb2.MasterContent:
    return nodes_pb2.MasterContent(
        summary=one.summary,
        citations=map(_citation, one.citations),
        findings=map(_finding, one.findings),
        keywords=one.keywords,
        processing=_processing(one.processing),
    )


def _section(one: NewSection) -> nodes_pb2.SectionContent:
    return nodes_pb2.SectionContent(
        title=one.title,
        category=one.category,
        summary=one.summary,
        citations=map(_citation, one.citations),
        entities=_entities(one.entities),
        keywords=one.keywords,
        processing=_processing(one.processing),
    )


def _chunk(one: NewChunk) -> nodes_pb2.ChunkContent:
    return nodes_pb2.ChunkContent(
        document_id=id_text(one.document_id),
        headings=one.headings,
        page=one.page,
        summary=one.summary,
        quotes=map(_citation, one.quotes),
        entities=_entities(one.entities),
        keywords=one.keywords,
        embedding=one.embedding,
        processing=_processing(one.processing),
    )


def _citation(one: Citation) -> nodes_pb2.Citation:
    return nodes_pb2.Citation(
        document_id=id_text(one.document_id),
        chunk_id=id_text(one.chunk_id),
        span=_span(one.span),
        text=one.text,
        weight=one.weight,
    )


def _finding(one: Finding) -> nodes_pb2.Finding:
    return nodes_pb2.Finding(kind=one.kind, text=one.text, citation=_citation(one.citation))


def _entities(entities: Iterable[Entity]) -> list[nodes_pb2.Entity]:
    return [nodes_pb2.Entity(type=one.type, value=one.value) for one in entities]


def _processing(one: Processing) -> nodes_pb2.Processing:
    return nodes_pb2.Processing(processor=one.processor, version=one.version, fallback_reason=one.fallback_reason)


def _span(one: Span) -> nodes_pb2.Span:
    return nodes_pb2.Span(start=one.start, end=one.end)


def progress(message: documents_pb2.PutHierarchyProgress) -> PutProgress:
    return PutProgress(message.documents_received, message.nodes_received, message.chunks_prepared)


def put_result(message: documents_pb2.PutHierarchyDone) -> PutResult:
    return PutResult(message.revision, message.documents, message.sections, message.chunks, message.raws)
