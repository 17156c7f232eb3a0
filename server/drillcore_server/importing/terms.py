"""Terms of core files as terms of ours, checked."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from drillcore.cores.failures import InvalidTerm
from drillcore.cores.terms import PlainTerm, Triple
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.quads import Blank, Iri, Quad, Quoted, Term, check_graph, check_quad, check_term, literal

_KNOWN_MAX: Final = 20_000
_KNOWN_CHARACTERS_MAX: Final = 500
"""IRIs that were checked are at hand a while: quads that come together share most of theirs."""


def quad_of(triple: Triple) -> Quad:
    """Raises `InvalidTerm` if it is none that RDF knows."""
    quad = Quad(term_of(triple.subject), term_of(triple.predicate), term_of(triple.object), triple.graph)
    try:
        if _is_plain(quad):
            _check_known_graph(quad.graph)
        else:
            check_quad(quad, "a triple")
    except BadInput as error:
        raise InvalidTerm(error.message) from None
    return quad


def entity_of(term: PlainTerm) -> Term:
    """Raises as `quad_of`."""
    entity = term_of(term)
    try:
        check_term(entity, "an entity")
    except BadInput as error:
        raise InvalidTerm(error.message) from None
    return entity


def term_of(term: PlainTerm) -> Term:
    match term:
        case ("i", str(value)):
            return _known_iri(value) if len(value) <= _KNOWN_CHARACTERS_MAX else _iri(value)
        case ("b", str(label)):
            return Blank(label)
        case ("l", str(value), str(datatype), str(language)):
            return literal(value, datatype, language)
        case ("t", subject, predicate, object_):
            return Quoted(term_of(subject), term_of(predicate), term_of(object_))
        case _:
            raise InvalidTerm("a term is none")


def _is_plain(quad: Quad) -> bool:
    """Of IRIs alone, which are checked when they are made."""
    return isinstance(quad.subject, Iri) and isinstance(quad.predicate, Iri) and isinstance(quad.object, Iri)


def _iri(value: str) -> Iri:
    iri = Iri(value)
    try:
        check_term(iri, "an IRI")
    except BadInput as error:
        raise InvalidTerm(error.message) from None
    return iri


_known_iri = lru_cache(_KNOWN_MAX)(_iri)


@lru_cache(_KNOWN_MAX)
def _check_known_graph(graph: str) -> None:
    check_graph(graph, "a triple")
