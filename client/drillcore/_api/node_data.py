"""Nodes of the hierarchy as data: four levels and what they hold."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from drillcore._api.messages import enum_member, enum_number, to_datetime, to_id, to_revisions
from drillcore._api.signatures import Signature, to_signature
from drillcore._transport.call import Page
from drillcore_proto.v1 import nodes_pb2


class Level(enum.IntEnum):
    """How far a node is from the original text."""

    RAW = 0
    CHUNK = 1
    SECTION = 2
    MASTER = 3


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` up to, not including, `end` of a document's text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Entity:
    """Something that a text names."""

    type: str
    """date, amount, organisation, person, regulation, email, url or place."""
    value: str = ""
    """The normal form. In a filter, empty means any entity of the type."""


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage of a document."""

    document_id: UUID
    chunk_id: UUID | None
    span: Span
    text: str = ""
    """The original characters; empty if only the place matters."""
    weight: float = 0.0
    """0 to 1."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A statement in a corpus that a reader should know."""

    kind: str
    """obligation, prohibition, deadline, threshold, definition or statement."""
    text: str
    citation: Citation


@dataclass(frozen=True, slots=True)
class Statistics:
    """How much a corpus holds."""

    documents: int
    sections: int
    chunks: int
    raws: int
    characters: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Processing:
    """The processor that made a summary and its citations, entities and keywords."""

    processor: str
    version: str
    fallback_reason: str = ""
    """Why the configured processor was not used; empty if it was."""


@dataclass(frozen=True, slots=True)
class MasterContent:
    """The summary of a whole corpus."""

    summary: str
    citations: tuple[Citation, ...]
    findings: tuple[Finding, ...]
    keywords: tuple[str, ...]
    statistics: Statistics
    processing: Processing


@dataclass(frozen=True, slots=True)
class SectionContent:
    """The summary of chunks on one topic."""

    title: str
    category: str
    summary: str
    citations: tuple[Citation, ...]
    entities: tuple[Entity, ...]
    keywords: tuple[str, ...]
    document_count: int
    chunk_count: int
    processing: Processing


@dataclass(frozen=True, slots=True)
class ChunkContent:
    """The summary of a part of a document."""

    document_id: UUID
    source_id: str
    span: Span
    headings: tuple[str, ...]
    """The headings above it, highest first."""
    page: int | None
    """The page, from 1; None for formats without pages."""
    summary: str
    quotes: tuple[Citation, ...]
    entities: tuple[Entity, ...]
    keywords: tuple[str, ...]
    tokens: int
    embedding_model: str
    embedding: tuple[float, ...]
    """Empty unless you asked for it."""
    processing: Processing


@dataclass(frozen=True, slots=True)
class RawContent:
    """Original text."""

    document_id: UUID
    span: Span
    content: str
    """The original characters."""
    preprocessing: tuple[str, ...]
    """The steps from the bytes to the text, in order."""


Content = MasterContent | SectionContent | ChunkContent | RawContent


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a corpus's hierarchy. Its level decides which content it has."""

    id: UUID
    corpus_id: UUID
    level: Level
    parent_id: UUID | None
    """None for the master."""
    child_ids: tuple[UUID, ...]
    """Only `get_node` sets it, with at most 250 ids. `drill_down` lists all children."""
    child_count: int
    """Only `get_node` sets it."""
    created_at: datetime
    created_by: str
    version: int
    """The version of the node: 1 at creation; every change adds one."""
    content: Content
    revision: int = field(compare=False)
    """The revision of the corpus that was read. Pass it as `as_of` to read more at the same revision."""
    signatures: tuple[Signature, ...] = ()
    """Signatures of this version, oldest first."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A node that a query found."""

    node: Node
    score: float | None
    """The cosine between the query and the node; None if the query had neither text nor vector."""


@dataclass(frozen=True, slots=True)
class QueryPage(Page[Hit]):
    """Some of the nodes that a query found."""

    revisions: Mapping[UUID, int]
    """The revision that was read of each corpus, including those without hits."""


@dataclass(frozen=True, slots=True)
class RollUp:
    """The ancestors of some nodes."""

    nodes: tuple[Node, ...]
    """The ancestors at the given level, each once."""
    common: Node
    """The lowest common ancestor: the single ancestor, or the master."""
    revision: int


@dataclass(frozen=True, slots=True)
class Revision:
    """One change of a corpus, at all its levels."""

    revision: int
    at: datetime
    by: str
    request_id: str
    action: str
    documents_added: int
    documents_removed: int
    section_ids: tuple[UUID, ...]
    """The sections that it changed."""
    trimmed: bool = False
    """Whether it was trimmed, so that it can no longer be read."""


@dataclass(frozen=True, slots=True)
class HistoryPage(Page[Revision]):
    """Some of the revisions of a corpus or a node."""

    oldest_revision: int
    """The oldest revision that can still be read; 0 if none was trimmed. Earlier changes of a node are not listed."""


def level_message(level: Level | int) -> nodes_pb2.Level.ValueType:
    """The protocol counts levels from 1, because its 0 means "not given". Raises ValueError for an unknown level."""
    return enum_number(nodes_pb2.Level, Level(level))


