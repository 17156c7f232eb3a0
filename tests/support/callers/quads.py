"""Raw calls of QuadService and of the services for facts, as one caller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from drillcore_formats.quads import Iri, Term
from drillcore_proto.v1 import quads_pb2 as pb
from drillcore_proto.v1 import quads_pb2_grpc
from drillcore_server.graphs.quad_model import Quad, QuadPattern
from drillcore_server.graphs.quad_service import quad_message, quad_of, term_message
from tests.support.callers.facts import FactCaller
from tests.support.servers.running import Running

EVERY = QuadPattern()
N_QUADS, TURTLE = pb.QUAD_FORMAT_N_QUADS, pb.QUAD_FORMAT_TURTLE


def ex(name: str) -> Iri:
    return Iri(f"http://example.org/{name}")


def quad(subject: str, predicate: str, object_: str | Term, graph: str = "") -> Quad:
    """A quad from short names, which stand for IRIs."""
    return Quad(ex(subject), ex(predicate), ex(object_) if isinstance(object_, str) else object_, graph)


@dataclass(frozen=True)
class Exported:
    content: bytes
    done: pb.ExportQuadsDone

    @property
    def lines(self) -> list[str]:
        return sorted(self.content.decode().splitlines())


class QuadCaller(FactCaller):
    """Calls raise `grpc.RpcError`; see `knowledge.refused`."""

    def __init__(self, server: Running, token: str) -> None:
        super().__init__(server, token)
        self.quads = quads_pb2_grpc.QuadServiceStub(self._channel)

    def __enter__(self) -> QuadCaller:
        return self

    def put_quads(
        self, corpus: str, *quads: Quad, source: str = "", request_id: str | None = None, **fields: Any
    ) -> pb.PutQuadsResponse:
        request = pb.PutQuadsRequest(corpus_id=corpus, quads=map(quad_message, quads), source_id=source, **fields)
        return self.quads.PutQuads(request, **self.options(request_id))

    def remove_quads(
        self, corpus: str, *quads: Quad, source: str = "", request_id: str | None = None, **fields: Any
    ) -> pb.RemoveQuadsResponse:
        request = pb.RemoveQuadsRequest(corpus_id=corpus, quads=map(quad_message, quads), source_id=source, **fields)
        return self.quads.RemoveQuads(request, **self.options(request_id))

    def match_pages(self, corpus: str, pattern: QuadPattern, **fields: Any) -> Iterator[pb.MatchQuadsResponse]:
        request = pb.MatchQuadsRequest(corpus_id=corpus, pattern=pattern_message(pattern), **fields)
        while True:
            page = self.quads.MatchQuads(request, **self.options())
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def match(self, corpus: str, pattern: QuadPattern = EVERY, **fields: Any) -> dict[Quad, tuple[str, ...]]:
        """The quads that were put, from all pages, with their sources."""
        found = [
            quad for page in self.match_pages(corpus, pattern, **fields) for quad in page.quads if not quad.derived
        ]
        matched = {quad_of(quad.quad): tuple(quad.source_ids) for quad in found}
        assert len(matched) == len(found), "every quad is listed once"
        return matched

    def derived(self, corpus: str, pattern: QuadPattern = EVERY, **fields: Any) -> list[Quad]:
        pages = self.match_pages(corpus, pattern, **fields)
        return [quad_of(quad.quad) for page in pages for quad in page.quads if quad.derived]

    def import_quads(
        self, corpus: str, content: bytes, form: int = N_QUADS, request_id: str | None = None, **fields: Any
    ) -> pb.PutQuadsResponse:
        return self.send_import(import_parts(corpus, content, form, **fields), request_id)[-1].done

    def send_import(
        self, requests: Iterable[pb.ImportQuadsRequest], request_id: str | None = None, timeout_s: float = 600.0
    ) -> Sequence[pb.ImportQuadsResponse]:
        return list(self.quads.ImportQuads(iter(requests), **self.options(request_id, timeout_s)))

    def export_quads(
        self,
        corpus: str,
        pattern: QuadPattern = EVERY,
        form: int = N_QUADS,
        request_id: str | None = None,
        **fields: Any,
    ) -> Exported:
        request = pb.ExportQuadsRequest(
            corpus_id=corpus,
            pattern=pattern_message(pattern),
            format=form,  # type: ignore[arg-type]
            **fields,
        )
        *pieces, done = self.quads.ExportQuads(iter([request]), **self.options(request_id))
        return Exported(b"".join(piece.data for piece in pieces), done.done)


def import_parts(
    corpus: str, content: bytes, form: int = N_QUADS, part_bytes: int = 1 << 20, **fields: Any
) -> Iterator[pb.ImportQuadsRequest]:
    """The requests that send a file."""
    yield pb.ImportQuadsRequest(target=pb.ImportQuadsTarget(corpus_id=corpus, format=form, **fields))  # type: ignore[arg-type]
    for start in range(0, len(content), part_bytes):
        yield pb.ImportQuadsRequest(data=content[start : start + part_bytes])
    yield pb.ImportQuadsRequest(end=pb.ImportQuadsEnd(size_bytes=len(content)))


def pattern_message(pattern: QuadPattern) -> pb.QuadPattern:
    terms = {"subject": pattern.subject, "predicate": pattern.predicate, "object": pattern.object}
    given = {name: term_message(term) for name, term in terms.items() if term is not None}
    return pb.QuadPattern(**given, graph=pattern.graph, source_id=pattern.source or "")
