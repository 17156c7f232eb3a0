"""The items of a corpus as the JSON copy has them, and what an electronic signature of a node or fact covers.

An item has every field that a caller sees of the record. Vectors stand in it by their model, their length and the
SHA-256 of their numbers as 32-bit floats (little-endian): the copies for people say the same, and who has the vector
can check it. What may change while a node stays at its version is not in its object: whose child it is stands beside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from drillcore_server.domain.audit import time_text
from drillcore_server.domain.corpora import Corpus
from drillcore_server.domain.digests import Entity, MadeBy
from drillcore_server.domain.documents import Span
from drillcore_server.domain.erasures import Erasure
from drillcore_server.domain.facts import Fact
from drillcore_server.domain.found import ChunkText, Node, RawText
from drillcore_server.domain.ids import CorpusId
from drillcore_server.domain.nodes import Citation, Document, Excerpt, Master, Section
from drillcore_server.domain.retention import LegalHold
from drillcore_server.domain.revisions import RevisionRecord
from drillcore_server.exporting.canonical import canonical

Content = dict[str, Any]
SIGNATURES: Final = "signatures"
_NOT_SIGNED: Final = frozenset({SIGNATURES, "embedding"})
"""An embedding is not what a node says: another model may make it anew."""
_SIGNED: Final = b"drillcore signed content 1\n"


def node_content(node: Node) -> Content:
    """Its object in a copy. A chunk must have been read with its embedding."""
    said: Content = {
        "id": str(node.id),
        "corpus_id": str(node.corpus),
        "level": node.level.name.lower(),
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


def content_hash(salt: bytes, content: Mapping[str, Any]) -> bytes:
    """The hash by which a signature is bound to a node: of its object without signatures and embedding."""
    return hashlib.sha256(_SIGNED + salt + canonical(signed(content))).digest()


def signed(content: Mapping[str, Any]) -> Content:
    """What a signature covers of a node's object."""
    return {name: value for name, value in content.items() if name not in _NOT_SIGNED}


def corpus_content(corpus: Corpus, erased: Sequence[Erasure] = ()) -> Content:
    """With the erasures that there were in it, if any: what came from those sources is in no copy."""
    said = _corpus(corpus)
    return said | {"erasures": list(map(_erasure, erased))} if erased else said


def _corpus(corpus: Corpus) -> Content:
    return {
        "id": str(corpus.id),
        "tenant_id": str(corpus.tenant_id),
        "name": corpus.name,
        "description": corpus.description,
        "metadata": dict(corpus.metadata),
        "created_at": time_text(corpus.created_at),
        "created_by": corpus.created_by,
        "updated_at": time_text(corpus.updated_at),
        "version": corpus.version,
        "retention_days": corpus.retention_days,
        "legal_hold": None if corpus.legal_hold is None else _legal_hold(corpus.legal_hold),
    }


def document_content(document: Document) -> Content:
    return {
        "id": str(document.id),
        "source_id": document.source,
        "source_version": document.source_version,
        "title": document.title,
        "media_type": document.media_type,
        "content_hash": document.content_hash,
        "preprocessing": list(document.preprocessing),
        "metadata": dict(document.metadata),
        "chunks": len(document.chunks),
        "raws": document.raws,
        "characters": document.characters,
        "tokens": document.tokens,
        "created_at": time_text(document.created_at),
        "created_by": document.created_by,
    }


