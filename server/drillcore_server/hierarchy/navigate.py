"""GetNode, GetHistory, DrillDown and RollUp."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from drillcore_fdb.engine import Reader
from drillcore_proto.reasons import Reason
from drillcore_server.hierarchy.model import chunk_of_raw
from drillcore_server.hierarchy.nodes import Node, Nodes
from drillcore_server.hierarchy.reader import NodeReader, at_node, missing, with_signatures
from drillcore_server.hierarchy.store import HierarchyReader
from drillcore_server.kernel import access, retention, revisions
from drillcore_server.kernel.access import InTenant
from drillcore_server.kernel.account_model import Permission
from drillcore_server.kernel.corpus_at_revision import AsOf, CorpusAtRevision, CorpusReads
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.pages import PageLimit, fill_page, make_token, page_size, read_token
from drillcore_server.kernel.revisions import RevisionRecord
from drillcore_server.kernel.trail import Trail
from drillcore_server.kernel.unit import Call
from drillcore_server.kernel.writes import is_ingested_chunk
from drillcore_server.storage import versioned
from drillcore_server.storage.ids import CorpusId, Level, NodeId, Revision, TenantId, node_id


def get_node(
    reads: CorpusReads, call: Call, *, tenant: TenantId | None, node: NodeId, as_of: AsOf, with_embedding: bool
) -> Nodes:
    """The node, with its first children. Raises `Missing` if this revision does not have it."""

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Nodes:
        trail.touch_node_ids([node])
        view, level = at_node(reads, tr, granted, trail, node, as_of)
        granted.check_level(view.corpus.id, level)
        nodes = NodeReader(view)
        found = nodes.node(node, level, with_embedding=with_embedding)
        trail.touch_nodes([found], view.corpus.number)
        return Nodes(with_signatures(reads, tr, granted, [nodes.with_children(found)], view), view.revision)

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


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
    below = int.from_bytes(cursor, "big") if cursor else None

    def work(tr: Reader, granted: InTenant, trail: Trail) -> History:
        view, changed = _numbers(reads, tr, granted, trail, corpus, node)
        chosen = list(islice((number for number in changed if below is None or number < below), wanted + 1))
        records = [revisions.get(tr, view.keys, number) for number in chosen[:wanted]]
        more = make_token(listing, chosen[wanted - 1].to_bytes(6, "big")) if len(chosen) > wanted else ""
        oldest = retention.floor(tr, view.keys)
        return History([record for record in records if record is not None], oldest, more)

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _numbers(
    reads: CorpusReads, tr: Reader, granted: InTenant, trail: Trail, corpus: CorpusId | None, node: NodeId | None
) -> tuple[CorpusAtRevision, Iterator[Revision]]:
    """The corpus, and the numbers of the revisions that changed the corpus or node, newest first."""
    if corpus is not None:
        view = reads.at(tr, granted, trail, corpus, AsOf())
        return view, (Revision(number) for number in range(view.revision, 0, -1))
    assert node is not None
    trail.touch_node_ids([node])
    view, level = at_node(reads, tr, granted, trail, node, AsOf())
    granted.check_level(view.corpus.id, level)
    keys = _raw_keys(reads, tr, view, node) if level is Level.RAW else [_key(view, node, level)]
    written = {revision for key in keys for revision, _ in versioned.history(tr, key)}
    if not written:
        raise missing(node)
    newest_first = sorted((number for number in written if number <= view.revision), reverse=True)
    if level is Level.MASTER:
        return view, (number for number in newest_first if NodeReader(view.at(number)).master_id == node)
    return view, iter(newest_first)


def _key(view: CorpusAtRevision, node: NodeId, level: Level) -> bytes:
    """The key that is written when the node changes."""
    if level is Level.MASTER:
        return view.keys.master()
    return view.keys.section(node) if level is Level.SECTION else view.keys.chunk(node)


def _raw_keys(reads: CorpusReads, tr: Reader, view: CorpusAtRevision, raw: NodeId) -> list[bytes]:
    """The keys that are written when a raw changes.

    A raw that a client made has its own key. A raw that the server made changes with its chunk. The same id may have
    belonged to both kinds.
    """
    keys, (chunk, _) = view.keys, chunk_of_raw(raw)
    locator = tr.get(reads.unit.keys.locator(view.corpus.tenant_id, chunk))
    ingested = locator is not None and is_ingested_chunk(locator)
    return [keys.parent(raw), keys.chunk(chunk)] if ingested else [keys.parent(raw)]


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
    listing = f"below {node} at {target.name}"
    cursor = read_token(listing, token)
    if cursor is not None:
        as_of = AsOf(Revision(int.from_bytes(cursor[:6], "big")))

    def work(tr: Reader, granted: InTenant, trail: Trail) -> Nodes:
        trail.touch_node_ids([node])
        view, level = at_node(reads, tr, granted, trail, node, as_of)
        granted.check_level(view.corpus.id, target)
        if level <= target:
            message = f"a {level.word} has no {target.word} below it"
            raise BadInput(Reason.INVALID_ARGUMENT, message, field="target")
        nodes = NodeReader(view)
        top = nodes.node(node, level)
        below = _below(nodes, top, target, _Path.read(cursor[6:] if cursor else b""))
        page, more = fill_page((((path, child), child.size_bytes) for path, child in below), limit)
        found = with_signatures(reads, tr, granted, [child for _, child in page], view)
        trail.touch_nodes(found, view.corpus.number)
        if not more:
            return Nodes(found, view.revision)
        place = view.revision.to_bytes(6, "big") + page[-1][0].written()
        return Nodes(found, view.revision, make_token(listing, place))

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


@dataclass(frozen=True, slots=True)
class _Path:
    """The path to a node: its section, its chunk, and its place among the chunk's raws."""

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


