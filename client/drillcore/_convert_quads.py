"""Protocol messages about quads to results, and terms, quads and patterns to messages."""

from __future__ import annotations

from typing import Final

from drillcore._quad_results import MatchedQuad, PutQuadsResult, QuadFormat, QuadPage, RemovedQuads
from drillcore.quads import Blank, Iri, Literal, Quad, QuadPattern, Quoted, Term
from drillcore_proto.v1 import quads_pb2 as pb

FORMATS: Final = {QuadFormat.N_QUADS: pb.QUAD_FORMAT_N_QUADS, QuadFormat.TURTLE: pb.QUAD_FORMAT_TURTLE}


def term_message(term: Term | None) -> pb.Term | None:
    match term:
        case None:
            return None
        case Iri(value):
            return pb.Term(iri=value)
        case Blank(label):
            return pb.Term(blank=label)
        case Literal(value, datatype, language):
            return pb.Term(literal=pb.Literal(value=value, datatype=datatype, language=language))
        case Quoted(subject, predicate, object_):
            parts = term_message(subject), term_message(predicate), term_message(object_)
            return pb.Term(triple=pb.Triple(subject=parts[0], predicate=parts[1], object=parts[2]))


def quad_message(quad: Quad) -> pb.Quad:
    return pb.Quad(
        subject=term_message(quad.subject),
        predicate=term_message(quad.predicate),
        object=term_message(quad.object),
        graph=quad.graph,
    )


def pattern_message(pattern: QuadPattern) -> pb.QuadPattern:
    return pb.QuadPattern(
        subject=term_message(pattern.subject),
        predicate=term_message(pattern.predicate),
        object=term_message(pattern.object),
        graph=pattern.graph,
        source_id=pattern.source_id,
    )


def quad(message: pb.Quad) -> Quad:
    return Quad(_term(message.subject), _term(message.predicate), _term(message.object), message.graph)


def _term(message: pb.Term) -> Term:
    match message.WhichOneof("term"):
        case "iri":
            return Iri(message.iri)
        case "blank":
            return Blank(message.blank)
        case "literal":
            return Literal(message.literal.value, message.literal.datatype, message.literal.language)
        case "triple":
            triple = message.triple
            return Quoted(_term(triple.subject), _term(triple.predicate), _term(triple.object))
    raise ValueError("the server sent a term of a kind that this client does not know: upgrade the client")


def page(message: pb.MatchQuadsResponse) -> QuadPage:
    return QuadPage(tuple(map(_matched, message.quads)), message.next_page_token, message.revision)


def _matched(message: pb.MatchedQuad) -> MatchedQuad:
    return MatchedQuad(quad(message.quad), tuple(message.source_ids), message.derived)


def put_result(message: pb.PutQuadsResponse) -> PutQuadsResult:
    return PutQuadsResult(message.revision, message.added, message.known, message.derived)


def removed(message: pb.RemoveQuadsResponse) -> RemovedQuads:
    return RemovedQuads(message.revision, message.removed)
