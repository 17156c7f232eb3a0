"""GetNode."""

from __future__ import annotations

from drillcore_fdb.engine import Reader
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.found import AsOf, Nodes
from drillcore_server.domain.ids import NodeId, TenantId


def get_node(
    library: Library, call: Call, *, tenant: TenantId | None, node: NodeId, as_of: AsOf, with_embedding: bool
) -> Nodes:
    """The node, with the first of its children."""

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Nodes:
        trail.touch_node_ids([node])
        shelf, level = library.shelf_of(tr, granted, trail, node, as_of)
        granted.check_level(shelf.corpus.id, level)
        found = shelf.node(node, level, with_embedding=with_embedding)
        trail.touch_nodes([found], shelf.corpus.number)
        return Nodes(library.signed(tr, granted, [shelf.with_children(found)], shelf), shelf.revision)

    return library.unit.read(call, access.in_tenant(tenant, Permission.READ), work)
