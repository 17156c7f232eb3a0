"""Documents and nodes that a client made, from messages."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Final

from google.protobuf.message import Message

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import documents_pb2 as pb
from drillcore_proto.v1 import nodes_pb2
from drillcore_server.domain.digests import Entity, FindingKind, MadeBy
from drillcore_server.domain.documents import Span
from drillcore_server.domain.drafts import (
    CHARACTERS_MAX,
    DOCUMENT_CHARACTERS_MAX,
    ENTRIES_MAX,
    NODE_BYTES_MAX,
    ChunkDraft,
    CitationDraft,
    DocumentDraft,
    FindingDraft,
    MasterDraft,
    NodeDraft,
    RawDraft,
    SectionDraft,
    invalid,
)
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.ids import NodeId, SourceId, new_uuid
from drillcore_server.domain.importance import describe
from drillcore_server.domain.named import checked_metadata
from drillcore_server.ingest.client_made import client_vector, stored_vector
from drillcore_server.rpc.messages import document_id, node_id

_MADE_HERE: Final = {
    "master": {"statistics"},
    "section": {"document_count", "chunk_count"},
    "chunk": {"source_id", "span", "tokens", "embedding_model"},
    "raw": {"preprocessing"},
}
"""Fields that the server makes, by the kind of content."""
_HASH: Final = re.compile("[0-9a-f]{64}")


def document_draft(message: pb.HierarchyDocument) -> DocumentDraft:
    one = document_id(message.id, "document.id")
    what = f"document {one}"
    _check_id(one.int, what)
    _check_texts(message, what)
    if not message.source_id:
        raise invalid(what, "has no source_id")
    if message.content_hash and not _HASH.fullmatch(message.content_hash):
        raise invalid(what, "has a content_hash that is not a SHA-256 in lower-case hex")
    if message.characters > DOCUMENT_CHARACTERS_MAX:
        raise invalid(what, "has more characters than any document")
    try:
        metadata = checked_metadata(message.metadata)
        describe(SourceId(message.source_id), message.title, metadata)
    except BadInput as refused:
        raise BadInput(refused.reason, f"{what}: {refused.message}", node=str(one)) from refused
    return DocumentDraft(
        one,
        SourceId(message.source_id),
        message.title,
        message.media_type,
        tuple(message.preprocessing),
        metadata,
        message.characters,
        message.content_hash,
    )


def node_draft(message: pb.HierarchyNode) -> NodeDraft:
    kind = message.WhichOneof("content")
    if kind is None:
        raise invalid(f"node {message.id[:64]}", "has no content")
    one = NodeId(new_uuid()) if kind == "raw" and not message.id else node_id(message.id, "node.id")
    what = f"{kind} {one}"
    _check_id(one.int, what)
    content: Message = getattr(message, kind)
    made = [field.name for field, _ in content.ListFields() if field.name in _MADE_HERE[kind]]
    if made:
        raise invalid(what, f"has a {made[0]}, which the server makes itself: leave it out")
    if content.ByteSize() > NODE_BYTES_MAX:
        raise BadInput(Reason.TOO_LARGE, f"{what} has over {NODE_BYTES_MAX} bytes")
    _check_texts(content, what)
    if kind == "master":
        if message.parent_id:
            raise invalid(what, "has a parent: nothing is above a master")
        return _master(one, what, message.master)
    if not message.parent_id:
        raise invalid(what, "has no parent")
    return _BELOW[kind](one, node_id(message.parent_id, "node.parent_id"), what, getattr(message, kind))


def _master(one: NodeId, what: str, content: nodes_pb2.MasterContent) -> MasterDraft:
    return MasterDraft(
        one,
        content.summary,
        tuple(_citation(cited, what) for cited in content.citations),
        tuple(_finding(finding, what) for finding in content.findings),
        tuple(content.keywords),
        _made_by(content.processing),
    )


def _section(one: NodeId, parent: NodeId, what: str, content: nodes_pb2.SectionContent) -> SectionDraft:
    return SectionDraft(
        one,
        parent,
        content.title,
        content.category,
        content.summary,
        tuple(_citation(cited, what) for cited in content.citations),
        _entities(content.entities, what),
        tuple(content.keywords),
        _made_by(content.processing),
    )


def _chunk(one: NodeId, parent: NodeId, what: str, content: nodes_pb2.ChunkContent) -> ChunkDraft:
    vector = b""
    if content.embedding:
        vector = stored_vector(client_vector(content.embedding, f"the embedding of {what}"))
    return ChunkDraft(
        one,
        parent,
        document_id(content.document_id, f"document_id of {what}"),
        tuple(content.headings),
        content.page if content.HasField("page") else None,
        content.summary,
        tuple(_citation(quote, what, one) for quote in content.quotes),
        _entities(content.entities, what),
        tuple(content.keywords),
        _made_by(content.processing),
        vector,
    )


def _raw(one: NodeId, parent: NodeId, what: str, content: nodes_pb2.RawContent) -> RawDraft:
    span = _span(content.span, what)
    if not content.content or len(content.content) != len(span):
        message = f"has {len(content.content)} characters for the span {span.start} to {span.end}"
        raise invalid(what, message)
    return RawDraft(one, parent, document_id(content.document_id, f"document_id of {what}"), span, content.content)


_BELOW: Final[dict[str, Callable[..., NodeDraft]]] = {"section": _section, "chunk": _chunk, "raw": _raw}


def _citation(message: nodes_pb2.Citation, what: str, own: NodeId | None = None) -> CitationDraft:
    """`own` is the chunk that quotes itself: its quotes need not name it."""
    weight = message.weight
    if not (math.isfinite(weight) and 0 <= weight <= 1):
        raise invalid(what, "has a citation whose weight is not 0 to 1")
    named = own if own is not None and not message.chunk_id else node_id(message.chunk_id, f"chunk_id cited by {what}")
    document = document_id(message.document_id, f"document_id cited by {what}") if message.document_id else None
    return CitationDraft(named, document, _span(message.span, what), message.text, weight)


def _finding(message: nodes_pb2.Finding, what: str) -> FindingDraft:
    if message.kind not in set(FindingKind):
        raise invalid(what, f"has a finding that is none of {', '.join(FindingKind)}")
    return FindingDraft(FindingKind(message.kind), message.text, _citation(message.citation, what))


def _entities(messages: Iterable[nodes_pb2.Entity], what: str) -> tuple[Entity, ...]:
    entities = tuple(Entity(one.type, one.value) for one in messages)
    if not all(one.type and one.value for one in entities):
        raise invalid(what, "has an entity without a type or a value")
    return entities


def _made_by(message: nodes_pb2.Processing) -> MadeBy:
    return MadeBy(message.processor, message.version, message.fallback_reason or None)


def _span(message: nodes_pb2.Span, what: str) -> Span:
    if message.start > message.end or message.end > DOCUMENT_CHARACTERS_MAX:
        raise invalid(what, f"has the span {message.start} to {message.end}, which is none")
    return Span(message.start, message.end)


def _check_id(number: int, what: str) -> None:
    if not number:
        raise BadInput(Reason.INVALID_ID, f"{what}: the nil UUID is no id", field="id")


def _check_texts(message: Message, what: str) -> None:
    """No text has a zero character or is too long, and no list has too many."""
    for field, value in message.ListFields():
        if isinstance(value, str):
            _check_text(field.name, value, what)
        elif isinstance(value, Message):
            _check_texts(value, what)
        elif field.name in ENTRIES_MAX:
            if len(value) > ENTRIES_MAX[field.name]:
                raise BadInput(Reason.TOO_LARGE, f"{what} has over {ENTRIES_MAX[field.name]} {field.name}")
            for one in value:
                if isinstance(one, str):
                    _check_text(field.name, one, what)
                else:
                    _check_texts(one, what)


def _check_text(name: str, text: str, what: str) -> None:
    if "\0" in text:
        raise invalid(what, f"has a zero character in its {name}")
    if name in CHARACTERS_MAX and len(text) > CHARACTERS_MAX[name]:
        raise BadInput(Reason.TOO_LARGE, f"{what} has a {name} of over {CHARACTERS_MAX[name]} characters")
