"""DrillDown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.auth import access
from drillcore_server.auth.access import InTenant
from drillcore_server.commands.unit import Call
from drillcore_server.commands.viewing import Library, Shelf
from drillcore_server.domain.accounts import Permission
from drillcore_server.domain.audit import Trail
from drillcore_server.domain.errors import BadInput
from drillcore_server.domain.found import AsOf, Node, Nodes
from drillcore_server.domain.ids import NodeId, Revision, TenantId
from drillcore_server.domain.nodes import Level
from drillcore_server.domain.pages import PageLimit, fill_page, make_token, page_size, read_token
from drillcore_server.store.hierarchy import node_id


def drill_down(
    library: Library,
    call: Call,
    *,
    tenant: TenantId | None,
    node: NodeId,
    target: Level,
    as_of: AsOf,
    size: int,
    token: str,
) -> Nodes:
    """The nodes of a lower level below a node, in order. Later pages are of the first one's revision."""
    limit = PageLimit(page_size(size), library.unit.page_bytes_max)
    listing = f"below {node} at {target.name}"
    cursor = read_token(listing, token)
    if cursor is not None:
        as_of = AsOf(Revision(int.from_bytes(cursor[:6], "big")))

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Nodes:
        trail.touch_node_ids([node])
        shelf, level = library.shelf_of(tr, granted, trail, node, as_of)
        granted.check_level(shelf.corpus.id, target)
        if level <= target:
            message = f"a {level.name.lower()} has nothing of level {target.name.lower()} below it"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="target")
        top = shelf.node(node, level)
        below = _below(shelf, top, target, _Path.read(cursor[6:] if cursor else b""))
        page, more = fill_page((((path, one), one.size_bytes) for path, one in below), limit)
        found = library.signed(tr, granted, [one for _, one in page], shelf)
        trail.touch_nodes(found, shelf.corpus.number)
        if not more:
            return Nodes(found, shelf.revision)
        place = shelf.revision.to_bytes(6, "big") + page[-1][0].written()
        return Nodes(found, shelf.revision, make_token(listing, place))

    return library.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


@dataclass(frozen=True, slots=True)
class _Path:
    """The way to a node: its section, its chunk, its place among the chunk's raws."""

    section: NodeId | None = None
    chunk: NodeId | None = None
    raw: int = -1

    @classmethod
    def read(cls, stored: bytes) -> _Path | None:
        if len(stored) != 34:
            return None
        return cls(node_id(stored[:16]), node_id(stored[16:32]), int.from_bytes(stored[32:], "big") - 1)

    def written(self) -> bytes:
        return _bytes(self.section) + _bytes(self.chunk) + (self.raw + 1).to_bytes(2, "big")


def _bytes(node: NodeId | None) -> bytes:
    return node.bytes if node is not None else bytes(16)


def _below(shelf: Shelf, top: Node, target: Level, after: _Path | None) -> Iterator[tuple[_Path, Node]]:
    """The nodes of the target level below `top`, with the way to each, from behind `after` on."""
    for section in _sections(shelf, top, after):
        if target is Level.SECTION:
            if after is None or section != after.section:
                yield from ((_Path(section), one) for one in _left(shelf, section, Level.SECTION))
            continue
        here = after if after is not None and section == after.section else None
        for chunk in _chunks(shelf, top, section, here, target):
            if target is Level.CHUNK:
                yield from ((_Path(section, chunk), one) for one in _left(shelf, chunk, Level.CHUNK))
                continue
            first = here.raw + 1 if here is not None and chunk == here.chunk else 0
            for place, raw in enumerate(shelf.raws_left(chunk)):
                if place >= first:
                    yield _Path(section, chunk, place), raw


def _left(shelf: Shelf, node: NodeId, level: Level) -> Iterator[Node]:
    """The node, unless it was erased."""
    found = shelf.node_left(node, level)
    if found is not None:
        yield found


def _sections(shelf: Shelf, top: Node, after: _Path | None) -> Iterator[NodeId]:
    if top.level is Level.MASTER:
        yield from shelf.view.section_ids(None if after is None else after.section)
    elif top.level is Level.SECTION:
        yield top.id
    else:
        assert top.parent is not None
        yield top.parent


def _chunks(shelf: Shelf, top: Node, section: NodeId, after: _Path | None, target: Level) -> Iterator[NodeId]:
    if top.level is Level.CHUNK:
        yield top.id
        return
    chunks = list(shelf.view.chunks_of(section))
    first = 0
    if after is not None and after.chunk in chunks:
        first = chunks.index(after.chunk) + (target is Level.CHUNK)
    yield from chunks[first:]
