"""GetNode, GetHistory, DrillDown and RollUp."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice

from drillcore_fdb.engine import RangeRead, Reader
from drillcore_proto.reasons import Reason
from drillcore_server.hierarchy.model import chunk_of_raw
from drillcore_server.hierarchy.node_signatures import NodeSignatures
from drillcore_server.hierarchy.nodes import Node, Nodes
from drillcore_server.hierarchy.reader import (
    NodeReader,
    at_node,
    at_nodes,
    children_ahead,
    expected_locators,
    missing,
)
from drillcore_server.hierarchy.store import MASTER, HierarchyReader, sections_ahead
from drillcore_server.hierarchy.walk import Path, Walk
from drillcore_server.kernel import access, retention, revisions
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusAtRevision, CorpusReads, unless_erased
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.pages import PageLimit, fill_page, make_token, page_size, read_token
from drillcore_server.kernel.revisions import RevisionRecord
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.kernel.writes import is_ingested_chunk
from drillcore_server.storage import versioned
from drillcore_server.storage.corpus_keys import CorpusKeys
from drillcore_server.storage.ids import CorpusId, Level, NodeId, Revision, TenantId


def get_node(
    reads: CorpusReads, call: Call, *, tenant: TenantId | None, node: NodeId, as_of: AsOf, with_embedding: bool
) -> Nodes:
    """The node, with its first children. Raises `Missing` if this revision does not have it."""

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Nodes:
        trail.touch_node_ids([node])
        signatures = NodeSignatures(reads, tr, granted)

        def ahead(keys: CorpusKeys, level: Level) -> list[RangeRead]:
            return [*signatures.whether_any(keys), *children_ahead(keys, node, level)]

        view, level = at_node(reads, tr, granted, trail, node, as_of, ahead)
        granted.check_level(view.corpus.id, level)
        nodes = NodeReader(view, signatures.of(view))
        found = nodes.node(node, level, with_embedding=with_embedding)
        trail.touch_nodes([found], view.corpus.number)
        return Nodes(signatures.added_to([nodes.with_children(found)], view), view.revision)

    expected = expected_locators(reads, call, tenant, [node])
    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work, expected=expected)


@dataclass(frozen=True, slots=True)
class History:
    revisions: Sequence[RevisionRecord]
    oldest: Revision
    """The oldest revision that can still be read; 0 if none was trimmed."""
    next_token: str


def get_history(
    reads: CorpusReads,
    call: Call,
    *,
    tenant: TenantId | None,
    corpus: CorpusId | None,
    node: NodeId | None,
    size: int,
    token: str,
) -> History:
    """The revisions of a corpus, or those that changed a node, newest first.

    A corpus's history includes trimmed revisions. A node's history has only revisions that are still stored.
    """
    if (corpus is None) == (node is None):
        raise BadInput(Reason.INVALID_ARGUMENT, "name either a corpus or a node", field="corpus_id")
    wanted = page_size(size)
    listing = f"history of {corpus or node}"
    cursor = read_token(listing, token)
    last = Revision(int.from_bytes(cursor, "big") - 1) if cursor else None

    def work(tr: Reader, granted: InTenant, trail: Trail) -> History:
        if node is None:
            view, changed = _revisions(reads, tr, granted, trail, corpus, last)
        else:
            view, changed = _changes(reads, tr, granted, trail, node, last)
        chosen = list(islice(changed, wanted + 1))
        records = revisions.get_many(tr, view.keys, chosen[:wanted])
        more = make_token(listing, chosen[wanted - 1].to_bytes(6, "big")) if len(chosen) > wanted else ""
        oldest = retention.floor(tr, view.keys)
        return History([record for record in records if record is not None], oldest, more)

    expected = [] if node is None else expected_locators(reads, call, tenant, [node])
    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work, expected=expected)


def _revisions(
    reads: CorpusReads, tr: Reader, granted: InTenant, trail: Trail, corpus: CorpusId | None, last: Revision | None
) -> tuple[CorpusAtRevision, Iterator[Revision]]:
    """The corpus, and its revisions, newest first, up to one if it is given."""
    assert corpus is not None
    view = reads.at(tr, granted, trail, corpus, AsOf())
    return view, map(Revision, range(view.revision if last is None else min(view.revision, last), 0, -1))


def _changes(
    reads: CorpusReads, tr: Reader, granted: InTenant, trail: Trail, node: NodeId, last: Revision | None
) -> tuple[CorpusAtRevision, Iterator[Revision]]:
    """The node's corpus, and the revisions that changed the node, newest first, up to a revision if one is given."""

    def ahead(keys: CorpusKeys, level: Level) -> list[RangeRead]:
        return [versioned.versions_ahead(_key(keys, node, level), last)]

    trail.touch_node_ids([node])
    view, level = at_node(reads, tr, granted, trail, node, AsOf(), ahead)
    granted.check_level(view.corpus.id, level)
    keys = [_key(view.keys, node, level), *(_further_keys(reads, tr, view, node) if level is Level.RAW else ())]
    merged = heapq.merge(*(versioned.versions(tr, key, last) for key in keys), key=lambda version: -version.revision)
    written = (version for version in merged if version.revision <= view.revision)
    first = next(written, None)
    if first is None and last is None:
        raise missing(node)
    found = chain([] if first is None else [first], written)
    newest_first = found if level is not Level.MASTER else (old for old in found if _master_id(view, old) == node)
    return view, (revision for revision, _ in groupby(newest_first, lambda version: version.revision))


