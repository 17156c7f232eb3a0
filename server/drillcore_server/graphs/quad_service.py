"""QuadService: turns requests into calls of the commands, and results into responses."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from drillcore_formats.quads import Blank, Iri, Literal, Quoted, Term
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import quads_pb2 as pb
from drillcore_server.graphs.change_quads import (
    PutQuads,
    QuadImport,
    QuadSelection,
    check_source,
    import_quads,
    put_quads,
    remove_quads,
)
from drillcore_server.graphs.export_quads import ExportedQuads, QuadExport, export_quads
from drillcore_server.graphs.match_quads import MatchedQuad, match_quads
from drillcore_server.graphs.quad_model import Quad, QuadPattern, literal
from drillcore_server.graphs.rdf import QuadFile, QuadFormat
from drillcore_server.hierarchy.service import as_of
from drillcore_server.kernel.corpus_at_revision import CorpusReads
from drillcore_server.kernel.errors import BadInput, Unavailable
from drillcore_server.kernel.messages import corpus_id, one_request, optional_tenant_id
from drillcore_server.kernel.revise import Reviser, Target
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.sealed_file import SealedFile

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
    raise BadInput(Reason.INVALID_QUAD, "a term must have an iri, blank, literal or triple", field="term")


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


EmitImport = Callable[[pb.ImportQuadsResponse], None]
_PROGRESS_EVERY_BYTES: Final = 1 << 22
"""Bytes received between two reports of progress."""


class QuadService:
    def __init__(self, reads: CorpusReads, reviser: Reviser, upload_bytes_max: int) -> None:
        self._reads = reads
        self._reviser = reviser
        self._upload_bytes_max = upload_bytes_max

    def PutQuads(self, request: pb.PutQuadsRequest, call: Call) -> pb.PutQuadsResponse:
        quads, source = [quad_of(quad) for quad in request.quads], check_source(request.source_id)
        return _put_response(put_quads(self._reviser, call, _target(request), quads, source))

    def RemoveQuads(self, request: pb.RemoveQuadsRequest, call: Call) -> pb.RemoveQuadsResponse:
        selection = QuadSelection(
            quads=[quad_of(quad) for quad in request.quads],
            source=check_source(request.source_id) if request.source_id else None,
            pattern=pattern_of(request.pattern) if request.HasField("pattern") else None,
        )
        done = remove_quads(self._reviser, call, _target(request), selection)
        return pb.RemoveQuadsResponse(revision=done.revision, removed=done.removed)

    def MatchQuads(self, request: pb.MatchQuadsRequest, call: Call) -> pb.MatchQuadsResponse:
        page = match_quads(
            self._reads,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            corpus=corpus_id(request.corpus_id, "corpus_id"),
            pattern=pattern_of(request.pattern),
            as_of=as_of(request.as_of),
            size=request.page_size,
            token=request.page_token,
        )
        return pb.MatchQuadsResponse(
            quads=map(matched_message, page.quads), next_page_token=page.next_token, revision=page.revision
        )

    def ImportQuads(self, requests: Iterator[pb.ImportQuadsRequest], call: Call, emit: EmitImport) -> None:
        first = next(requests, None)
        if first is None or first.WhichOneof("part") != "target":
            raise BadInput(Reason.INVALID_ARGUMENT, "the first request must name the corpus", field="target")
        digest = hashlib.sha256(first.SerializeToString(deterministic=True))
        with SealedFile() as file:
            wanted = _quad_import(first.target, file)
            self._reviser.find(call, wanted.target)
            _receive(requests, file, self._upload_bytes_max, emit)
            digest.update(file.sha256)
            known = replace(call, fingerprint=digest.digest())
            done = import_quads(self._reviser, known, wanted, lambda quads: emit(_progress(file.size_bytes, quads)))
        emit(pb.ImportQuadsResponse(done=_put_response(done)))

    def ExportQuads(
        self,
        requests: Iterator[pb.ExportQuadsRequest],
        call: Call,
        emit: Callable[[pb.ExportQuadsResponse], None],
    ) -> None:
        request, known = one_request(requests, call)
        done = export_quads(
            self._reads, known, _quad_export(request), lambda piece: emit(pb.ExportQuadsResponse(data=piece))
        )
        emit(pb.ExportQuadsResponse(done=_done(done)))


def _target(request: pb.PutQuadsRequest | pb.RemoveQuadsRequest | pb.ImportQuadsTarget) -> Target:
    return Target(optional_tenant_id(request.tenant_id), corpus_id(request.corpus_id, "corpus_id"))


def _quad_import(target: pb.ImportQuadsTarget, file: SealedFile) -> QuadImport:
    salt = os.urandom(16) if target.rename_blank_nodes else b""
    content = QuadFile(file.pieces, format_of(target.format), target.graph, target.base_iri, salt)
    return QuadImport(_target(target), check_source(target.source_id), content)


def _receive(requests: Iterator[pb.ImportQuadsRequest], file: SealedFile, bytes_max: int, emit: EmitImport) -> None:
    """Receives the file. Raises `Refused` unless `end` is the last request: without it, the caller gave up."""
    reported_bytes = 0
    for request in requests:
        part = request.WhichOneof("part")
        if part == "data":
            file.write(request.data)
        elif part == "end" and request.end.size_bytes == file.size_bytes:
            return
        else:
            message = "after the target, send data, and then end with the number of bytes that were sent"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="part")
        if file.size_bytes > bytes_max:
            message = f"the file must have at most {bytes_max} bytes (server.upload_bytes_max); nothing was stored"
            raise BadInput(Reason.TOO_LARGE, message, field="data")
        if file.size_bytes - reported_bytes >= _PROGRESS_EVERY_BYTES:
            reported_bytes = file.size_bytes
            emit(_progress(reported_bytes, 0))
    raise Unavailable(Reason.CANCELLED, "the file stopped before its end; nothing was stored")


def _quad_export(request: pb.ExportQuadsRequest) -> QuadExport:
    return QuadExport(
        optional_tenant_id(request.tenant_id),
        corpus_id(request.corpus_id, "corpus_id"),
        pattern_of(request.pattern),
        as_of(request.as_of),
        format_of(request.format),
    )


def _progress(size_bytes: int, quads: int) -> pb.ImportQuadsResponse:
    return pb.ImportQuadsResponse(progress=pb.ImportQuadsProgress(bytes_received=size_bytes, quads_read=quads))


def _put_response(done: PutQuads) -> pb.PutQuadsResponse:
    return pb.PutQuadsResponse(revision=done.revision, added=done.added, known=done.known, derived=done.derived)


def _done(done: ExportedQuads) -> pb.ExportQuadsDone:
    return pb.ExportQuadsDone(
        revision=done.revision,
        quads=done.quads,
        sha256=done.sha256,
        size_bytes=done.size_bytes,
        record_id=str(done.record),
    )
