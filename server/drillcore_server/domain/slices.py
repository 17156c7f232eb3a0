"""Deterministic slices of a graph: a bounded neighbourhood of an anchor, best candidates first, with a fingerprint.

Ids are 16 bytes here, in the order of UUIDs: they are compared and looked up very often.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, NamedTuple, Protocol
from uuid import UUID

import xxhash

from drillcore_proto.reasons import Reason
from drillcore_server.domain.errors import BadInput, Missing
from drillcore_server.domain.ids import CorpusId, Revision
from drillcore_server.domain.slice_policies import Policy
from drillcore_server.domain.turns import EdgeType, Phase, Turn

SCHEMA_VERSION: Final = "1.0.0"
ANCHORS_MAX: Final = 100
"""Of one call."""
READ_MAX: Final = 20_000
"""Records that the slices of one call may need to have read of a corpus, one by one: about two seconds."""
KINDS: Final = ("turn", "raw", "chunk", "section", "master", "fact")
EDGE_NAMES: Final = {one: one.name.capitalize() for one in EdgeType}
"""As fingerprints have them."""


class GraphNode(Protocol):
    """What of a node decides whether it gets into a slice."""

    @property
    def kind(self) -> str:
        """One of `KINDS`."""

    @property
    def phase(self) -> Phase: ...

    @property
    def salience(self) -> float: ...


class SliceEdge(NamedTuple):
    """In order: by parent, child, type."""

    parent: bytes
    child: bytes
    type: EdgeType


class Graph(Protocol):
    """What slices are made of. Ids that lead to no node are taken for none."""

    def node(self, node: bytes, /) -> GraphNode | None: ...

    def parents(self, node: bytes, /) -> Iterable[bytes]:
        """In the order of ids."""

    def children(self, node: bytes, /) -> Iterable[bytes]:
        """In the order of ids."""

    def siblings(self, node: bytes, limit: int, /) -> Iterable[bytes]:
        """Other children of its parents: the most salient first, then by id."""

    def edges(self, nodes: Collection[bytes], /) -> Iterable[SliceEdge]:
        """Those between some of the nodes, in any order."""


class SlicedNode(NamedTuple):
    id: bytes
    kind: str
    phase: Phase
    salience: float
    distance: int
    """From the anchor, as it was reached first."""


@dataclass(frozen=True, slots=True)
class Slice:
    slice_id: str
    anchor: bytes
    policy: Policy
    params_hash: str
    nodes: tuple[SlicedNode, ...]
    """In the order of ids."""
    edges: tuple[SliceEdge, ...]
    """In order."""


@dataclass(frozen=True, slots=True)
class CorpusSlice:
    """A slice of one corpus at one revision."""

    slice: Slice
    corpus: CorpusId
    revision: Revision
    turns: Mapping[bytes, Turn]
    """Those of its nodes that are turns."""


def slice_graph(graph: Graph, anchor: bytes, policy: Policy) -> Slice:
    """The slice around an anchor; the same for the same graph. Raises `Missing` if the anchor is not there."""
    if graph.node(anchor) is None:
        raise missing_anchor(UUID(bytes=anchor))
    distances = _expanded(graph, anchor, policy)
    nodes = tuple(_sliced(graph, one, distances[one]) for one in sorted(distances))
    edges = tuple(sorted(graph.edges(distances.keys())))
    params_hash = policy.params_hash()
    return Slice(_slice_id(anchor, nodes, edges, policy, params_hash), anchor, policy, params_hash, nodes, edges)


def missing_anchor(anchor: UUID) -> Missing:
    message = f"there is no turn, node or fact {anchor} to slice around at this revision"
    return Missing(Reason.ANCHOR_NOT_FOUND, message, anchor=str(anchor))


def check_read(records: int) -> None:
    """Raises `BadInput` if slices need more of the store than can be read for one call."""
    if records > READ_MAX:
        message = f"over {READ_MAX:,} records lie around these anchors; ask for fewer anchors, or a smaller max_nodes"
        raise BadInput(Reason.TOO_LARGE, message, field="anchors")


def most_salient(graph: Graph, candidates: Iterable[bytes], limit: int) -> list[bytes]:
    """Some of them: the most salient first, then by id."""
    found = [(-node.salience, one) for one in set(candidates) if (node := graph.node(one)) is not None]
    return [one for _, one in sorted(found)[:limit]]


def id_text(node: bytes) -> str:
    """As a UUID is written; `str(UUID(bytes=...))`, but sooner."""
    text = node.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _expanded(graph: Graph, anchor: bytes, policy: Policy) -> dict[bytes, int]:
    """The nodes that get into the slice, each with its distance: the best candidate, then what that leads to."""
    rank, seen = policy.ranking(), {anchor}
    frontier = [((0.0, 0, b""), 0, anchor)]
    taken: dict[bytes, int] = {}

    def push(candidates: Iterable[bytes], distance: int) -> None:
        for one in candidates:
            if one in seen or (node := graph.node(one)) is None:
                continue
            seen.add(one)
            heappush(frontier, (rank(node.phase, node.salience, distance, one), distance, one))

    while frontier and len(taken) < policy.max_nodes:
        _, distance, one = heappop(frontier)
        taken[one] = distance
        if distance == policy.max_radius:
            continue  # as in the reference: not to siblings either, though they would be no farther
        push(graph.parents(one), distance + 1)
        push(graph.children(one), distance + 1)
        if policy.include_siblings:
            push(graph.siblings(one, policy.max_siblings_per_node), distance)
    return taken


def _sliced(graph: Graph, one: bytes, distance: int) -> SlicedNode:
    node = graph.node(one)
    assert node is not None, "only nodes are taken"
    return SlicedNode(one, node.kind, node.phase, node.salience, distance)


def _slice_id(
    anchor: bytes, nodes: Iterable[SlicedNode], edges: Iterable[SliceEdge], policy: Policy, params_hash: str
) -> str:
    """xxHash64 of compact JSON, put together by hand: nothing in it needs quoting, and there may be much of it."""
    texts = {node.id: id_text(node.id) for node in nodes}
    ids = '","'.join(texts.values())
    told = ",".join([_EDGE % (texts[one.parent], texts[one.child], _NAMES[one.type]) for one in edges])
    last = f'"{policy.fingerprinted_as}","{params_hash}","{SCHEMA_VERSION}"'
    return xxhash.xxh64_hexdigest(f'["{texts[anchor]}",["{ids}"],[{told}],{last}]')


_EDGE: Final = '{"parent":"%s","child":"%s","edge_type":"%s"}'
_NAMES: Final = ["", *EDGE_NAMES.values()]
