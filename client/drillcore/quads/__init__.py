"""Quads: subject, predicate, object and named graph, as RDF 1.2 has them.

    terms   what quads are made of, and patterns that match them
    text    terms and quads as N-Quads writes them, read strictly

Quoted triples may be subjects too, which N-Quads has no other form for than that of objects.
"""

from drillcore.quads.terms import Blank, Iri, Literal, Quad, QuadPattern, Quoted, Term
from drillcore.quads.text import parse_graph, parse_quad, parse_term, quad_text, term_text

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
