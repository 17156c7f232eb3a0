"""Finds the tenant, corpora and nodes that a request names, by the names of its fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final
from uuid import UUID

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from drillcore_server.kernel.read_ahead import Subjects
from drillcore_server.storage.ids import CorpusId, NodeId, TenantId

_TENANT: Final = frozenset({"tenant_id"})
_CORPORA: Final = frozenset({"corpus_id", "corpus_ids"})
_NODES: Final = frozenset({"id", "ids", "node_id", "fact_id", "fact_ids", "turn_ids", "anchors", "node"})
_IDS_MAX: Final = 1_000
"""How many ids of each kind are taken from a request."""


def subjects_of(request: Message, service: str) -> Subjects:
    """The ids that the request gives in its own fields and one level below. Leaves out what is not an id."""
    fields = list(_texts(request, levels=2))
    ids_of_corpora = _CORPORA | {"id"} if service == "CorpusService" else _CORPORA
    tenants = _ids(fields, _TENANT)
    return Subjects(
        TenantId(tenants[0]) if tenants else None,
        tuple(map(CorpusId, _ids(fields, ids_of_corpora))),
        tuple(map(NodeId, _ids(fields, _NODES - ids_of_corpora))),
    )


def _texts(message: Message, levels: int) -> Iterator[tuple[str, Iterable[str]]]:
    """The names of the fields that hold texts, each with its texts."""
    for field, value in message.ListFields():
        repeated = field.is_repeated
        if field.type == FieldDescriptor.TYPE_STRING:
            yield field.name, value if repeated else (value,)
        elif field.type == FieldDescriptor.TYPE_MESSAGE and not repeated and levels > 1:
            yield from _texts(value, levels - 1)


def _ids(fields: Iterable[tuple[str, Iterable[str]]], names: frozenset[str]) -> list[UUID]:
    texts = islice((text for name, given in fields if name in names for text in given), _IDS_MAX)
    return [found for text in texts if (found := _uuid(text)) is not None]


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
