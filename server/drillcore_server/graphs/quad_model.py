"""Quads and their terms: subject, predicate, object and named graph of RDF 1.2, also with quoted triples as subjects.

    Term ─┬─ Iri
          ├─ Blank
          ├─ Literal
          └─ Quoted      a triple that other triples are about

Two terms are equal if they are written alike, after two normalisations by RDF's rules: a literal of datatype xsd:string
has no datatype, and languages are in lower case. A blank node's label means the same node everywhere in a corpus.

Also here: the IRIs that name records of a corpus, and the vocabularies of provenance quads.
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
"""Graph of the quads that say where sources, documents, chunks, sections, the master and facts come from."""
GRAPH_RETRIEVAL: Final = "urn:graph:retrieval"
"""Graph of the quads that say which facts an envelope contains."""
DERIVED_GRAPHS: Final = (GRAPH_SOURCE, GRAPH_RETRIEVAL)
OWN: Final = "urn:drillcore:"
"""The IRI of every Drillcore record, agent and property begins with this."""

RDF_TYPE: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
RDFS_LABEL: Final = "http://www.w3.org/2000/01/rdf-schema#label"
XSD: Final = "http://www.w3.org/2001/XMLSchema#"
PROV: Final = "http://www.w3.org/ns/prov#"
DC: Final = "http://purl.org/dc/elements/1.1/"
TG: Final = "https://trustgraph.ai/ns/"
"""TrustGraph's vocabulary, so that its tools can follow the chain."""
NS: Final = "urn:drillcore:ns:"
"""Drillcore's own vocabulary."""

KINDS: Final = ("source", "document", "raw", "chunk", "section", "master", "fact", "envelope")


class Named(NamedTuple):
    """Kind and id of the record that an IRI names."""

    kind: str
    id: str


def iri_of(kind: str, id_: UUID | str) -> str:
    """The IRI of a record. The id of a source is any text, all others are UUIDs."""
    return f"{OWN}{kind}:{quote(id_, safe='') if isinstance(id_, str) else id_}"


def named_by(iri: str) -> Named | None:
    """The record that an IRI names. None if the IRI is not exactly what `iri_of` makes."""
    kind, _, rest = iri.removeprefix(OWN).partition(":")
    if not iri.startswith(OWN) or kind not in KINDS or not rest:
        return None
    named = Named(kind, unquote(rest) if kind == "source" else rest)
    return named if _is_canonical(named, iri) else None


def agent_iri(principal: str) -> str:
    return f"{OWN}agent:{quote(principal, safe='')}"


