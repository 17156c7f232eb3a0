"""Reads of the hierarchy: nodes, queries, drill-down, roll-up and history."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from drillcore._api.messages import AsOf, as_of_message, timestamp
from drillcore._api.node_data import (
    Entity,
    HistoryPage,
    Level,
    Node,
    QueryPage,
    RollUp,
    entity_message,
    level_message,
    to_history,
    to_node,
    to_nodes,
    to_query_page,
    to_roll_up,
)
from drillcore._transport.call import Call, Id, Page, id_text
from drillcore_proto.v1 import nodes_pb2

_NODES: Final = "/drillcore_proto.v1.NodeService/"


def get_node(
    node_id: Id,
    *,
    as_of: AsOf | None = None,
    with_embedding: bool = False,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Node]:
    """The node with this id, in any corpus, with the ids of at most 250 children. Raises NotFound.

    `as_of` is a revision or a time with a zone; by default now.
    """

    def decode(answer: bytes) -> Node:
        response = nodes_pb2.GetNodeResponse.FromString(answer)
        return to_node(response.node, response.revision)

    request = nodes_pb2.GetNodeRequest(
        tenant_id=id_text(tenant_id),
        id=id_text(node_id),
        as_of=as_of_message(as_of),
        with_embedding=with_embedding,
    )
    return Call(f"{_NODES}GetNode", request, decode, request_id, timeout_s)


def query(
    text: str | None = None,
    *,
    vector: Sequence[float] = (),
    embedding_model: str = "",
    level: Level = Level.CHUNK,
    corpus_ids: Collection[Id] = (),
    categories: Collection[str] = (),
    entities: Collection[Entity] = (),
    document_ids: Collection[Id] = (),
    source_ids: Collection[str] = (),
    created_after: datetime | None = None,
    created_before: datetime | None = None,
    as_of: AsOf | None = None,
    page_size: int = 0,
    page_token: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[QueryPage]:
    """One page of the nodes of a level that match all filters. With a text, sections and chunks come best match first.

    Instead of a text you can give a `vector` that `embedding_model` made, for corpora whose model the server does not
    have. Without `corpus_ids` the server searches all corpora that the caller may read. A node must match one of
    `categories`, `document_ids` and `source_ids` each, and all `entities`. If `as_of` is a revision, give one corpus.
    """

    def decode(answer: bytes) -> QueryPage:
        return to_query_page(nodes_pb2.QueryResponse.FromString(answer))

    filters = nodes_pb2.Filters(
        categories=categories,
        entities=map(entity_message, entities),
        document_ids=map(id_text, document_ids),
        source_ids=source_ids,
        created_after=timestamp(created_after),
        created_before=timestamp(created_before),
    )
    request = nodes_pb2.QueryRequest(
        tenant_id=id_text(tenant_id),
        corpus_ids=map(id_text, corpus_ids),
        level=level_message(level),
        text=text or "",
        vector=vector,
        embedding_model=embedding_model,
        filters=filters,
        as_of=as_of_message(as_of),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_NODES}Query", request, decode, request_id, timeout_s)


def drill_down(
    node_id: Id,
    level: Level,
    *,
    as_of: AsOf | None = None,
    page_size: int = 0,
    page_token: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Page[Node]]:
    """One page of the nodes at a lower level below a node, in reading order. Raises NotFound."""

    def decode(answer: bytes) -> Page[Node]:
        return to_nodes(nodes_pb2.DrillDownResponse.FromString(answer))

    request = nodes_pb2.DrillDownRequest(
        tenant_id=id_text(tenant_id),
        id=id_text(node_id),
        target=level_message(level),
        as_of=as_of_message(as_of),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_NODES}DrillDown", request, decode, request_id, timeout_s)


def roll_up(
    node_ids: Collection[Id],
    level: Level,
    *,
    as_of: AsOf | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[RollUp]:
    """The ancestors of nodes at a higher level, and their lowest common ancestor. Raises NotFound."""

    def decode(answer: bytes) -> RollUp:
        return to_roll_up(nodes_pb2.RollUpResponse.FromString(answer))

    request = nodes_pb2.RollUpRequest(
        tenant_id=id_text(tenant_id),
        ids=map(id_text, node_ids),
        target=level_message(level),
        as_of=as_of_message(as_of),
    )
    return Call(f"{_NODES}RollUp", request, decode, request_id, timeout_s)


def history(
    corpus_id: Id | None = None,
    *,
    node_id: Id | None = None,
    page_size: int = 0,
    page_token: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[HistoryPage]:
    """One page of the revisions of a corpus, or of those that changed a node, newest first."""
    if (corpus_id is None) == (node_id is None):
        raise TypeError("give either corpus_id or node_id=")

    def decode(answer: bytes) -> HistoryPage:
        return to_history(nodes_pb2.GetHistoryResponse.FromString(answer))

    request = nodes_pb2.GetHistoryRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        node_id=id_text(node_id),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_NODES}GetHistory", request, decode, request_id, timeout_s)
