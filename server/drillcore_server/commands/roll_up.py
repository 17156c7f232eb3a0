"""RollUp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library, Shelf, missing
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.found import AsOf, Node
from drillcore_server.domain.ids import NodeId, Revision, TenantId
from drillcore_server.domain.nodes import Level

NODES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class RolledUp:
    ancestors: Sequence[Node]
    common: Node
    """The lowest node above all of them, from the target level up."""
    revision: Revision


def roll_up(
    library: Library, call: Call, *, tenant: TenantId | None, nodes: Sequence[NodeId], target: Level, as_of: AsOf
) -> RolledUp:
    """The ancestors of nodes of one corpus at a higher level, each once, in the order of the nodes."""
    if not 0 < len(nodes) <= NODES_MAX:
        raise BadInput(Reason.INVALID_ARGUMENT, f"name 1 to {NODES_MAX} nodes", field="ids")

    def work(tr: Reader, granted: InTenant, trail: Trail) -> RolledUp:
        trail.touch_node_ids(nodes)
        shelf, _ = library.shelf_of(tr, granted, trail, nodes[0], as_of)
        granted.check_level(shelf.corpus.id, target)
        ancestors: dict[NodeId, Node] = {}
        for one in nodes:
            home, level = library.shelf_of(tr, granted, trail, one, as_of)
            if home.corpus.id != shelf.corpus.id:
                raise BadInput(Reason.INVALID_ARGUMENT, "the nodes are of different corpora", field="ids")
            if level >= target:
                message = f"{one} is a {level.name.lower()}, which has no {target.name.lower()} above it"
                raise BadInput(Reason.INVALID_ARGUMENT, message, field="target")
            ancestor = _ancestor(shelf, shelf.node(one, level), target)
            ancestors[ancestor.id] = ancestor
        found = list(ancestors.values())
        common = _common(shelf, found)
        granted.check_level(shelf.corpus.id, common.level)
        trail.touch_nodes([*found, common], shelf.corpus.number)
        *found, common = library.signed(tr, granted, [*found, common], shelf)
        return RolledUp(found, common, shelf.revision)

    return library.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _ancestor(shelf: Shelf, node: Node, target: Level) -> Node:
    while node.level < target:
        if node.parent is None:
            raise missing(node.id)
        node = shelf.node(node.parent, Level(node.level + 1))
    return node


def _common(shelf: Shelf, nodes: Sequence[Node]) -> Node:
    """The lowest node above nodes of one level, or the node itself if there is one only."""
    while len(nodes) > 1:
        level = Level(nodes[0].level + 1)
        parents = dict.fromkeys(node.parent for node in nodes)
        nodes = [shelf.node(parent, level) for parent in parents if parent is not None]
    return nodes[0]