def fact_content(fact: Fact, corpus: CorpusId) -> Content:
    """What a signature of the fact covers. Without its vector, which may be made anew for the same version."""
    return {
        "id": str(fact.id),
        "corpus_id": str(corpus),
        "content": fact.content,
        "content_hash": fact.content_hash,
        "tokens": fact.tokens,
        "source_id": fact.source,
        "source_location": fact.source_location,
        "importance_weight": _number(fact.importance),
        "ingested_at": time_text(fact.ingested_at),
        "modified_at": time_text(fact.modified_at),
        "created_by": fact.created_by,
        "ttl": fact.ttl,
        "status": fact.status.name,
        "status_reason": fact.status_reason,
        "archived_at": None if fact.archived_at is None else time_text(fact.archived_at),
        "metadata": dict(fact.metadata),
        "chunk_id": None if fact.chunk is None else str(fact.chunk),
        "document_id": None if fact.document is None else str(fact.document),
        "span": None if fact.span is None else _span(fact.span),
        "version": fact.version,
    }


def revision_content(record: RevisionRecord) -> Content:
    return {
        "revision": record.revision,
        "at": time_text(record.at),
        "by": record.by,
        "request_id": record.request_id,
        "action": record.action,
        "documents_added": list(map(str, record.documents_added)),
        "documents_removed": list(map(str, record.documents_removed)),
        "sections": list(map(str, record.sections)),
        "facts_changed": record.facts,
        "communities": record.communities,
        "audit_id": str(record.audit_id),
    }


def _master(master: Master) -> Content:
    statistics = master.statistics
    return {
        "summary": master.summary,
        "citations": list(map(_citation, master.citations)),
        "findings": [
            {"kind": one.kind.value, "text": one.text, "citation": _citation(one.citation)} for one in master.findings
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
        "span": _span(chunk.span),
        "headings": list(chunk.headings),
        "page": chunk.page,
        "summary": found.summary(),
        "quotes": [_quote(found, one) for one in chunk.quotes],
        "entities": _entities(chunk.entities),
        "keywords": list(chunk.keywords),
        "tokens": chunk.tokens,
        "embedding": _embedding(found.embedding_model, found.embedding),
        "processing": _processing(chunk.made_by),
    }


def _raw(found: RawText) -> Content:
    return {
        "document_id": str(found.raw.document),
        "span": _span(found.raw.span),
        "content": found.raw.content,
        "preprocessing": list(found.preprocessing),
    }


def embedding_content(model: str, stored: bytes | None) -> Content | None:
    """Of a fact's vector as it is stored; None of a fact that has none."""
    return None if stored is None else _embedding(model, np.frombuffer(stored, "<f2").astype(np.float32).tolist())


def _embedding(model: str, embedding: Sequence[float]) -> Content:
    numbers = np.asarray(embedding, "<f4").tobytes()
    return {"model": model, "dimensions": len(embedding), "sha256": hashlib.sha256(numbers).hexdigest()}


def _citation(citation: Citation) -> Content:
    return {
        "document_id": str(citation.document),
        "chunk_id": str(citation.chunk),
        "span": _span(citation.span),
        "weight": _number(citation.weight),
    }


def _quote(found: ChunkText, excerpt: Excerpt) -> Content:
    return {"text": found.text_of(excerpt), "span": _span(excerpt.span), "weight": _number(excerpt.weight)}


def _number(weight: float) -> int | float:
    """In canonical JSON 1.0 is 1."""
    return int(weight) if weight.is_integer() else weight


def _span(span: Span) -> Content:
    return {"start": span.start, "end": span.end}


def _entities(entities: Sequence[Entity]) -> list[Content]:
    return [{"type": one.type, "value": one.value} for one in entities]


def _processing(made_by: MadeBy) -> Content:
    return {
        "processor": made_by.processor,
        "version": made_by.version,
        "fallback_reason": made_by.fallback_reason or "",
    }


def _erasure(erasure: Erasure) -> Content:
    return {
        "id": str(erasure.id),
        "erased_at": time_text(erasure.at),
        "erased_by": erasure.by,
        "revision": erasure.revision,
        "erased_keys": list(erasure.key_numbers),
        "audit_record_id": str(erasure.record),
    }


def _legal_hold(hold: LegalHold) -> Content:
    return {"on": hold.on, "reason": hold.reason, "by": hold.by, "at": time_text(hold.at)}
