"""Between messages and quads."""

from __future__ import annotations

from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import quads_pb2 as pb
from drillcore_server.commands.quad_changing import check_source
from drillcore_server.commands.quad_matching import MatchedQuad
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.quads import Blank, Iri, Literal, Quad, QuadPattern, Quoted, Term, literal
from drillcore_server.rdf.formats import QuadFormat

_FORMATS = {pb.QUAD_FORMAT_N_QUADS: QuadFormat.N_QUADS, pb.QUAD_FORMAT_TURTLE: QuadFormat.TURTLE}


def term_of(message: pb.Term) -> Term:
    match message.WhichOneof("term"):
        case "iri":
            return Iri(message.iri)
        case "blank":
            return Blank(message.blank)
        case "literal":
            return literal(message.literal.value, message.literal.datatype, message.literal.language)
        case "triple":
            triple = message.triple
            return Quoted(term_of(triple.subject), term_of(triple.predicate), term_of(triple.object))
    raise BadInput(Reason.INVALID_QUAD, "a term is an IRI, a blank node, a literal or a triple", field="term")


def quad_of(message: pb.Quad) -> Quad:
    return Quad(term_of(message.subject), term_of(message.predicate), term_of(message.object), message.graph)


def pattern_of(message: pb.QuadPattern) -> QuadPattern:
    return QuadPattern(
        subject=term_of(message.subject) if message.HasField("subject") else None,
        predicate=term_of(message.predicate) if message.HasField("predicate") else None,
        object=term_of(message.object) if message.HasField("object") else None,
        graph=message.graph if message.HasField("graph") else None,
        source=check_source(message.source_id) if message.source_id else None,
    )


def format_of(value: pb.QuadFormat.ValueType) -> QuadFormat:
    if value not in _FORMATS:
        raise BadInput(Reason.INVALID_ARGUMENT, "format must be N_QUADS or TURTLE", field="format")
    return _FORMATS[value]


def matched_message(matched: MatchedQuad) -> pb.MatchedQuad:
    return pb.MatchedQuad(quad=quad_message(matched.quad), source_ids=matched.sources, derived=matched.derived)


def quad_message(quad: Quad) -> pb.Quad:
    return pb.Quad(
        subject=term_message(quad.subject),
        predicate=term_message(quad.predicate),
        object=term_message(quad.object),
        graph=quad.graph,
    )


def term_message(term: Term) -> pb.Term:
    match term:
        case Iri(value):
            return pb.Term(iri=value)
        case Blank(label):
            return pb.Term(blank=label)
        case Literal(value, datatype, language):
            return pb.Term(literal=pb.Literal(value=value, datatype=datatype, language=language))
        case Quoted(subject, predicate, object_):
            triple = pb.Triple(
                subject=term_message(subject), predicate=term_message(predicate), object=term_message(object_)
            )
            return pb.Term(triple=triple)
