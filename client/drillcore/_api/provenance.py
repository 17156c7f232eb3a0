"""Where something comes from, down to the characters of the original documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from drillcore._api.messages import AsOf, as_of_message, to_id
from drillcore._api.node_data import Span, to_span
from drillcore._transport.call import Call, Id, id_text
from drillcore_proto.v1 import provenance_pb2 as pb


@dataclass(frozen=True, slots=True)
class Explained:
    """One step on the way to the original documents."""

    iri: str
    """The IRI that quads use for it."""
    kind: str
    """source, document, raw, chunk, section, master, fact or envelope."""
    id: str
    """A UUID or, for a source, the id of the source."""
    title: str
    derived_from: tuple[str, ...]
    """The IRIs of what it was made from."""
    document_id: UUID | None
    span: Span | None
    """The place in the document's text."""
    text: str
    """The original characters of the span; only for facts and raws."""
    gone: bool
    """Whether it does not exist at this revision, or was erased."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where something comes from."""

    steps: tuple[Explained, ...]
    """What was asked for comes first. Each later step is in `derived_from` of an earlier one."""
    revision: int
    corpus_id: UUID | None
    truncated: bool
    """Whether there are more than 1,000 steps. The rest is left out."""


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
    """The steps from a node, fact, document, source or envelope to the exact characters of the original documents.

    `node` is an id, or the IRI that quads use for it. Documents and sources also need the `corpus_id`. Counts as a read
    of everything it shows. Raises NotFound.
    """
    request = pb.ExplainRequest(
        tenant_id=id_text(tenant_id),
        node=id_text(node),
        corpus_id=id_text(corpus_id),
        as_of=as_of_message(as_of),
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
        span=to_span(message.span) if message.HasField("span") else None,
        text=message.text,
        gone=message.gone,
    )
