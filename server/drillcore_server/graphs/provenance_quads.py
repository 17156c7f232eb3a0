"""Makes the PROV-O quads of each record. All quads with a record's IRI as subject come from that record alone.

    source <- document <- chunk <- section, master, fact <- envelope

`prov:wasDerivedFrom` leads from a record to the records it was made from. TrustGraph's vocabulary is used where it has
a word, so that its tools can follow the chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from drillcore_formats.quads import Iri, Literal, Term
from drillcore_server.envelopes.envelope_plan import IssuedEnvelope
from drillcore_server.facts.model import Fact
from drillcore_server.graphs.quad_model import (
    DC,
    DERIVED_GRAPHS,
    GRAPH_RETRIEVAL,
    GRAPH_SOURCE,
    NS,
    OWN,
    PROV,
    RDF_TYPE,
    RDFS_LABEL,
    TG,
    XSD,
    Quad,
    QuadPattern,
    agent_iri,
    check_term,
    iri_of,
)
from drillcore_server.hierarchy.model import Chunk, Citation, Document, Master, Section
from drillcore_server.hierarchy.source_model import Source
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.trail import time_text
from drillcore_server.storage.ids import FactId, NodeId

DERIVED_FROM: Final = f"{PROV}wasDerivedFrom"
SOURCE_KINDS: Final = ("source", "document", "chunk", "section", "master", "fact")
"""Kinds of records with quads in urn:graph:source."""
_TYPES: Final[Mapping[str, str]] = {
    "source": f"{NS}Source",
    "document": f"{TG}Document",
    "chunk": f"{TG}Chunk",
    "section": f"{TG}Section",
    "master": f"{NS}Master",
    "fact": f"{NS}Fact",
    "envelope": f"{NS}Envelope",
}
_KINDS_BY_PREDICATE: Final[Mapping[str, frozenset[str]]] = {
    RDF_TYPE: frozenset(SOURCE_KINDS),
    DERIVED_FROM: frozenset({"document", "chunk", "section", "master", "fact"}),
    f"{DC}title": frozenset({"source", "document", "section"}),
    f"{DC}source": frozenset({"source"}),
    RDFS_LABEL: frozenset({"document"}),
    f"{TG}mimeType": frozenset({"document"}),
    f"{PROV}wasAttributedTo": frozenset({"document"}),
    f"{PROV}generatedAtTime": frozenset({"document", "chunk", "fact"}),
    f"{NS}contentHash": frozenset({"document"}),
    f"{TG}chunkIndex": frozenset({"chunk"}),
    f"{TG}charOffset": frozenset({"chunk"}),
    f"{TG}charLength": frozenset({"chunk"}),
    f"{PROV}value": frozenset({"fact"}),
    f"{TG}sourceCharOffset": frozenset({"fact"}),
    f"{TG}sourceCharLength": frozenset({"fact"}),
    f"{NS}status": frozenset({"fact"}),
    f"{NS}importance": frozenset({"fact"}),
}
"""For each predicate of urn:graph:source, the kinds of records that have it."""

Statement = tuple[str, Term]
"""Predicate and object of a quad."""


def is_derived(quad: Quad) -> bool:
    """Whether a quad is one that only the server may compute from records."""
    return quad.graph in DERIVED_GRAPHS and isinstance(quad.subject, Iri) and quad.subject.value.startswith(OWN)


def kinds_with(pattern: QuadPattern) -> frozenset[str]:
    """The kinds of records whose quads in urn:graph:source may match a pattern's predicate and object."""
    if pattern.predicate is None:
        return frozenset(SOURCE_KINDS)
    predicate = pattern.predicate.value if isinstance(pattern.predicate, Iri) else ""
    kinds = _KINDS_BY_PREDICATE.get(predicate, frozenset())
    if predicate == RDF_TYPE and pattern.object not in {None, Iri(f"{PROV}Entity")}:
        return frozenset(kind for kind in kinds if Iri(_TYPES[kind]) == pattern.object)
    return kinds


def source_quads(source: Source) -> list[Quad]:
    statements = [*_titled(source.title)]
    if _is_foreign_iri(source.uri):
        statements.append((f"{DC}source", Iri(source.uri)))
    return _quads("source", iri_of("source", source.id), statements)


