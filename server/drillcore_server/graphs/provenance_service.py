"""ProvenanceService: requests to commands, results to responses."""

from __future__ import annotations

from uuid import UUID

from drillcore_proto.v1 import nodes_pb2
from drillcore_proto.v1 import provenance_pb2 as pb
from drillcore_server.graphs.explain import Step, explain
from drillcore_server.graphs.quad_model import Named, named_by
from drillcore_server.hierarchy.service import as_of
from drillcore_server.kernel.corpus_at_revision import CorpusReads
from drillcore_server.kernel.messages import any_id, optional_corpus_id, optional_tenant_id
from drillcore_server.kernel.unit import Call


class ProvenanceService:
    def __init__(self, reads: CorpusReads) -> None:
        self._reads = reads

    def Explain(self, request: pb.ExplainRequest, call: Call) -> pb.ExplainResponse:
        explained = explain(
            self._reads,
            call,
            tenant=optional_tenant_id(request.tenant_id),
            wanted=_wanted(request.node),
            corpus=optional_corpus_id(request.corpus_id, "corpus_id"),
            as_of=as_of(request.as_of),
        )
        return pb.ExplainResponse(
            steps=map(_step_message, explained.steps),
            revision=explained.revision,
            corpus_id="" if explained.corpus is None else str(explained.corpus),
            truncated=explained.truncated,
        )


def _wanted(node: str) -> Named | UUID | None:
    """What has a colon is an IRI; None if it is not one of ours."""
    return named_by(node) if ":" in node else any_id(node, "node")


def _step_message(step: Step) -> pb.Explained:
    return pb.Explained(
        iri=step.iri,
        kind=step.kind,
        id=str(step.id),
        title=step.title,
        derived_from=step.derived_from,
        document_id="" if step.document is None else str(step.document),
        span=None if step.span is None else nodes_pb2.Span(start=step.span.start, end=step.span.end),
        text=step.text,
        gone=step.gone,
    )
