"""Calls that read a corpus's hierarchy. See `_calls`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

from drillcore import _convert_nodes
from drillcore._call import Call, Id, Pages, id_text
from drillcore._convert_nodes import AsOf
from drillcore._node_results import Entity, HistoryPage, Hit, Level, Node, QueryPage, Revision, RollUp
from drillcore._results import Page
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
    """The node with this id, of whichever corpus, with the ids of its children, at most 250. Raises NotFound.

    `as_of` is a revision, or a time that knows its zone; by default now.
    """

    def decode(answer: bytes) -> Node:
        response = nodes_pb2.GetNodeResponse.FromString(answer)
        return _convert_nodes.node(response.node, response.revision)

    request = nodes_pb2.GetNodeRequest(
        tenant_id=id_text(tenant_id),
        id=id_text(node_id),
        as_of=_convert_nodes.as_of_message(as_of),
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
    """A page of the nodes of a level that pass all filters; with a text (sections, chunks) by meaning, best first.

    Instead of a text, a `vector` that `embedding_model` made: for corpora whose model the server does not have.
    Without `corpus_ids` all that the caller may read are searched. `categories`, `document_ids` and `source_ids` want
    any of theirs, `entities` all. A revision as `as_of` is of a single corpus; a time is of any.
    """

    def decode(answer: bytes) -> QueryPage:
        return _convert_nodes.query_page(nodes_pb2.QueryResponse.FromString(answer))

    filters = nodes_pb2.Filters(
        categories=categories,
        entities=[nodes_pb2.Entity(type=one.type, value=one.value) for one in entities],
        document_ids=map(id_text, document_ids),
        source_ids=source_ids,
        created_after=_convert_nodes.timestamp(created_after),
        created_before=_convert_nodes.timestamp(created_before),
    )
    request = nodes_pb2.QueryRequest(
        tenant_id=id_text(tenant_id),
        corpus_ids=map(id_text, corpus_ids),
        level=_convert_nodes.level_message(level),
        text=text or "",
        vector=vector,
        embedding_model=embedding_model,
        filters=filters,
        as_of=_convert_nodes.as_of_message(as_of),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_NODES}Query", request, decode, request_id, timeout_s)


def iter_query(
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
    tenant_id: Id | None = None,
    timeout_s: float | None = None,
) -> Pages[Hit]:
    """Every node that `query` finds, fetched page by page, all of one moment. `timeout_s` is for each page."""
    return lambda token: query(
        text,
        vector=vector,
        embedding_model=embedding_model,
        level=level,
        corpus_ids=corpus_ids,
        categories=categories,
        entities=entities,
        document_ids=document_ids,
        source_ids=source_ids,
        created_after=created_after,
        created_before=created_before,
        as_of=as_of,
        page_size=page_size,
        page_token=token,
        tenant_id=tenant_id,
        timeout_s=timeout_s,
    )


def drill_down(
    node_id: Id,
    target: Level,
    *,
    as_of: AsOf | None = None,
    page_size: int = 0,
    page_token: str = "",
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[Page[Node]]:
    """One page of the nodes of a lower level below a node, in reading order. Raises NotFound."""

    def decode(answer: bytes) -> Page[Node]:
        return _convert_nodes.nodes(nodes_pb2.DrillDownResponse.FromString(answer))

    request = nodes_pb2.DrillDownRequest(
        tenant_id=id_text(tenant_id),
        id=id_text(node_id),
        target=_convert_nodes.level_message(target),
        as_of=_convert_nodes.as_of_message(as_of),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_NODES}DrillDown", request, decode, request_id, timeout_s)


def iter_drill_down(
    node_id: Id,
    target: Level,
    *,
    as_of: AsOf | None = None,
    page_size: int = 0,
    tenant_id: Id | None = None,
    timeout_s: float | None = None,
) -> Pages[Node]:
    """Every node of a lower level below a node, fetched page by page, all of one moment. `timeout_s` is for each."""
    return lambda token: drill_down(
        node_id,
        target,
        as_of=as_of,
        page_size=page_size,
        page_token=token,
        tenant_id=tenant_id,
        timeout_s=timeout_s,
    )


def roll_up(
    node_ids: Collection[Id],
    target: Level,
    *,
    as_of: AsOf | None = None,
    tenant_id: Id | None = None,
    request_id: str | None = None,
    timeout_s: float | None = None,
) -> Call[RollUp]:
    """The ancestors of nodes at a higher level, and the lowest node above them all. Raises NotFound."""

    def decode(answer: bytes) -> RollUp:
        return _convert_nodes.roll_up(nodes_pb2.RollUpResponse.FromString(answer))

    request = nodes_pb2.RollUpRequest(
        tenant_id=id_text(tenant_id),
        ids=map(id_text, node_ids),
        target=_convert_nodes.level_message(target),
        as_of=_convert_nodes.as_of_message(as_of),
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
        raise TypeError("give either a corpus or a node")

    def decode(answer: bytes) -> HistoryPage:
        return _convert_nodes.history(nodes_pb2.GetHistoryResponse.FromString(answer))

    request = nodes_pb2.GetHistoryRequest(
        tenant_id=id_text(tenant_id),
        corpus_id=id_text(corpus_id),
        node_id=id_text(node_id),
        page_size=page_size,
        page_token=page_token,
    )
    return Call(f"{_NODES}GetHistory", request, decode, request_id, timeout_s)


def iter_history(
    corpus_id: Id | None = None,
    *,
    node_id: Id | None = None,
    page_size: int = 0,
    tenant_id: Id | None = None,
    timeout_s: float | None = None,
) -> Pages[Revision]:
    """Every revision of a corpus, or every one that changed a node, newest first. `timeout_s` is for each page."""
    return lambda token: history(
        corpus_id, node_id=node_id, page_size=page_size, page_token=token, tenant_id=tenant_id, timeout_s=timeout_s
    )
