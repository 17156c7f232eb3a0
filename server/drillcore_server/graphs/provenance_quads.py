"""Where things come from, as quads of PROV-O: each record tells of itself, and nothing else tells of it.

source <- document <- chunk <- section, master, fact <- envelope

`prov:wasDerivedFrom` leads from each to what it was made from. TrustGraph's words are used where it has some, so that
its tools can follow the chain.
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
"""What urn:graph:source tells of."""
_TYPES: Final[Mapping[str, str]] = {
    "source": f"{NS}Source",
    "document": f"{TG}Document",
    "chunk": f"{TG}Chunk",
    "section": f"{TG}Section",
    "master": f"{NS}Master",
    "fact": f"{NS}Fact",
    "envelope": f"{NS}Envelope",
}
_TOLD_OF: Final[Mapping[str, frozenset[str]]] = {
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
"""Of which kinds each predicate of urn:graph:source is said."""

_Said = Iterable[tuple[str, Term]]


def is_derived(quad: Quad) -> bool:
    """Whether only the records of a corpus can tell it."""
    return quad.graph in DERIVED_GRAPHS and isinstance(quad.subject, Iri) and quad.subject.value.startswith(OWN)


def kinds_telling(pattern: QuadPattern) -> frozenset[str]:
    """The kinds of records that may have a quad of urn:graph:source which matches a pattern's predicate and object."""
    if pattern.predicate is None:
        return frozenset(SOURCE_KINDS)
    predicate = pattern.predicate.value if isinstance(pattern.predicate, Iri) else ""
    kinds = _TOLD_OF.get(predicate, frozenset())
    if predicate == RDF_TYPE and pattern.object not in {None, Iri(f"{PROV}Entity")}:
        return frozenset(kind for kind in kinds if Iri(_TYPES[kind]) == pattern.object)
    return kinds


def source_quads(source: Source) -> list[Quad]:
    said = [*_titled(source.title)]
    if _is_elsewhere(source.uri):
        said.append((f"{DC}source", Iri(source.uri)))
    return _quads("source", iri_of("source", source.id), said)


def document_quads(document: Document) -> list[Quad]:
    said: list[tuple[str, Term]] = [*_titled(document.title)]
    if document.title:
        said.append((RDFS_LABEL, Literal(document.title)))
    if document.media_type:
        said.append((f"{TG}mimeType", Literal(document.media_type)))
    said += _derived_from([iri_of("source", document.source)])
    said.append((f"{PROV}wasAttributedTo", Iri(agent_iri(document.created_by))))
    said.append(_generated(document.created_at))
    if document.content_hash:
        said.append((f"{NS}contentHash", Literal(document.content_hash)))
    return _quads("document", iri_of("document", document.id), said)


def chunk_quads(chunk: Chunk) -> list[Quad]:
    """Its place is that of its own characters, without those of the chunk before it that it is read with."""
    said: list[tuple[str, Term]] = [*_derived_from([iri_of("document", chunk.document)])]
    said.append((f"{TG}chunkIndex", _integer(chunk.ordinal)))
    said.append((f"{TG}charOffset", _integer(chunk.span.start)))
    said.append((f"{TG}charLength", _integer(len(chunk.span))))
    said.append(_generated(chunk.created_at))
    return _quads("chunk", iri_of("chunk", chunk.id), said)


def section_quads(section: Section) -> list[Quad]:
    said = [*_titled(section.title), *_derived_from(_cited(section.citations))]
    return _quads("section", iri_of("section", section.id), said)


def master_quads(master: Master) -> list[Quad]:
    return _quads("master", iri_of("master", master.id), _derived_from(_cited(cited_by(master))))


def cited_by(node: Section | Master) -> Sequence[Citation]:
    """Every passage that a section or master says it is made from."""
    if isinstance(node, Section):
        return node.citations
    return *node.citations, *(finding.citation for finding in node.findings)


def fact_quads(fact: Fact) -> list[Quad]:
    """Also of one that is deleted: it is on record."""
    from_ = iri_of("source", fact.source) if fact.chunk is None else iri_of("chunk", fact.chunk)
    said: list[tuple[str, Term]] = [(f"{PROV}value", Literal(fact.content)), *_derived_from([from_])]
    if fact.span is not None:
        said.append((f"{TG}sourceCharOffset", _integer(fact.span.start)))
        said.append((f"{TG}sourceCharLength", _integer(len(fact.span))))
    said.append((f"{NS}status", Literal(fact.status.name.lower())))
    said.append((f"{NS}importance", _decimal(fact.importance)))
    said.append(_generated(fact.ingested_at))
    return _quads("fact", iri_of("fact", fact.id), said)


def envelope_quads(issued: IssuedEnvelope, packed: Iterable[FactId]) -> list[Quad]:
    """`packed` are those of its facts that are in the corpus which is asked."""
    said: list[tuple[str, Term]] = [_generated(issued.at)]
    said.append((f"{PROV}wasAttributedTo", Iri(agent_iri(issued.principal))))
    said += _derived_from(iri_of("fact", one) for one in packed)
    return _quads("envelope", iri_of("envelope", issued.id), said, GRAPH_RETRIEVAL)


def _quads(kind: str, iri: str, said: _Said, graph: str = GRAPH_SOURCE) -> list[Quad]:
    subject = Iri(iri)
    types = [(RDF_TYPE, Iri(f"{PROV}Entity")), (RDF_TYPE, Iri(_TYPES[kind]))]
    return [Quad(subject, Iri(predicate), object_, graph) for predicate, object_ in (*types, *said)]


def _titled(title: str) -> list[tuple[str, Term]]:
    return [(f"{DC}title", Literal(title))] if title else []


def _derived_from(iris: Iterable[str]) -> list[tuple[str, Term]]:
    return [(DERIVED_FROM, Iri(one)) for one in dict.fromkeys(iris)]


def _cited(citations: Iterable[Citation]) -> list[str]:
    chunks: dict[NodeId, None] = dict.fromkeys(one.chunk for one in citations)
    return [iri_of("chunk", one) for one in chunks]


def _generated(at: datetime) -> tuple[str, Term]:
    return f"{PROV}generatedAtTime", Literal(time_text(at), f"{XSD}dateTime")


def _integer(number: int) -> Literal:
    return Literal(str(number), f"{XSD}integer")


def _decimal(number: float) -> Literal:
    return Literal(f"{number:.6f}".rstrip("0").rstrip("."), f"{XSD}decimal")


def _is_elsewhere(uri: str) -> bool:
    """Whether it is an IRI, and none of ours: what those are is told by our records alone."""
    try:
        check_term(Iri(uri), "uri")
    except BadInput:
        return False
    return not uri.startswith(OWN)
