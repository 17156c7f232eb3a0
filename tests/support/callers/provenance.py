"""Raw calls of ProvenanceService and QuadService, and of the services for envelopes, facts and documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drillcore_proto.v1 import provenance_pb2 as pb
from drillcore_proto.v1 import provenance_pb2_grpc, quads_pb2, quads_pb2_grpc, sources_pb2, sources_pb2_grpc
from drillcore_server.graphs.quad_model import Quad, QuadPattern
from drillcore_server.graphs.quad_service import quad_of, term_message
from tests.support.callers.envelopes import EnvelopeCaller
from tests.support.servers.running import Running


class ExplainingCaller(EnvelopeCaller):
    def __init__(self, server: Running, token: str) -> None:
        super().__init__(server, token)
        self.provenance = provenance_pb2_grpc.ProvenanceServiceStub(self._channel)
        self.quads = quads_pb2_grpc.QuadServiceStub(self._channel)
        self.sources = sources_pb2_grpc.SourceServiceStub(self._channel)

    def __enter__(self) -> ExplainingCaller:
        return self

    def explain(self, node: str, corpus: str = "", **fields: Any) -> pb.ExplainResponse:
        request = pb.ExplainRequest(node=node, corpus_id=corpus, **fields)
        return self.provenance.Explain(request, **self.options())

    def erase(self, corpus: str, source: str) -> sources_pb2.EraseSourceResponse:
        request = sources_pb2.EraseSourceRequest(corpus_id=corpus, source_id=source)
        return self.sources.EraseSource(request, **self.options())

    def match(self, corpus: str, pattern: QuadPattern, page_size: int = 7, **fields: Any) -> list[Quad]:
        """The quads of all pages."""
        found: list[Quad] = []
        token = ""
        while True:
            request = quads_pb2.MatchQuadsRequest(
                corpus_id=corpus, pattern=_message(pattern), page_size=page_size, page_token=token, **fields
            )
            page = self.quads.MatchQuads(request, **self.options())
            found += [quad_of(quad.quad) for quad in page.quads]
            token = page.next_page_token
            if not token:
                return found


def _message(pattern: QuadPattern) -> quads_pb2.QuadPattern:
    terms = {name: getattr(pattern, name) for name in ("subject", "predicate", "object")}
    bound = {name: term_message(term) for name, term in terms.items() if term is not None}
    return quads_pb2.QuadPattern(**bound, graph=pattern.graph, source_id=pattern.source or "")


def kinds(explained: pb.ExplainResponse) -> list[str]:
    return [step.kind for step in explained.steps]


def of_kind(explained: pb.ExplainResponse, kind: str) -> list[pb.Explained]:
    return [step for step in explained.steps if step.kind == kind]


def assert_chained(steps: Sequence[pb.Explained]) -> None:
    """Asserts that an earlier step names each step but the first, and that every named step is in the list."""
    named: set[str] = set()
    for place, step in enumerate(steps):
        assert not place or step.iri in named, step.iri
        named |= set(step.derived_from)
    assert named <= {step.iri for step in steps}