def document_quads(document: Document) -> list[Quad]:
    statements: list[Statement] = [*_titled(document.title)]
    if document.title:
        statements.append((RDFS_LABEL, Literal(document.title)))
    if document.media_type:
        statements.append((f"{TG}mimeType", Literal(document.media_type)))
    statements += _derived_from([iri_of("source", document.source)])
    statements.append((f"{PROV}wasAttributedTo", Iri(agent_iri(document.created_by))))
    statements.append(_generated(document.created_at))
    if document.content_hash:
        statements.append((f"{NS}contentHash", Literal(document.content_hash)))
    return _quads("document", iri_of("document", document.id), statements)


def chunk_quads(chunk: Chunk) -> list[Quad]:
    """Offset and length are those of the chunk's own characters, without the overlap with the chunk before."""
    statements: list[Statement] = [*_derived_from([iri_of("document", chunk.document)])]
    statements.append((f"{TG}chunkIndex", _integer(chunk.ordinal)))
    statements.append((f"{TG}charOffset", _integer(chunk.span.start)))
    statements.append((f"{TG}charLength", _integer(len(chunk.span))))
    statements.append(_generated(chunk.created_at))
    return _quads("chunk", iri_of("chunk", chunk.id), statements)


def section_quads(section: Section) -> list[Quad]:
    statements = [*_titled(section.title), *_derived_from(_cited(section.citations))]
    return _quads("section", iri_of("section", section.id), statements)


def master_quads(master: Master) -> list[Quad]:
    return _quads("master", iri_of("master", master.id), _derived_from(_cited(cited_by(master))))


def cited_by(node: Section | Master) -> Sequence[Citation]:
    """Every passage that a section or master cites."""
    if isinstance(node, Section):
        return node.citations
    return *node.citations, *(finding.citation for finding in node.findings)


def fact_quads(fact: Fact) -> list[Quad]:
    """A deleted fact has quads too, because its record stays."""
    from_ = iri_of("source", fact.source) if fact.chunk is None else iri_of("chunk", fact.chunk)
    statements: list[Statement] = [(f"{PROV}value", Literal(fact.content)), *_derived_from([from_])]
    if fact.span is not None:
        statements.append((f"{TG}sourceCharOffset", _integer(fact.span.start)))
        statements.append((f"{TG}sourceCharLength", _integer(len(fact.span))))
    statements.append((f"{NS}status", Literal(fact.status.name.lower())))
    statements.append((f"{NS}importance", _decimal(fact.importance)))
    statements.append(_generated(fact.ingested_at))
    return _quads("fact", iri_of("fact", fact.id), statements)


def envelope_quads(issued: IssuedEnvelope, packed: Iterable[FactId]) -> list[Quad]:
    """`packed` are the facts of the envelope that belong to the corpus of the call."""
    statements: list[Statement] = [_generated(issued.at)]
    statements.append((f"{PROV}wasAttributedTo", Iri(agent_iri(issued.principal))))
    statements += _derived_from(iri_of("fact", fact) for fact in packed)
    return _quads("envelope", iri_of("envelope", issued.id), statements, GRAPH_RETRIEVAL)


def _quads(kind: str, iri: str, statements: Iterable[Statement], graph: str = GRAPH_SOURCE) -> list[Quad]:
    subject = Iri(iri)
    types = [(RDF_TYPE, Iri(f"{PROV}Entity")), (RDF_TYPE, Iri(_TYPES[kind]))]
    return [Quad(subject, Iri(predicate), object_, graph) for predicate, object_ in (*types, *statements)]


def _titled(title: str) -> list[Statement]:
    return [(f"{DC}title", Literal(title))] if title else []


def _derived_from(iris: Iterable[str]) -> list[Statement]:
    return [(DERIVED_FROM, Iri(iri)) for iri in dict.fromkeys(iris)]


def _cited(citations: Iterable[Citation]) -> list[str]:
    chunks: dict[NodeId, None] = dict.fromkeys(citation.chunk for citation in citations)
    return [iri_of("chunk", chunk) for chunk in chunks]


def _generated(at: datetime) -> Statement:
    return f"{PROV}generatedAtTime", Literal(time_text(at), f"{XSD}dateTime")


def _integer(number: int) -> Literal:
    return Literal(str(number), f"{XSD}integer")


def _decimal(number: float) -> Literal:
    return Literal(f"{number:.6f}".rstrip("0").rstrip("."), f"{XSD}decimal")


def _is_foreign_iri(uri: str) -> bool:
    """Whether a source's URI is an IRI outside `urn:drillcore:`. IRIs of that prefix always name our own records."""
    try:
        check_term(Iri(uri), "uri")
    except BadInput:
        return False
    return not uri.startswith(OWN)
