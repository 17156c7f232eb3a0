"""The IRIs by which quads name what is in a corpus, and the vocabularies that provenance is told in.

Quads: subject, predicate, object and named graph, as RDF 1.2 has them, with quoted triples as subjects too.

    Term ─┬─ Iri
          ├─ Blank
          ├─ Literal
          └─ Quoted      a triple that is spoken of

Terms are compared as they are written, but for what RDF says is the same: a literal without a datatype is an
xsd:string, and languages are in lower case. Blank nodes keep their labels: the same label is the same node in all of a
corpus.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote
from uuid import UUID

import msgspec

from drillcore_formats.quads import Blank, Iri, Literal, Quoted, Term, term_text
from drillcore_proto.reasons import Reason
from drillcore_server.kernel.errors import BadInput
from drillcore_server.storage.ids import SourceId

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


TERM_CHARACTERS_MAX: Final = 1_000_000
IRI_CHARACTERS_MAX: Final = 8_000
LABEL_CHARACTERS_MAX: Final = 200
QUOTED_DEPTH_MAX: Final = 8
"""Of quoted triples in quoted triples."""
QUADS_MAX: Final = 10_000
"""Put or removed by one call; files may have any number."""
XSD_STRING: Final = "http://www.w3.org/2001/XMLSchema#string"
RDF_LANG_STRING: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString"
BLANK_PREFIX: Final = "_:"
"""Before the label of a graph that is a blank node."""
_IRI: Final = re.compile(r'[A-Za-z][A-Za-z0-9+.\-]*:[^\x00-\x20<>"{}|^`\\\x7f-\x9f\ud800-\udfff]*')
_LETTERS: Final = (
    "A-Za-z_\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_LABEL: Final = re.compile(f"[{_LETTERS}0-9](?:[{_LETTERS}0-9.\u00b7\u0300-\u036f\u203f\u2040-]*(?<!\\.))?")
"""As N-Quads has it."""
_LANGUAGE: Final = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*")


class Quad(NamedTuple):
    subject: Term
    predicate: Term
    object: Term
    graph: str = ""
    """An IRI, or `_:` and a blank node's label; empty for the default graph."""


class SourcedQuad(NamedTuple):
    quad: Quad
    source: SourceId
    """That it was put of; empty for none."""


class QuadPattern(NamedTuple):
    """None matches everything."""

    subject: Term | None = None
    predicate: Term | None = None
    object: Term | None = None
    graph: str | None = None
    source: SourceId | None = None

    def matches(self, quad: Quad) -> bool:
        """Whatever the quad's source."""
        return (
            (self.subject is None or self.subject == quad.subject)
            and (self.predicate is None or self.predicate == quad.predicate)
            and (self.object is None or self.object == quad.object)
            and (self.graph is None or self.graph == quad.graph)
        )


def pattern_text(pattern: QuadPattern) -> str:
    """The pattern as auditors read it: each part that is given, in the words and the form of N-Quads."""
    terms = {"subject": pattern.subject, "predicate": pattern.predicate, "object": pattern.object}
    given = [f"{part} {term_text(term)}" for part, term in terms.items() if term is not None]
    if pattern.graph is not None:
        given.append(f"graph {pattern.graph or 'default'}")
    if pattern.source is not None:
        given.append(f"source {pattern.source}")
    return ", ".join(given) or "any quad"


def literal(value: str, datatype: str = "", language: str = "") -> Literal:
    """With what RDF says is the same written in one way."""
    if datatype == XSD_STRING or (language and datatype == RDF_LANG_STRING):
        datatype = ""
    return Literal(value, datatype, language.lower())


def encoded_term(term: Term) -> bytes:
    """The same bytes for the same term, and no other's."""
    return msgspec.msgpack.encode(_plain(term))


def encoded_quad(quad: Quad) -> bytes:
    """Likewise. Quads are put in order by these bytes where nobody asks for another order."""
    return msgspec.msgpack.encode([_plain(quad.subject), _plain(quad.predicate), _plain(quad.object), quad.graph])


def decoded_quad(stored: bytes) -> Quad:
    """Of bytes that `encoded_quad` made."""
    subject, predicate, object_, graph = msgspec.msgpack.decode(stored)
    return Quad(_term(subject), _term(predicate), _term(object_), graph)


def decoded_term(stored: bytes) -> Term:
    return _term(msgspec.msgpack.decode(stored))


