"""The IRIs by which quads name what is in a corpus, and the vocabularies that provenance is told in."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import quote, unquote
from uuid import UUID

GRAPH_SOURCE: Final = "urn:graph:source"
"""Where sources, documents, chunks, sections, the master and facts come from."""
GRAPH_RETRIEVAL: Final = "urn:graph:retrieval"
"""What envelopes were made of."""
DERIVED_GRAPHS: Final = (GRAPH_SOURCE, GRAPH_RETRIEVAL)
OWN: Final = "urn:drillcore:"
"""Every IRI that stands for something of ours begins with it."""

RDF_TYPE: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
RDFS_LABEL: Final = "http://www.w3.org/2000/01/rdf-schema#label"
XSD: Final = "http://www.w3.org/2001/XMLSchema#"
PROV: Final = "http://www.w3.org/ns/prov#"
DC: Final = "http://purl.org/dc/elements/1.1/"
TG: Final = "https://trustgraph.ai/ns/"
"""TrustGraph's, so that its tools can follow the chain."""
NS: Final = "urn:drillcore:ns:"
"""Our own."""

KINDS: Final = ("source", "document", "raw", "chunk", "section", "master", "fact", "envelope")


class Named(NamedTuple):
    """What one of our IRIs stands for."""

    kind: str
    id: str


def iri_of(kind: str, of: UUID | str) -> str:
    """`of` is an id; a source's is any text."""
    return f"{OWN}{kind}:{quote(of, safe='') if isinstance(of, str) else of}"


def named_by(iri: str) -> Named | None:
    """None for an IRI that is not ours, or not written as we write it."""
    kind, _, rest = iri.removeprefix(OWN).partition(":")
    if not iri.startswith(OWN) or kind not in KINDS or not rest:
        return None
    named = Named(kind, unquote(rest) if kind == "source" else rest)
    return named if _is_written_so(named, iri) else None


def agent_iri(principal: str) -> str:
    return f"{OWN}agent:{quote(principal, safe='')}"


def _is_written_so(named: Named, iri: str) -> bool:
    if named.kind == "source":
        return iri_of("source", named.id) == iri
    try:
        return iri_of(named.kind, UUID(named.id)) == iri
    except ValueError:
        return False
