"""Converts nodes to messages of the protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import nodes_pb2 as pb
from drillcore_server.hierarchy.digests import Entity, MadeBy
from drillcore_server.hierarchy.model import Citation, Excerpt, Master, Section
from drillcore_server.hierarchy.nodes import ChunkText, Node, RawText
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.messages import timestamp
from drillcore_server.signatures.messages import signature_message
from drillcore_server.storage.ids import Level, Span

_LEVELS: Final = {pb.Level.Value(f"LEVEL_{level.name}"): level for level in Level}
_LEVEL_NUMBERS: Final = {level: number for number, level in _LEVELS.items()}


def level_of(number: pb.Level.ValueType, field: str) -> Level:
    """The level of a number in the protocol. Raises `BadInput`, naming the field, for any other number."""
    if number not in _LEVELS:
        raise BadInput(Reason.INVALID_ARGUMENT, f"{field} must be raw, chunk, section or master", field=field)
    return _LEVELS[number]


def node_message(node: Node) -> pb.Node:
    message = pb.Node(
        id=str(node.id),
        corpus_id=str(node.corpus),
        level=_LEVEL_NUMBERS[node.level],
        parent_id=str(node.parent or ""),
        child_ids=map(str, node.children),
        child_count=node.children_count,
        created_at=timestamp(node.created_at),
        created_by=node.created_by,
        version=node.version,
        signatures=[
            *map(signature_message, node.signatures),
            *(signature_message(signature, foreign=True) for signature in node.foreign_signatures),
        ],
    )
    content = node.content
    if isinstance(content, Master):
        message.master.CopyFrom(_master(content))
    elif isinstance(content, Section):
        message.section.CopyFrom(_section(content))
    elif isinstance(content, ChunkText):
        message.chunk.CopyFrom(_chunk(content))
    else:
        message.raw.CopyFrom(_raw(content))
    return message


def _master(master: Master) -> pb.MasterContent:
    statistics = master.statistics
    return pb.MasterContent(
        summary=master.summary,
        citations=map(_citation, master.citations),
        findings=[
            pb.Finding(kind=finding.kind.value, text=finding.text, citation=_citation(finding.citation))
            for finding in master.findings
        ],
        keywords=master.keywords,
        statistics=pb.Statistics(
            documents=statistics.documents,
            sections=statistics.sections,
            chunks=statistics.chunks,
            raws=statistics.raws,
            characters=statistics.characters,
            tokens=statistics.tokens,
        ),
        processing=_processing(master.made_by),
    )


def _section(section: Section) -> pb.SectionContent:
    return pb.SectionContent(
        title=section.title,
        category=section.category,
        summary=section.summary,
        citations=map(_citation, section.citations),
        entities=_entities(section.entities),
        keywords=section.keywords,
        document_count=section.documents,
        chunk_count=section.chunks,
        processing=_processing(section.made_by),
    )


def _chunk(found: ChunkText) -> pb.ChunkContent:
    chunk = found.chunk
    return pb.ChunkContent(
        document_id=str(chunk.document),
        source_id=chunk.source,
        span=_span(chunk.span),
        headings=chunk.headings,
        page=chunk.page,
        summary=found.summary(),
        quotes=[_excerpt(found, quote) for quote in chunk.quotes],
        entities=_entities(chunk.entities),
        keywords=chunk.keywords,
        tokens=chunk.tokens,
        embedding_model=found.embedding_model,
        embedding=found.embedding,
        processing=_processing(chunk.made_by),
    )


def _raw(found: RawText) -> pb.RawContent:
    return pb.RawContent(
        document_id=str(found.raw.document),
        span=_span(found.raw.span),
        content=found.raw.content,
        preprocessing=found.preprocessing,
    )


def _citation(citation: Citation) -> pb.Citation:
    return pb.Citation(
        document_id=str(citation.document),
        chunk_id=str(citation.chunk),
        span=_span(citation.span),
        weight=citation.weight,
    )


def _excerpt(found: ChunkText, excerpt: Excerpt) -> pb.Citation:
    return pb.Citation(
        document_id=str(found.chunk.document),
        chunk_id=str(found.chunk.id),
        span=_span(excerpt.span),
        text=found.text_of(excerpt),
        weight=excerpt.weight,
    )


def _span(span: Span) -> pb.Span:
    return pb.Span(start=span.start, end=span.end)


def _entities(entities: Iterable[Entity]) -> list[pb.Entity]:
    return [pb.Entity(type=entity.type, value=entity.value) for entity in entities]


def _processing(made_by: MadeBy) -> pb.Processing:
    return pb.Processing(
        processor=made_by.processor, version=made_by.version, fallback_reason=made_by.fallback_reason or ""
    )