def _below(nodes: NodeReader, top: Node, target: Level, after: _Path | None) -> Iterator[tuple[_Path, Node]]:
    """The nodes of the target level below `top` that come after the path `after`, each with its path."""
    for section in _sections(nodes, top, after):
        if target is Level.SECTION:
            if after is None or section != after.section:
                yield from ((_Path(section), node) for node in _unless_erased(nodes, section, Level.SECTION))
            continue
        here = after if after is not None and section == after.section else None
        for chunk in _chunks(nodes, top, section, here, target):
            if target is Level.CHUNK:
                yield from ((_Path(section, chunk), node) for node in _unless_erased(nodes, chunk, Level.CHUNK))
                continue
            first = here.raw + 1 if here is not None and chunk == here.chunk else 0
            for place, raw in enumerate(nodes.raws_unless_erased(chunk)):
                if place >= first:
                    yield _Path(section, chunk, place), raw


def _unless_erased(nodes: NodeReader, node: NodeId, level: Level) -> Iterator[Node]:
    """Yields the node, or nothing if it was erased."""
    found = nodes.node_unless_erased(node, level)
    if found is not None:
        yield found


def _sections(nodes: NodeReader, top: Node, after: _Path | None) -> Iterator[NodeId]:
    if top.level is Level.MASTER:
        yield from HierarchyReader(nodes.view).section_ids(None if after is None else after.section)
    elif top.level is Level.SECTION:
        yield top.id
    else:
        assert top.parent is not None
        yield top.parent


def _chunks(nodes: NodeReader, top: Node, section: NodeId, after: _Path | None, target: Level) -> Iterator[NodeId]:
    if top.level is Level.CHUNK:
        yield top.id
        return
    chunks = list(HierarchyReader(nodes.view).chunks_of(section))
    first = 0
    if after is not None and after.chunk in chunks:
        first = chunks.index(after.chunk) + (target is Level.CHUNK)
    yield from chunks[first:]


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
        view, _ = at_node(reads, tr, granted, trail, nodes[0], as_of)
        granted.check_level(view.corpus.id, target)
        reader, ancestors = NodeReader(view), dict[NodeId, Node]()
        for node in nodes:
            home, level = at_node(reads, tr, granted, trail, node, as_of)
            if home.corpus.id != view.corpus.id:
                message = "the nodes are of different corpora; roll up those of each corpus in a call of its own"
                raise BadInput(Reason.INVALID_ARGUMENT, message, field="ids")
            if level >= target:
                message = f"{node} is a {level.word}, which has no {target.word} above it"
                raise BadInput(Reason.INVALID_ARGUMENT, message, field="target")
            ancestor = _ancestor(reader, reader.node(node, level), target)
            ancestors[ancestor.id] = ancestor
        found = list(ancestors.values())
        common = _common(reader, found)
        granted.check_level(view.corpus.id, common.level)
        trail.touch_nodes([*found, common], view.corpus.number)
        *found, common = with_signatures(reads, tr, granted, [*found, common], view)
        return RolledUp(found, common, view.revision)

    return reads.unit.read(call, access.in_tenant(tenant, Permission.READ), work)


def _ancestor(reader: NodeReader, node: Node, target: Level) -> Node:
    while node.level < target:
        if node.parent is None:
            raise missing(node.id)
        node = reader.node(node.parent, Level(node.level + 1))
    return node


def _common(reader: NodeReader, nodes: Sequence[Node]) -> Node:
    """The lowest node above nodes of one level, or the node itself if there is only one."""
    while len(nodes) > 1:
        level = Level(nodes[0].level + 1)
        parents = dict.fromkeys(node.parent for node in nodes)
        nodes = [reader.node(parent, level) for parent in parents if parent is not None]
    return nodes[0]
