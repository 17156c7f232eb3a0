"""Quads: subject, predicate, object and graph."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from drillcore._api.messages import AsOf, as_of_message, enum_number
from drillcore._transport.call import Call, Id, Page, id_text
from drillcore._transport.download import Whole, WritableFile, download
from drillcore._transport.upload import BinaryFile, Upload, pieces, unanswered
from drillcore_formats.quads import Blank, Iri, Literal, Quad, QuadPattern, Quoted, Term
from drillcore_proto.v1 import quads_pb2 as pb


@dataclass(frozen=True, slots=True)
class MatchedQuad:
    """A quad of a corpus."""

    quad: Quad
    source_ids: tuple[str, ...]
    """The sources it was put with; empty if it had none. If the pattern names a source, only that one."""
    derived: bool
    """Whether the server derived it from the records of the corpus. Nobody put it."""


@dataclass(frozen=True, slots=True)
class QuadPage(Page[MatchedQuad]):
    """Some of the quads that match. A page may be short or empty although its token says that there are more."""

    revision: int
    """The revision of the corpus that was read."""


@dataclass(frozen=True, slots=True)
class PutQuadsResult:
    revision: int
    """The newest revision, if all quads existed already."""
    added: int
    known: int
    """How many existed already with this source, or were given twice."""
    derived: int = 0
    """How many quads of a file were left out, because another server derived them from its records."""


@dataclass(frozen=True, slots=True)
class RemovedQuads:
    revision: int
    """The newest revision, if there was nothing to remove."""
    removed: int


class QuadFormat(enum.Enum):
    N_QUADS = "n-quads"
    TURTLE = "turtle"
    """Has no graphs: all quads belong to one graph."""


@dataclass(frozen=True, slots=True)
class QuadImportProgress:
    bytes_received: int
    quads_read: int


OnQuadImport = Callable[[QuadImportProgress], object]


@dataclass(frozen=True, slots=True)
class QuadExport:
    revision: int
    """The revision of the corpus that was exported."""
    quads: int
    size_bytes: int
    sha256: str
    """SHA-256 of the file, in hex. The received file matches what the server recorded."""
    record_id: UUID
    """The id of the audit record."""


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


def to_quad(message: pb.Quad) -> Quad:
    return Quad(_to_term(message.subject), _to_term(message.predicate), _to_term(message.object), message.graph)


def _to_term(message: pb.Term) -> Term:
    match message.WhichOneof("term"):
        case "iri":
            return Iri(message.iri)
        case "blank":
            return Blank(message.blank)
        case "literal":
            return Literal(message.literal.value, message.literal.datatype, message.literal.language)
        case "triple":
            triple = message.triple
            return Quoted(_to_term(triple.subject), _to_term(triple.predicate), _to_term(triple.object))
    raise ValueError("the server sent a kind of term that this client does not know: upgrade the client")


def to_page(message: pb.MatchQuadsResponse) -> QuadPage:
    return QuadPage(tuple(map(_to_matched, message.quads)), message.next_page_token, message.revision)


def _to_matched(message: pb.MatchedQuad) -> MatchedQuad:
    return MatchedQuad(to_quad(message.quad), tuple(message.source_ids), message.derived)


def to_put_result(message: pb.PutQuadsResponse) -> PutQuadsResult:
    return PutQuadsResult(message.revision, message.added, message.known, message.derived)


def to_removed(message: pb.RemoveQuadsResponse) -> RemovedQuads:
    return RemovedQuads(message.revision, message.removed)


_QUADS: Final = "/drillcore_proto.v1.QuadService/"
_EVERY_QUAD: Final = QuadPattern()


def put_quads(
    corpus_id: Id,
    quads: Iterable[Quad],
    *,
    source_id: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[PutQuadsResult]:
    """Store at most 10,000 quads as one revision of a corpus: all of them or none. For more, see `import_quads`.

    With a `source_id`, they are erased with that source. Existing quads stay as they are. Raises InvalidArgument, whose
    message names the quad, also for quads that only the server derives: those about records of the corpus in the graphs
    `urn:graph:source` and `urn:graph:retrieval`.
    """

    def decode(answer: bytes) -> PutQuadsResult:
        return to_put_result(pb.PutQuadsResponse.FromString(answer))

    request = pb.PutQuadsRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        quads=map(quad_message, quads),
        source_id=source_id,
    )
    return Call(f"{_QUADS}PutQuads", request, decode, request_id, timeout_s)


def remove_quads(
    corpus_id: Id,
    quads: Iterable[Quad] = (),
    *,
    pattern: QuadPattern | None = None,
    source_id: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[RemovedQuads]:
    """Remove at most 10,000 quads, or all that match a pattern, as one revision. Earlier revisions keep them.

    With a `source_id`, quads are removed only where they belong to this source; otherwise from every source.
    """

    def decode(answer: bytes) -> RemovedQuads:
        return to_removed(pb.RemoveQuadsResponse.FromString(answer))

    request = pb.RemoveQuadsRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        quads=map(quad_message, quads),
        pattern=None if pattern is None else pattern_message(pattern),
        source_id=source_id,
    )
    return Call(f"{_QUADS}RemoveQuads", request, decode, request_id, timeout_s)


def match_quads(
    corpus_id: Id,
    pattern: QuadPattern = _EVERY_QUAD,
    *,
    as_of: AsOf | None = None,
    page_size: int = 0,
    page_token: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[QuadPage]:
    """One page of the quads that match: first those that were put, then those that the server derives.

    Derived quads describe records of the corpus in the words of PROV-O. They are in the graphs `urn:graph:source`
    (sources, documents, chunks, sections, the master, facts) and `urn:graph:retrieval` (the caller's envelopes). A page
    may be short or empty although there are more.
    """

    def decode(answer: bytes) -> QuadPage:
        return to_page(pb.MatchQuadsResponse.FromString(answer))

    request = pb.MatchQuadsRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        pattern=pattern_message(pattern),
        as_of=as_of_message(as_of),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_QUADS}MatchQuads", request, decode, request_id, timeout_s)


def import_quads(
    corpus_id: Id,
    content: bytes | Path | BinaryFile,
    *,
    format: QuadFormat = QuadFormat.N_QUADS,  # noqa: A002 - the usual name
    source_id: str = "",
    graph: str = "",
    base_iri: str = "",
    rename_blank_nodes: bool = False,
    on_event: OnQuadImport | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Upload[PutQuadsResult]:
    """Store any number of quads from a file as one revision: all of them or none.

    `graph` is the graph of a Turtle file, and of quads without a graph in an N-Quads file. `base_iri` is for Turtle
    files. `rename_blank_nodes` keeps the blank nodes of the file apart from those with the same labels in the corpus.
    An exported file also has quads that its server derived: they are counted as `derived` and left out. Raises
    InvalidArgument, whose message names the line that cannot be parsed. A call repeated under the same `request_id`
    takes effect once. `timeout_s` is for the whole call; by default there is no limit.
    """
    target = pb.ImportQuadsTarget(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        format=enum_number(pb.QuadFormat, format),
        source_id=source_id,
        graph=graph,
        base_iri=base_iri,
        rename_blank_nodes=rename_blank_nodes,
    )
    return Upload(
        f"{_QUADS}ImportQuads", target, (content,), _import_requests, _ImportReceipt, on_event, request_id, timeout_s
    )


def export_quads(
    corpus_id: Id,
    file: WritableFile,
    pattern: QuadPattern = _EVERY_QUAD,
    *,
    format: QuadFormat = QuadFormat.N_QUADS,  # noqa: A002 - the usual name
    as_of: AsOf | None = None,
    on_bytes: Callable[[int], object] | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Upload[QuadExport]:
    """Write the quads that match to an open binary file. For Turtle, the pattern must name one graph.

    `on_bytes` is called with the number of bytes so far. The first bytes arrive once the server has made and recorded
    the file. After a failure the file is incomplete.
    """
    request = pb.ExportQuadsRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        pattern=pattern_message(pattern),
        as_of=as_of_message(as_of),
        format=enum_number(pb.QuadFormat, format),
    )
    return download(f"{_QUADS}ExportQuads", request, file, _exported, on_bytes, request_id, timeout_s)


def _import_requests(
    target: pb.ImportQuadsTarget, contents: Iterable[bytes | Path | BinaryFile]
) -> Iterator[pb.ImportQuadsRequest]:
    """The requests of an import. `contents` has exactly one element."""
    yield pb.ImportQuadsRequest(target=target)
    sent = 0
    for content in contents:
        for piece in pieces(content):
            yield pb.ImportQuadsRequest(data=piece)
            sent += len(piece)
    yield pb.ImportQuadsRequest(end=pb.ImportQuadsEnd(size_bytes=sent))


class _ImportReceipt:
    """Collects the answers to an import."""

    def __init__(self, on_event: OnQuadImport | None) -> None:
        self._on_event = on_event or (lambda _event: None)
        self._done: pb.PutQuadsResponse | None = None

    def take(self, answer: bytes) -> None:
        response = pb.ImportQuadsResponse.FromString(answer)
        match response.WhichOneof("part"):
            case "progress":
                progress = response.progress
                self._on_event(QuadImportProgress(progress.bytes_received, progress.quads_read))
            case "done":
                self._done = response.done

    def result(self, request_id: str) -> PutQuadsResult:
        if self._done is None:
            raise unanswered(request_id)
        return to_put_result(self._done)


def _exported(answer: bytes) -> bytes | Whole[QuadExport]:
    response = pb.ExportQuadsResponse.FromString(answer)
    if response.WhichOneof("part") != "done":
        return response.data
    done = response.done
    result = QuadExport(done.revision, done.quads, done.size_bytes, done.sha256.hex(), UUID(done.record_id))
    return Whole(done.size_bytes, done.sha256, result)
