"""Quads of RDF 1.2: subject, predicate, object and named graph."""

from drillcore_formats.quads import (
    Blank,
    Iri,
    Literal,
    Quad,
    QuadPattern,
    Quoted,
    Term,
    parse_graph,
    parse_quad,
    parse_term,
    quad_text,
    term_text,
)

__all__ = [
    "Blank",
    "Iri",
    "Literal",
    "Quad",
    "QuadPattern",
    "Quoted",
    "Term",
    "parse_graph",
    "parse_quad",
    "parse_term",
    "quad_text",
    "term_text",
]