def check_quad(quad: Quad, what: str) -> None:
    """Raises `BadInput` unless it is one that RDF knows. `what` names it in the message."""
    check_term(quad.subject, f"{what}: subject", literal_too=False)
    check_predicate(quad.predicate, f"{what}: predicate")
    check_term(quad.object, f"{what}: object")
    check_graph(quad.graph, what)


def check_pattern(pattern: QuadPattern) -> None:
    """Raises `BadInput` unless a quad could match it."""
    if pattern.subject is not None:
        check_term(pattern.subject, "pattern: subject", literal_too=False)
    if pattern.predicate is not None:
        check_predicate(pattern.predicate, "pattern: predicate")
    if pattern.object is not None:
        check_term(pattern.object, "pattern: object")
    if pattern.graph is not None:
        check_graph(pattern.graph, "pattern")


def check_predicate(term: Term, what: str) -> None:
    if not isinstance(term, Iri):
        raise _invalid(what, "must be an IRI")
    check_term(term, what)


def check_graph(graph: str, what: str) -> None:
    if graph.startswith(BLANK_PREFIX):
        check_term(Blank(graph.removeprefix(BLANK_PREFIX)), f"{what}: graph")
    elif graph:
        check_term(Iri(graph), f"{what}: graph")


def check_term(term: Term, what: str, *, literal_too: bool = True, depth: int = 0) -> None:
    match term:
        case Iri(value):
            if len(value) > IRI_CHARACTERS_MAX or not _IRI.fullmatch(value):
                raise _invalid(what, f"not an absolute IRI of up to {IRI_CHARACTERS_MAX} characters")
        case Blank(label):
            if len(label) > LABEL_CHARACTERS_MAX or not _LABEL.fullmatch(label):
                raise _invalid(what, f"not a blank node's label of up to {LABEL_CHARACTERS_MAX} characters")
        case Literal():
            if not literal_too:
                raise _invalid(what, "a literal cannot be here")
            _check_literal(term, what)
        case Quoted(subject, predicate, object_):
            if depth >= QUOTED_DEPTH_MAX:
                raise _invalid(what, f"more than {QUOTED_DEPTH_MAX} quoted triples in each other")
            if not depth and _characters(term) > TERM_CHARACTERS_MAX:
                raise _invalid(what, f"over {TERM_CHARACTERS_MAX} characters")
            check_term(subject, what, literal_too=False, depth=depth + 1)
            check_predicate(predicate, f"{what}: predicate of a quoted triple")
            check_term(object_, what, depth=depth + 1)


def _check_literal(term: Literal, what: str) -> None:
    if len(term.value) > TERM_CHARACTERS_MAX:
        raise _invalid(what, f"over {TERM_CHARACTERS_MAX} characters")
    if not term.value.isascii() and _has_surrogates(term.value):
        raise _invalid(what, "half of a surrogate pair is no character")
    if term.language and (term.datatype or not _LANGUAGE.fullmatch(term.language)):
        raise _invalid(what, "a literal has a BCP 47 language or a datatype, not both")
    if term.datatype:
        check_term(Iri(term.datatype), f"{what}: datatype")


def _characters(term: Term, depth: int = 0) -> int:
    """As far down as quoted triples may be in each other."""
    match term:
        case Iri(value) | Literal(value):
            return len(value)
        case Blank(label):
            return len(label)
        case Quoted():
            parts = (term.subject, term.predicate, term.object)
            return sum(_characters(one, depth + 1) for one in parts) if depth <= QUOTED_DEPTH_MAX else 0


def _has_surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _invalid(what: str, why: str) -> BadInput:
    return BadInput(Reason.INVALID_QUAD, f"{what}: {why}")


def _plain(term: Term) -> tuple[Any, ...]:
    match term:
        case Iri(value):
            return ("i", value)
        case Blank(label):
            return ("b", label)
        case Literal(value, datatype, language):
            return ("l", value, datatype, language)
        case Quoted(subject, predicate, object_):
            return ("t", _plain(subject), _plain(predicate), _plain(object_))


def _term(plain: list[Any]) -> Term:
    match plain:
        case ["i", value]:
            return Iri(value)
        case ["b", label]:
            return Blank(label)
        case ["l", value, datatype, language]:
            return Literal(value, datatype, language)
        case ["t", subject, predicate, object_]:
            return Quoted(_term(subject), _term(predicate), _term(object_))
        case _:
            raise ValueError(f"not a term: {plain!r:.80}")
