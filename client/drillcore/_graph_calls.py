"""Calls about conversation graphs and slices. See `_calls`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from drillcore import _convert_graphs as convert
from drillcore import _convert_nodes
from drillcore._call import Call, Id, Pages, id_text
from drillcore._convert_nodes import AsOf
from drillcore._graph_results import (
    Edge,
    PutEdgesResult,
    PutTurnsResult,
    RemovedTurns,
    Slice,
    SliceFormat,
    SlicePolicy,
    Turn,
    TurnPage,
)
from drillcore_proto.v1 import graphs_pb2 as pb

TurnPart = Turn | pb.Turn
EdgePart = Edge | pb.Edge
"""A turn, an edge; as a message of the protocol, if it is one already."""

_GRAPHS: Final = "/drillcore_proto.v1.GraphService/"


def put_turns(
    corpus_id: Id,
    turns: Iterable[TurnPart],
    edges: Iterable[EdgePart] = (),
    *,
    source_id: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[PutTurnsResult]:
    """Store turns of conversations, at most 10,000, and edges with them, as one revision: all or none.

    Turns that are there already are replaced. With a `source_id` they are erased with that source. Raises
    InvalidArgument, whose message names the turn or edge; NotFound for an edge from or to a turn that is not there.
    """

    def decode(answer: bytes) -> PutTurnsResult:
        response = pb.PutTurnsResponse.FromString(answer)
        return PutTurnsResult(response.revision, response.added, response.replaced, response.edges_added)

    request = pb.PutTurnsRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        turns=(one if isinstance(one, pb.Turn) else convert.turn_message(one) for one in turns),
        edges=map(_edge, edges),
        source_id=source_id,
    )
    return Call(f"{_GRAPHS}PutTurns", request, decode, request_id, timeout_s)


def put_edges(
    corpus_id: Id,
    edges: Iterable[EdgePart],
    *,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[PutEdgesResult]:
    """Store edges between turns of a corpus, at most 10,000, as one revision: all or none."""

    def decode(answer: bytes) -> PutEdgesResult:
        response = pb.PutEdgesResponse.FromString(answer)
        return PutEdgesResult(response.revision, response.added, response.known)

    request = pb.PutEdgesRequest(tenant_id=id_text(tenant_id), corpus_id=id_text(corpus_id), edges=map(_edge, edges))
    return Call(f"{_GRAPHS}PutEdges", request, decode, request_id, timeout_s)


def remove_turns(
    corpus_id: Id,
    turn_ids: Collection[Id] = (),
    *,
    edges: Iterable[EdgePart] = (),
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[RemovedTurns]:
    """Remove turns with all their edges, and single edges, as one revision. Earlier revisions keep them."""

    def decode(answer: bytes) -> RemovedTurns:
        response = pb.RemoveTurnsResponse.FromString(answer)
        return RemovedTurns(response.revision, response.turns_removed, response.edges_removed)

    request = pb.RemoveTurnsRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        turn_ids=map(id_text, turn_ids),
        edges=map(_edge, edges),
    )
    return Call(f"{_GRAPHS}RemoveTurns", request, decode, request_id, timeout_s)


def list_turns(
    corpus_id: Id,
    *,
    session_id: str = "",
    as_of: AsOf | None = None,
    page_size: int = 0,
    page_token: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[TurnPage]:
    """One page of the turns of a corpus, or of one session, in the order of ids, with the edges that lead to them."""

    def decode(answer: bytes) -> TurnPage:
        return convert.turn_page(pb.ListTurnsResponse.FromString(answer))

    request = pb.ListTurnsRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        session_id=session_id,
        as_of=_convert_nodes.as_of_message(as_of),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_GRAPHS}ListTurns", request, decode, request_id, timeout_s)


def iter_turns(
    corpus_id: Id,
    *,
    session_id: str = "",
    as_of: AsOf | None = None,
    page_size: int = 0,
    tenant_id: Id | None = None,
    timeout_s: float | None = None,
) -> Pages[Turn]:
    """Every turn that `list_turns` lists, without the edges, all of one moment. `timeout_s` is for each page."""
    return lambda token: list_turns(
        corpus_id,
        session_id=session_id,
        as_of=as_of,
        page_size=page_size,
        page_token=token,
        tenant_id=tenant_id,
        timeout_s=timeout_s,
    )


def slice(  # noqa: A001 - the word for it
    anchors: Collection[Id],
    *,
    corpus_id: Id | None = None,
    policy: SlicePolicy | None = None,
    as_of: AsOf | None = None,
    format: SliceFormat | None = None,  # noqa: A002 - the word for it
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[tuple[Slice, ...]]:
    """A bounded neighbourhood of each anchor, in their order: turns, nodes of the hierarchy and facts.

    Anchors, at most 100, are ids of turns, nodes or facts; with a `corpus_id` all of that corpus. The same policy on
    the same state gives the same slice, and the same `slice_id`. With a `format` each also comes as a file. Raises
    NotFound, whose message names the anchor.
    """

    def decode(answer: bytes) -> tuple[Slice, ...]:
        return convert.slices(pb.SliceResponse.FromString(answer))

    request = pb.SliceRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        anchors=map(id_text, anchors),
        policy=convert.policy_message(policy),
        as_of=_convert_nodes.as_of_message(as_of),
        format=convert.format_message(format),
    )
    return Call(f"{_GRAPHS}Slice", request, decode, request_id, timeout_s)


def _edge(edge: EdgePart) -> pb.Edge:
    return edge if isinstance(edge, pb.Edge) else convert.edge_message(edge)