def _key(keys: CorpusKeys, node: NodeId, level: Level) -> bytes:
    """The key that is written when the node changes. For a raw: when it changes and has an id that a client chose."""
    if level is Level.MASTER:
        return keys.master()
    if level is Level.RAW:
        return keys.parent(node)
    return keys.section(node) if level is Level.SECTION else keys.chunk(node)


def _master_id(view: CorpusAtRevision, version: versioned.Value) -> NodeId | None:
    """The id of the master that a revision wrote. None if it removed the master, or the record was erased."""
    if version.value is None:
        return None
    entry = unless_erased(view.sealed.opened, versioned.Entry(version.key, version.revision, version.value))
    return None if entry is None else MASTER.decode(entry.value).id


def _further_keys(reads: CorpusReads, tr: Reader, view: CorpusAtRevision, raw: NodeId) -> list[bytes]:
    """The keys that are written when a raw that the server made changes: it changes with its chunk.

    The same id may have belonged to a raw of either kind.
    """
    chunk, _ = chunk_of_raw(raw)
    locator = tr.get(reads.unit.keys.locator(view.corpus.tenant_id, chunk))
    return [view.keys.chunk(chunk)] if locator is not None and is_ingested_chunk(locator) else []


def drill_down(
    reads: CorpusReads,
    call: Call,
    *,
    tenant: TenantId | None,
    node: NodeId,
    target: Level,
    as_of: AsOf,
    size: int,
    token: str,
) -> Nodes:
    """The nodes of a lower level below a node, in order. Later pages show the same revision as the first page."""
    limit = PageLimit(page_size(size), reads.unit.page_bytes_max)
    listing = f"nodes below {node} at {target.name}"
    cursor = read_token(listing, token)
    if cursor is not None:
        as_of = AsOf(Revision(int.from_bytes(cursor[:6], "big")))

    after = Path.read(cursor[6:]) if cursor else None

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Nodes:
        trail.touch_node_ids([node])
        signatures = NodeSignatures(reads, tr, granted)

        def ahead(keys: CorpusKeys, level: Level) -> list[RangeRead]:
            first = None if after is None else after.section
            return [*signatures.whether_any(keys), *([sections_ahead(keys, first)] if level is Level.MASTER else [])]

        view, level = at_node(reads, tr, granted, trail, node, as_of, ahead)
        granted.check_level(view.corpus.id, target)
        if level <= target:
            message = f"a {level.word} has no {target.word} below it"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="target")
        walk = Walk(NodeReader(view, signatures.of(view)), target, limit, after)
        below = _below(walk, node, level)
        page, more = fill_page((((path, child), child.size_bytes) for path, child in below), limit)
        found = signatures.added_to([child for _, child in page], view)
        trail.touch_nodes(found, view.corpus.number)
        if not more:
            return Nodes(found, view.revision)
        place = view.revision.to_bytes(6, "big") + page[-1][0].written()
        return Nodes(found, view.revision, make_token(listing, place))

    expected = expected_locators(reads, call, tenant, [node])
    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work, expected=expected)


