"""The call that tells where something comes from. See `_calls`."""

from __future__ import annotations

from typing import Final

from drillcore import _convert_nodes
from drillcore._call import Call, Id, id_text
from drillcore._convert import to_id
from drillcore._convert_nodes import AsOf
from drillcore._node_results import Span
from drillcore._provenance_results import Explained, Explanation
from drillcore_proto.v1 import provenance_pb2 as pb

_PATH: Final = "/drillcore_proto.v1.ProvenanceService/Explain"


def explain(
    node: Id,
    *,
    corpus_id: Id | None = None,
    as_of: AsOf | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Explanation]:
    """From a node, fact, document, source or envelope to the exact characters of the original documents.

    `node` is an id, or the IRI that quads name it by; documents and sources need the `corpus_id` too. Counts as a read
    of what is shown. Raises NotFound.
    """
    request = pb.ExplainRequest(
        tenant_id=id_text(tenant_id),
        node=id_text(node),
        corpus_id=id_text(corpus_id),
        as_of=_convert_nodes.as_of_message(as_of),
    )
    return Call(_PATH, request, _explanation, request_id, timeout_s)


def _explanation(answer: bytes) -> Explanation:
    response = pb.ExplainResponse.FromString(answer)
    steps = tuple(map(_explained, response.steps))
    return Explanation(steps, response.revision, to_id(response.corpus_id), response.truncated)


def _explained(message: pb.Explained) -> Explained:
    return Explained(
        iri=message.iri,
        kind=message.kind,
        id=message.id,
        title=message.title,
        derived_from=tuple(message.derived_from),
        document_id=to_id(message.document_id),
        span=Span(message.span.start, message.span.end) if message.HasField("span") else None,
        text=message.text,
        gone=message.gone,
    )