def _is_canonical(named: Named, iri: str) -> bool:
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
"""Levels of quoted triples within quoted triples."""
QUADS_MAX: Final = 10_000
"""Quads that one call may put or remove. Files may have any number."""
XSD_STRING: Final = "http://www.w3.org/2001/XMLSchema#string"
RDF_LANG_STRING: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString"
BLANK_PREFIX: Final = "_:"
"""Prefix of a graph's name if the graph is a blank node."""
_IRI: Final = re.compile(r'[A-Za-z][A-Za-z0-9+.\-]*:[^\x00-\x20<>"{}|^`\\\x7f-\x9f\ud800-\udfff]*')
_LETTERS: Final = (
    "A-Za-z_\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_LABEL: Final = re.compile(f"[{_LETTERS}0-9](?:[{_LETTERS}0-9.\u00b7\u0300-\u036f\u203f\u2040-]*(?<!\\.))?")
"""The grammar of N-Quads for labels of blank nodes."""
_LANGUAGE: Final = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*")


class Quad(NamedTuple):
    subject: Term
    predicate: Term
    object: Term
    graph: str = ""
    """An IRI, or `_:` and a blank node's label. Empty for the default graph."""


class SourcedQuad(NamedTuple):
    quad: Quad
    source: SourceId
    """The source the quad was put with. Empty for quads without a source."""


class QuadPattern(NamedTuple):
    """None in a field matches everything."""

    subject: Term | None = None
    predicate: Term | None = None
    object: Term | None = None
    graph: str | None = None
    source: SourceId | None = None

    def matches(self, quad: Quad) -> bool:
        """Compares the quad alone. A pattern's `source` is up to the caller."""
        return (
            (self.subject is None or self.subject == quad.subject)
            and (self.predicate is None or self.predicate == quad.predicate)
            and (self.object is None or self.object == quad.object)
            and (self.graph is None or self.graph == quad.graph)
        )


def pattern_text(pattern: QuadPattern) -> str:
    """The pattern as auditors see it in records: each given part, written as N-Quads does."""
    terms = {"subject": pattern.subject, "predicate": pattern.predicate, "object": pattern.object}
    given = [f"{part} {term_text(term)}" for part, term in terms.items() if term is not None]
    if pattern.graph is not None:
        given.append(f"graph {pattern.graph or 'default'}")
    if pattern.source is not None:
        given.append(f"source {pattern.source}")
    return ", ".join(given) or "any quad"


def literal(value: str, datatype: str = "", language: str = "") -> Literal:
    """A literal, normalised so that literals that are equal by RDF's rules are equal as values."""
    if datatype == XSD_STRING or (language and datatype == RDF_LANG_STRING):
        datatype = ""
    return Literal(value, datatype, language.lower())


def encoded_term(term: Term) -> bytes:
    """Equal bytes for equal terms, different bytes for different terms."""
    return msgspec.msgpack.encode(_plain(term))


def encoded_quad(quad: Quad) -> bytes:
    """Equal bytes for equal quads, different bytes for different quads. The bytes also serve as a sort key."""
    return msgspec.msgpack.encode([_plain(quad.subject), _plain(quad.predicate), _plain(quad.object), quad.graph])


def decoded_quad(stored: bytes) -> Quad:
    """Reverses `encoded_quad`."""
    subject, predicate, object_, graph = msgspec.msgpack.decode(stored)
    return Quad(_term(subject), _term(predicate), _term(object_), graph)


def decoded_term(stored: bytes) -> Term:
    """Reverses `encoded_term`."""
    return _term(msgspec.msgpack.decode(stored))


def check_quad(quad: Quad, what: str) -> None:
    """Raises `BadInput` unless the quad is valid RDF. `what` names the quad in the message."""
    check_term(quad.subject, f"{what}: subject", literal_too=False)
    check_predicate(quad.predicate, f"{what}: predicate")
    check_term(quad.object, f"{what}: object")
    check_graph(quad.graph, what)


def check_pattern(pattern: QuadPattern) -> None:
    """Raises `BadInput` if no valid quad can match the pattern."""
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
                raise _invalid(what, f"must be an absolute IRI of at most {IRI_CHARACTERS_MAX} characters")
        case Blank(label):
            if len(label) > LABEL_CHARACTERS_MAX or not _LABEL.fullmatch(label):
                raise _invalid(what, f"must be a blank node's label of at most {LABEL_CHARACTERS_MAX} characters")
        case Literal():
            if not literal_too:
                raise _invalid(what, "must not be a literal; only objects may be literals")
            _check_literal(term, what)
        case Quoted(subject, predicate, object_):
            if depth >= QUOTED_DEPTH_MAX:
                raise _invalid(what, f"quoted triples may be nested at most {QUOTED_DEPTH_MAX} levels deep")
            if not depth and _characters(term) > TERM_CHARACTERS_MAX:
                raise _invalid(what, f"must have at most {TERM_CHARACTERS_MAX} characters")
            check_term(subject, what, literal_too=False, depth=depth + 1)
            check_predicate(predicate, f"{what}: predicate of a quoted triple")
            check_term(object_, what, depth=depth + 1)


def _check_literal(term: Literal, what: str) -> None:
    if len(term.value) > TERM_CHARACTERS_MAX:
        raise _invalid(what, f"must have at most {TERM_CHARACTERS_MAX} characters")
    if not term.value.isascii() and _has_surrogates(term.value):
        raise _invalid(what, "must not contain an unpaired surrogate")
    if term.language and (term.datatype or not _LANGUAGE.fullmatch(term.language)):
        raise _invalid(what, "a literal has either a datatype or a valid BCP 47 language")
    if term.datatype:
        check_term(Iri(term.datatype), f"{what}: datatype")


def _characters(term: Term, depth: int = 0) -> int:
    """Characters of a term and of the triples quoted in it, down to the depth that is allowed."""
    match term:
        case Iri(value) | Literal(value):
            return len(value)
        case Blank(label):
            return len(label)
        case Quoted():
            parts = (term.subject, term.predicate, term.object)
            return sum(_characters(part, depth + 1) for part in parts) if depth <= QUOTED_DEPTH_MAX else 0


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
