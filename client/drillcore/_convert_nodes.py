"""Protocol messages about the hierarchy to results, and moments and levels back to messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from google.protobuf.timestamp_pb2 import Timestamp

from drillcore._convert import to_datetime, to_id
from drillcore._convert_signatures import signature
from drillcore._node_results import (
    ChunkContent,
    Citation,
    Content,
    Entity,
    Finding,
    HistoryPage,
    Hit,
    Level,
    MasterContent,
    Node,
    Processing,
    QueryPage,
    RawContent,
    Revision,
    RollUp,
    SectionContent,
    Span,
    Statistics,
)
from drillcore._results import Page
from drillcore_proto.v1 import nodes_pb2

AsOf = int | datetime
"""A revision of a corpus, or a time that knows its zone."""


def as_of_message(moment: AsOf | None) -> nodes_pb2.AsOf | None:
    """Raises ValueError for a time without zone, or a negative revision."""
    if moment is None:
        return None
    if isinstance(moment, datetime):
        return nodes_pb2.AsOf(time=timestamp(moment))
    return nodes_pb2.AsOf(revision=moment)


def timestamp(time: datetime | None) -> Timestamp | None:
    """Raises ValueError for a time without zone: it would mean another moment on another machine."""
    if time is None:
        return None
    if time.tzinfo is None:
        raise ValueError(f"the time {time} has no zone: give it one, as in datetime.now(UTC)")
    message = Timestamp()
    message.FromDatetime(time)
    return message


def level_message(level: Level | int) -> nodes_pb2.Level.ValueType:
    """The protocol counts from 1, since its 0 means that none was given. Raises ValueError for what is no level."""
    return nodes_pb2.Level.Value(f"LEVEL_{Level(level).name}")


def node(message: nodes_pb2.Node, revision: int) -> Node:
    kind = message.WhichOneof("content")
    if kind is None:
        raise ValueError(f"the server sent node {message.id} with no content that this client knows")
    return Node(
        id=UUID(message.id),
        corpus_id=UUID(message.corpus_id),
        level=Level[nodes_pb2.Level.Name(message.level).removeprefix("LEVEL_")],
        parent_id=to_id(message.parent_id),
        child_ids=tuple(map(UUID, message.child_ids)),
        child_count=message.child_count,
        created_at=to_datetime(message.created_at),
        created_by=message.created_by,
        version=message.version,
        content=_CONTENT[kind](getattr(message, kind)),
        revision=revision,
        signatures=tuple(map(signature, message.signatures)),
    )


def nodes(message: nodes_pb2.DrillDownResponse) -> Page[Node]:
    return Page(tuple(node(one, message.revision) for one in message.nodes), message.next_page_token)


def query_page(message: nodes_pb2.QueryResponse) -> QueryPage:
    return QueryPage(
        items=tuple(_hit(one, message.revisions) for one in message.hits),
        next_page_token=message.next_page_token,
        revisions={UUID(corpus): revision for corpus, revision in message.revisions.items()},
    )


def _hit(message: nodes_pb2.QueryHit, revisions: Mapping[str, int]) -> Hit:
    score = message.score if message.HasField("score") else None
    return Hit(node(message.node, revisions[message.node.corpus_id]), score)


def roll_up(message: nodes_pb2.RollUpResponse) -> RollUp:
    return RollUp(
        nodes=tuple(node(one, message.revision) for one in message.nodes),
        common=node(message.common, message.revision),
        revision=message.revision,
    )


def history(message: nodes_pb2.GetHistoryResponse) -> HistoryPage:
    return HistoryPage(tuple(map(_revision, message.revisions)), message.next_page_token, message.oldest_revision)


def _revision(message: nodes_pb2.Revision) -> Revision:
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


def _master(message: nodes_pb2.MasterContent) -> MasterContent:
    return MasterContent(
        summary=message.summary,
        citations=_citations(message.citations),
        findings=tuple(Finding(one.kind, one.text, _citation(one.citation)) for one in message.findings),
        keywords=tuple(message.keywords),
        statistics=_statistics(message.statistics),
        processing=_processing(message.processing),
    )


def _section(message: nodes_pb2.SectionContent) -> SectionContent:
    return SectionContent(
        title=message.title,
        category=message.category,
        summary=message.summary,
        citations=_citations(message.citations),
        entities=_entities(message.entities),
        keywords=tuple(message.keywords),
        document_count=message.document_count,
        chunk_count=message.chunk_count,
        processing=_processing(message.processing),
    )


def _chunk(message: nodes_pb2.ChunkContent) -> ChunkContent:
    return ChunkContent(
        document_id=UUID(message.document_id),
        source_id=message.source_id,
        span=_span(message.span),
        headings=tuple(message.headings),
        page=message.page if message.HasField("page") else None,
        summary=message.summary,
        quotes=_citations(message.quotes),
        entities=_entities(message.entities),
        keywords=tuple(message.keywords),
        tokens=message.tokens,
        embedding_model=message.embedding_model,
        embedding=tuple(message.embedding),
        processing=_processing(message.processing),
    )


def _raw(message: nodes_pb2.RawContent) -> RawContent:
    return RawContent(
        document_id=UUID(message.document_id),
        span=_span(message.span),
        content=message.content,
        preprocessing=tuple(message.preprocessing),
    )


_CONTENT: Final[Mapping[str, Callable[[Any], Content]]] = {
    "master": _master,
    "section": _section,
    "chunk": _chunk,
    "raw": _raw,
}


def _citation(message: nodes_pb2.Citation) -> Citation:
    return Citation(
        document_id=UUID(message.document_id),
        chunk_id=to_id(message.chunk_id),
        span=_span(message.span),
        text=message.text,
        weight=message.weight,
    )


def _citations(messages: Iterable[nodes_pb2.Citation]) -> tuple[Citation, ...]:
    return tuple(map(_citation, messages))


def _entities(messages: Iterable[nodes_pb2.Entity]) -> tuple[Entity, ...]:
    return tuple(Entity(one.type, one.value) for one in messages)


def _span(message: nodes_pb2.Span) -> Span:
    return Span(message.start, message.end)


def _statistics(message: nodes_pb2.Statistics) -> Statistics:
    return Statistics(
        documents=message.documents,
        sections=message.sections,
        chunks=message.chunks,
        raws=message.raws,
        characters=message.characters,
        tokens=message.tokens,
    )


def _processing(message: nodes_pb2.Processing) -> Processing:
    return Processing(message.processor, message.version, message.fallback_reason)