def to_node(message: nodes_pb2.Node, revision: int) -> Node:
    kind = message.WhichOneof("content")
    if kind is None:
        raise ValueError(f"the server sent node {message.id} with no content that this client knows")
    return Node(
        id=UUID(message.id),
        corpus_id=UUID(message.corpus_id),
        level=enum_member(Level, nodes_pb2.Level, message.level),
        parent_id=to_id(message.parent_id),
        child_ids=tuple(map(UUID, message.child_ids)),
        child_count=message.child_count,
        created_at=to_datetime(message.created_at),
        created_by=message.created_by,
        version=message.version,
        content=_CONTENT[kind](getattr(message, kind)),
        revision=revision,
        signatures=tuple(map(to_signature, message.signatures)),
    )


def to_nodes(message: nodes_pb2.DrillDownResponse) -> Page[Node]:
    return Page(tuple(to_node(node, message.revision) for node in message.nodes), message.next_page_token)


def to_query_page(message: nodes_pb2.QueryResponse) -> QueryPage:
    return QueryPage(
        items=tuple(_to_hit(hit, message.revisions) for hit in message.hits),
        next_page_token=message.next_page_token,
        revisions=to_revisions(message.revisions),
    )


def _to_hit(message: nodes_pb2.QueryHit, revisions: Mapping[str, int]) -> Hit:
    score = message.score if message.HasField("score") else None
    return Hit(to_node(message.node, revisions[message.node.corpus_id]), score)


def to_roll_up(message: nodes_pb2.RollUpResponse) -> RollUp:
    return RollUp(
        nodes=tuple(to_node(node, message.revision) for node in message.nodes),
        common=to_node(message.common, message.revision),
        revision=message.revision,
    )


def to_history(message: nodes_pb2.GetHistoryResponse) -> HistoryPage:
    return HistoryPage(tuple(map(_to_revision, message.revisions)), message.next_page_token, message.oldest_revision)


def _to_revision(message: nodes_pb2.Revision) -> Revision:
    return Revision(
        revision=message.revision,
        at=to_datetime(message.at),
        by=message.by,
        request_id=message.request_id,
        action=message.action,
        documents_added=message.documents_added,
        documents_removed=message.documents_removed,
        section_ids=tuple(map(UUID, message.section_ids)),
        trimmed=message.trimmed,
    )


def _to_master(message: nodes_pb2.MasterContent) -> MasterContent:
    return MasterContent(
        summary=message.summary,
        citations=_to_citations(message.citations),
        findings=tuple(map(_to_finding, message.findings)),
        keywords=tuple(message.keywords),
        statistics=_to_statistics(message.statistics),
        processing=_to_processing(message.processing),
    )


def _to_section(message: nodes_pb2.SectionContent) -> SectionContent:
    return SectionContent(
        title=message.title,
        category=message.category,
        summary=message.summary,
        citations=_to_citations(message.citations),
        entities=_to_entities(message.entities),
        keywords=tuple(message.keywords),
        document_count=message.document_count,
        chunk_count=message.chunk_count,
        processing=_to_processing(message.processing),
    )


def _to_chunk(message: nodes_pb2.ChunkContent) -> ChunkContent:
    return ChunkContent(
        document_id=UUID(message.document_id),
        source_id=message.source_id,
        span=to_span(message.span),
        headings=tuple(message.headings),
        page=message.page if message.HasField("page") else None,
        summary=message.summary,
        quotes=_to_citations(message.quotes),
        entities=_to_entities(message.entities),
        keywords=tuple(message.keywords),
        tokens=message.tokens,
        embedding_model=message.embedding_model,
        embedding=tuple(message.embedding),
        processing=_to_processing(message.processing),
    )


def _to_raw(message: nodes_pb2.RawContent) -> RawContent:
    return RawContent(
        document_id=UUID(message.document_id),
        span=to_span(message.span),
        content=message.content,
        preprocessing=tuple(message.preprocessing),
    )


_CONTENT: Final[Mapping[str, Callable[[Any], Content]]] = {
    "master": _to_master,
    "section": _to_section,
    "chunk": _to_chunk,
    "raw": _to_raw,
}


def _to_finding(message: nodes_pb2.Finding) -> Finding:
    return Finding(message.kind, message.text, to_citation(message.citation))


def to_citation(message: nodes_pb2.Citation) -> Citation:
    return Citation(
        document_id=UUID(message.document_id),
        chunk_id=to_id(message.chunk_id),
        span=to_span(message.span),
        text=message.text,
        weight=message.weight,
    )


def _to_citations(messages: Iterable[nodes_pb2.Citation]) -> tuple[Citation, ...]:
    return tuple(map(to_citation, messages))


def _to_entities(messages: Iterable[nodes_pb2.Entity]) -> tuple[Entity, ...]:
    return tuple(Entity(message.type, message.value) for message in messages)


def to_span(message: nodes_pb2.Span) -> Span:
    return Span(message.start, message.end)


def _to_statistics(message: nodes_pb2.Statistics) -> Statistics:
    return Statistics(
        documents=message.documents,
        sections=message.sections,
        chunks=message.chunks,
        raws=message.raws,
        characters=message.characters,
        tokens=message.tokens,
    )


def _to_processing(message: nodes_pb2.Processing) -> Processing:
    return Processing(message.processor, message.version, message.fallback_reason)


def span_message(span: Span) -> nodes_pb2.Span:
    return nodes_pb2.Span(start=span.start, end=span.end)


def entity_message(entity: Entity) -> nodes_pb2.Entity:
    return nodes_pb2.Entity(type=entity.type, value=entity.value)