def _below(walk: Walk, node: NodeId, level: Level) -> Iterator[tuple[Path, Node]]:
    """The nodes that a walk finds below a node, which is read together with the first of its children."""
    nodes = walk.nodes
    if level is Level.CHUNK:
        return walk.in_chunk(nodes.node(node, level))
    first = None if walk.after is None else walk.after.section
    hierarchy = HierarchyReader(nodes.view)

    def sections() -> Iterator[NodeId]:
        return hierarchy.section_ids(first) if level is Level.MASTER else iter([node])

    nodes.view.read_ahead(nodes.keys_of([node], level), walk.ahead(sections()))
    nodes.node(node, level)  # raises if it is not there
    return walk.through(sections())


NODES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class RolledUp:
    ancestors: Sequence[Node]
    common: Node
    """The lowest node above all ancestors, or the ancestor itself if there is only one."""
    revision: Revision


def roll_up(
    reads: CorpusReads, call: Call, *, tenant: TenantId | None, nodes: Sequence[NodeId], target: Level, as_of: AsOf
) -> RolledUp:
    """The ancestors of nodes of one corpus at a higher level, each once, in the order of the nodes.

    Raises `Missing` if a node is not there, and `BadInput` for nodes of several corpora or of the target level.
    """
    if not 0 < len(nodes) <= NODES_MAX:
        raise BadInput(Reason.INVALID_ARGUMENT, f"name 1 to {NODES_MAX} nodes", field="ids")

    def work(tr: Reader, granted: InTenant, trail: Trail) -> RolledUp:
        trail.touch_node_ids(nodes)
        signatures = NodeSignatures(reads, tr, granted)
        view, levels = at_nodes(reads, tr, granted, trail, nodes, as_of, lambda keys, _: signatures.whether_any(keys))
        granted.check_level(view.corpus.id, target)
        reader = NodeReader(view, signatures.of(view))
        found = reader.all_of(_ancestors(reader, dict(zip(nodes, levels, strict=True)), target), target)
        common = _common(reader, found)
        granted.check_level(view.corpus.id, common.level)
        trail.touch_nodes([*found, common], view.corpus.number)
        *found, common = signatures.added_to([*found, common], view)
        return RolledUp(found, common, view.revision)

    expected = expected_locators(reads, call, tenant, nodes)
    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work, expected=expected)


def _ancestors(reader: NodeReader, levels: Mapping[NodeId, Level], target: Level) -> list[NodeId]:
    """The ancestors of nodes of these levels, each once, in the order of the nodes. Goes up level by level."""
    for node, level in levels.items():
        if level >= target:
            message = f"{node} is a {level.word}, which has no {target.word} above it"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="target")
    above = {node: node for node in levels}
    for level in map(Level, range(min(levels.values()), target)):
        reached = list(dict.fromkeys(at for node, at in above.items() if levels[node] <= level))
        parents = dict(zip(reached, reader.parents_of(reached, level), strict=True))
        above = {node: parents.get(at, at) for node, at in above.items()}
    return list(dict.fromkeys(above.values()))


def _common(reader: NodeReader, nodes: Sequence[Node]) -> Node:
    """The lowest node above nodes of one level, or the node itself if there is only one."""
    while len(nodes) > 1:
        parents = dict.fromkeys(node.parent for node in nodes if node.parent is not None)
        nodes = reader.all_of(list(parents), Level(nodes[0].level + 1))
    return nodes[0]
