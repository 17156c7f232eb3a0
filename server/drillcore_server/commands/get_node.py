"""GetNode."""

from __future__ import annotations

from drillcore_fdb.engine import Transaction
from drillcore_server.auth import access
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.found import AsOf, Nodes
from drillcore_server.domain.ids import NodeId, TenantId


def get_node(
    library: Library, call: Call, *, tenant: TenantId | None, node: NodeId, as_of: AsOf, with_embedding: bool
) -> Nodes:
    """The node, with the first of its children."""

    def work(tr: Transaction, granted: TenantId) -> Nodes:
        shelf, level = library.shelf_of(tr, granted, node, as_of)
        found = shelf.node(node, level, with_embedding=with_embedding)
        return Nodes([shelf.with_children(found)], shelf.revision)

    return library.unit.read(call, access.in_tenant(tenant), work)
