"""A node as JSON: the object that copies of a corpus contain and that an electronic signature covers.

The object has every field of the record that a caller sees. It leaves out what may change while the node stays at its
version, such as its parent. In place of a vector it has the model, the length and the SHA-256 of the vector's 32-bit
floats (little-endian), so that anybody with the vector can check it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np

from drillcore_fdb.engine import Reader
from drillcore_formats.audit.signatures import signed_part
from drillcore_server.hierarchy.digests import Entity, MadeBy
from drillcore_server.hierarchy.model import Citation, Excerpt, Master, Section
from drillcore_server.hierarchy.nodes import ChunkText, Node, RawText
from drillcore_server.hierarchy.reader import NodeReader, at_node
from drillcore_server.hierarchy.store import locate
from drillcore_server.kernel import access
from drillcore_server.kernel.access import InTenant, Principal, Rule
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusAtRevision, CorpusReads
from drillcore_server.kernel.corpus_model import Corpus
from drillcore_server.kernel.trail import Trail, time_text
from drillcore_server.signatures.model import Target, TargetKind
from drillcore_server.signatures.targets import FoundTarget
from drillcore_server.storage.ids import NodeId, Span, TenantId

Content = dict[str, Any]


def node_content(node: Node) -> Content:
    """The node's JSON object. For a copy, read chunks with their embeddings; a signature does not cover embeddings."""
    said: Content = {
        "id": str(node.id),
        "corpus_id": str(node.corpus),
        "level": node.level.word,
        "version": node.version,
        "created_at": time_text(node.created_at),
        "created_by": node.created_by,
    }
    content = node.content
    if isinstance(content, Master):
        return said | _master(content)
    if isinstance(content, Section):
        return said | _section(content)
    return said | (_chunk(content) if isinstance(content, ChunkText) else _raw(content))


def _master(master: Master) -> Content:
    statistics = master.statistics
    return {
        "summary": master.summary,
        "citations": list(map(_citation, master.citations)),
        "findings": [
            {"kind": finding.kind.value, "text": finding.text, "citation": _citation(finding.citation)}
            for finding in master.findings
        ],
        "keywords": list(master.keywords),
        "statistics": {
            "documents": statistics.documents,
            "sections": statistics.sections,
            "chunks": statistics.chunks,
            "raws": statistics.raws,
            "characters": statistics.characters,
            "tokens": statistics.tokens,
        },
        "processing": _processing(master.made_by),
    }


def _section(section: Section) -> Content:
    return {
        "title": section.title,
        "category": section.category,
        "summary": section.summary,
        "citations": list(map(_citation, section.citations)),
        "entities": _entities(section.entities),
        "keywords": list(section.keywords),
        "document_count": section.documents,
        "chunk_count": section.chunks,
        "processing": _processing(section.made_by),
    }


def _chunk(found: ChunkText) -> Content:
    chunk = found.chunk
    return {
        "document_id": str(chunk.document),
        "source_id": chunk.source,
        "span": span_content(chunk.span),
        "headings": list(chunk.headings),
        "page": chunk.page,
        "summary": found.summary(),
        "quotes": [_quote(found, quote) for quote in chunk.quotes],
        "entities": _entities(chunk.entities),
        "keywords": list(chunk.keywords),
        "tokens": chunk.tokens,
        "embedding": vector_content(found.embedding_model, found.embedding),
        "processing": _processing(chunk.made_by),
    }


def _raw(found: RawText) -> Content:
    return {
        "document_id": str(found.raw.document),
        "span": span_content(found.raw.span),
        "content": found.raw.content,
        "preprocessing": list(found.preprocessing),
    }


def vector_content(model: str, embedding: Sequence[float]) -> Content:
    numbers = np.asarray(embedding, "<f4").tobytes()
    return {"model": model, "dimensions": len(embedding), "sha256": hashlib.sha256(numbers).hexdigest()}


def _citation(citation: Citation) -> Content:
    return {
        "document_id": str(citation.document),
        "chunk_id": str(citation.chunk),
        "span": span_content(citation.span),
        "weight": json_number(citation.weight),
    }


def _quote(found: ChunkText, excerpt: Excerpt) -> Content:
    return {"text": found.text_of(excerpt), "span": span_content(excerpt.span), "weight": json_number(excerpt.weight)}


def json_number(weight: float) -> int | float:
    """The weight as canonical JSON writes it: 1.0 becomes 1."""
    return int(weight) if weight.is_integer() else weight


def span_content(span: Span) -> Content:
    return {"start": span.start, "end": span.end}


def _entities(entities: Sequence[Entity]) -> list[Content]:
    return [{"type": entity.type, "value": entity.value} for entity in entities]


def _processing(made_by: MadeBy) -> Content:
    return {
        "processor": made_by.processor,
        "version": made_by.version,
        "fallback_reason": made_by.fallback_reason or "",
    }


@dataclass(frozen=True, slots=True)
class SignableNodes:
    """Finds the nodes that callers sign."""

    reads: CorpusReads

    def rule(self, _principal: Principal, tenant: TenantId | None) -> Rule[InTenant]:
        return access.in_tenant(tenant, Permission.SIGN)

    def find(self, tr: Reader, granted: InTenant, trail: Trail, target: UUID) -> FoundTarget:
        node = NodeId(target)
        trail.touch_node_ids([node])
        view, level = at_node(self.reads, tr, granted, trail, node, AsOf())
        granted.check_level(view.corpus.id, level)
        found = NodeReader(view).node(node, level)
        trail.touch_nodes([found], view.corpus.number)
        signed = Target(TargetKind.NODE, target, found.version)
        sealed_by = view.sealed_by(_record_key(view, found))
        return FoundTarget(signed, signed_part(node_content(found)), sealed_by, view.corpus.id)

    def corpus_of(self, tr: Reader, granted: InTenant, target: UUID) -> Corpus | None:
        located = locate(tr, self.reads.unit.keys, granted.tenant, NodeId(target))
        return None if located is None else self.reads.numbered(tr, granted, granted.tenant, located.corpus)


def _record_key(view: CorpusAtRevision, node: Node) -> bytes:
    """The store's key of the record that contains the node."""
    if isinstance(node.content, ChunkText | RawText):
        return view.keys.chunk(node.content.chunk.id)
    return view.keys.section(node.id) if isinstance(node.content, Section) else view.keys.master()
