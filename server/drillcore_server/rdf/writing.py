"""Files of quads, written.

RDF 1.2 has triple terms only as objects. A quoted triple that is a subject is written as a blank node, with a quad
that says what it stands for: `_:label rdf:reifies <<( subject predicate object )>>`. The label is made of the triple.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import IO, Final, cast

import pyoxigraph as ox

from drillcore_server.domain.quads import BLANK_PREFIX, Blank, Iri, Literal, Quad, Quoted, Term, encoded_term
from drillcore_server.rdf.formats import RDF_FORMATS, QuadFormat

RDF_REIFIES: Final = ox.NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#reifies")
_KNOWN_MAX: Final = 10_000

Subject = ox.NamedNode | ox.BlankNode
Object = ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple


def write_quads(quads: Iterable[Quad], output: object, form: QuadFormat) -> None:
    """`output` has `write` and `flush`. With Turtle the quads' graphs are left out."""
    written = _Writing().quads(quads)
    stream = cast("IO[bytes]", output)
    if form is QuadFormat.TURTLE:
        ox.serialize((one.triple for one in written), stream, RDF_FORMATS[form])
    else:
        ox.serialize(written, stream, RDF_FORMATS[form])


class _Writing:
    """Our terms as the library's."""

    def __init__(self) -> None:
        self._iri: Callable[[str], ox.NamedNode] = lru_cache(_KNOWN_MAX)(_named)
        self._reified: list[tuple[ox.BlankNode, ox.Triple]] = []
        """Subjects of the quad at hand that have yet to be said."""

    def quads(self, quads: Iterable[Quad]) -> Iterator[ox.Quad]:
        for quad in quads:
            graph = self._graph(quad.graph)
            predicate = self._predicate(quad.predicate)
            made = ox.Quad(self._subject(quad.subject), predicate, self._object(quad.object), graph)
            yield from (ox.Quad(label, RDF_REIFIES, triple, graph) for label, triple in self._reified)
            self._reified.clear()
            yield made

    def _graph(self, graph: str) -> ox.NamedNode | ox.BlankNode | ox.DefaultGraph:
        if graph.startswith(BLANK_PREFIX):
            return ox.BlankNode(graph.removeprefix(BLANK_PREFIX))
        return self._iri(graph) if graph else ox.DefaultGraph()

    def _predicate(self, term: Term) -> ox.NamedNode:
        assert isinstance(term, Iri), "a predicate is an IRI"
        return self._iri(term.value)

    def _subject(self, term: Term) -> Subject:
        made = self._object(term)
        if isinstance(made, ox.Triple):
            label = ox.BlankNode("q" + hashlib.sha256(encoded_term(term)).hexdigest()[:32])
            self._reified.append((label, made))
            return label
        assert not isinstance(made, ox.Literal), "a literal is no subject"
        return made

    def _object(self, term: Term) -> Object:
        match term:
            case Iri(value):
                return self._iri(value)
            case Blank(label):
                return ox.BlankNode(label)
            case Literal(value, _, language) if language:
                return _tagged(value, language)
            case Literal(value, datatype, _):
                return ox.Literal(value, datatype=self._iri(datatype)) if datatype else ox.Literal(value)
            case Quoted(subject, predicate, object_):
                return ox.Triple(self._subject(subject), self._predicate(predicate), self._object(object_))


def _named(iri: str) -> ox.NamedNode:
    """Of an IRI that we take: the library takes fewer, but for its parser, where that is told not to look."""
    try:
        return ox.NamedNode(iri)
    except ValueError:
        made = _parsed(f"<{iri}>")
        assert isinstance(made, ox.NamedNode)
        return made


def _tagged(value: str, language: str) -> ox.Literal:
    """Likewise."""
    try:
        return ox.Literal(value, language=language)
    except ValueError:
        made = _parsed(f"{ox.Literal(value)}@{language}")
        assert isinstance(made, ox.Literal)
        return made


def _parsed(term: str) -> object:
    (quad,) = ox.parse(f"<a:s> <a:p> {term} .", ox.RdfFormat.N_QUADS, lenient=True)
    return quad.object
