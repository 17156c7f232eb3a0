"""Slices of graphs as pure functions: a bounded neighbourhood of an anchor, best candidates first, with a fingerprint.

A policy sets the limits of a slice and the priorities of candidates. The same graph, anchor and policy always give the
same slice. Ids are 16 bytes here, in the order of UUIDs, because they are compared and looked up very often.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush, nsmallest
from typing import Final, NamedTuple, Protocol
from uuid import UUID

import xxhash

from drillcore_proto.reasons import Reason
from drillcore_server.graphs.turn_model import EdgeType, Phase, Turn
from drillcore_server.kernel.errors import BadInput, Missing
from drillcore_server.storage.ids import CorpusId, Revision

POLICY: Final = "slice_policy_v1"
REFERENCE_POLICY: Final = "slice_policy_v1_ref"
"""Computes priorities in single precision and prefers the higher id in a tie, as the reference implementation does."""
POLICIES: Final = (POLICY, REFERENCE_POLICY)

NODES_MAX: Final = 10_000
RADIUS_MAX: Final = 1_000
SIBLINGS_MAX: Final = 1_000
WEIGHT_MAX: Final = 1_000.0
_MILLION: Final = 1_000_000
_INVERTED: Final = bytes(255 - byte for byte in range(256))

Rank = tuple[float, int, bytes]
"""Rank of a candidate. The lowest is taken first."""


def single(value: float) -> float:
    """The nearest number of single precision. Policies and saliences consist of those."""
    nearest: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return nearest


def fingerprint(value: object) -> str:
    """xxHash64 of the compact JSON, in hex."""
    return xxhash.xxh64_hexdigest(json.dumps(value, separators=(",", ":")).encode())


@dataclass(frozen=True, slots=True)
class PhaseWeights:
    synthesis: float = single(1.0)
    planning: float = single(0.9)
    consolidation: float = single(0.6)
    debugging: float = single(0.5)
    exploration: float = single(0.3)

    def by_phase(self) -> list[float]:
        """The weights, each at the number of its phase."""
        return [0.0, *(getattr(self, phase.name.lower()) for phase in Phase)]


@dataclass(frozen=True, slots=True)
class Policy:
    id: str = POLICY
    max_nodes: int = 256
    max_radius: int = 10
    phase_weights: PhaseWeights = field(default_factory=PhaseWeights)
    salience_weight: float = single(0.3)
    distance_decay: float = single(0.9)
    include_siblings: bool = True
    max_siblings_per_node: int = 5

    @property
    def fingerprinted_as(self) -> str:
        """The policy id in fingerprints. Both policies have the same, so that fingerprints equal the reference's."""
        return POLICY

    def params(self) -> dict[str, object]:
        """The content of `params_hash`: whole numbers only, in this order."""
        weights = self.phase_weights
        return {
            "version": self.fingerprinted_as,
            "max_nodes": self.max_nodes,
            "max_radius": self.max_radius,
            "phase_weights": {
                "synthesis": _millionths(weights.synthesis),
                "planning": _millionths(weights.planning),
                "consolidation": _millionths(weights.consolidation),
                "debugging": _millionths(weights.debugging),
                "exploration": _millionths(weights.exploration),
            },
            "salience_weight": _millionths(self.salience_weight),
            "distance_decay": _millionths(self.distance_decay),
            "include_siblings": self.include_siblings,
            "max_siblings_per_node": self.max_siblings_per_node,
        }

    def params_hash(self) -> str:
        return fingerprint(self.params())

    def check(self) -> None:
        """Raises `BadInput` for an unknown policy, or a value outside its range."""
        if self.id not in POLICIES:
            raise _refused(f"policy_id must be {' or '.join(POLICIES)}", "policy_id")
        _check_between("max_nodes", self.max_nodes, 1, NODES_MAX)
        _check_between("max_radius", self.max_radius, 0, RADIUS_MAX)
        _check_between("max_siblings_per_node", self.max_siblings_per_node, 0, SIBLINGS_MAX)
        _check_between("distance_decay", self.distance_decay, 0, 1)
        _check_between("salience_weight", self.salience_weight, 0, WEIGHT_MAX)
        for phase in Phase:
            _check_between("phase_weights", getattr(self.phase_weights, phase.name.lower()), 0, WEIGHT_MAX)

    def ranking(self) -> Callable[[int, float, int, bytes], Rank]:
        """The function that ranks a candidate by phase, salience, distance and id."""
        return self._reference_ranking() if self.id == REFERENCE_POLICY else self._own_ranking()

    def _own_ranking(self) -> Callable[[int, float, int, bytes], Rank]:
        weights, salience_weight = self.phase_weights.by_phase(), self.salience_weight
        decays = _powers(self.distance_decay, self.max_radius)

        def rank(phase: int, salience: float, distance: int, node: bytes) -> Rank:
            priority = round((weights[phase] + salience * salience_weight) * decays[distance] * _MILLION)
            return -priority, distance, node

        return rank

    def _reference_ranking(self) -> Callable[[int, float, int, bytes], Rank]:
        """The reference takes the greatest entry of its heap, and so the higher of two ids."""
        weights, salience_weight = self.phase_weights.by_phase(), self.salience_weight
        decays = [_single_power(self.distance_decay, distance) for distance in range(self.max_radius + 1)]

        def rank(phase: int, salience: float, distance: int, node: bytes) -> Rank:
            base = single(weights[phase] + single(salience * salience_weight))
            return -single(base * decays[distance]), distance, node.translate(_INVERTED)

        return rank


def _powers(base: float, last: int) -> list[float]:
    """Powers from 0 to `last`, by multiplication, because `pow` may differ between machines."""
    found = [1.0]
    for _ in range(last):
        found.append(found[-1] * base)
    return found


def _single_power(base: float, exponent: int) -> float:
    """A power as compiled code computes it: by squaring, each product rounded to single precision."""
    result = 1.0
    while True:
        if exponent & 1:
            result = single(result * base)
        exponent >>= 1
        if not exponent:
            return result
        base = single(base * base)


def _millionths(value: float) -> int:
    """Rounds halves up, as the reference does. Values are never negative, and their product is exact."""
    return math.floor(value * _MILLION + 0.5)


def _check_between(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:  # false for NaN, too
        raise _refused(f"{name} must be from {least:g} to {most:g}", name)


def _refused(message: str, name: str) -> BadInput:
    return BadInput(Reason.INVALID_ARGUMENT, message, field=name)


SCHEMA_VERSION: Final = "1.0.0"
ANCHORS_MAX: Final = 100
"""Anchors of one call."""
READ_MAX: Final = 20_000
"""Records of a corpus that the slices of one call may read. Turns of earlier revisions are read one by one, in about
two seconds."""
KINDS: Final = ("turn", "raw", "chunk", "section", "master", "fact")
_PREPARED_AHEAD: Final = 127
"""How many further candidates are read together with one that is taken. Most of them are taken next."""
EDGE_NAMES: Final = {edge_type: edge_type.name.capitalize() for edge_type in EdgeType}
"""Names of edge types in fingerprints."""


class GraphNode(Protocol):
    """The properties of a node that decide whether a slice takes it."""

    @property
    def kind(self) -> str:
        """One of `KINDS`."""

    @property
    def phase(self) -> Phase: ...

    @property
    def salience(self) -> float: ...


class SliceEdge(NamedTuple):
    """Edges are ordered by parent, child and type."""

    parent: bytes
    child: bytes
    type: EdgeType


class Graph(Protocol):
    """A graph that slices can be taken from. It may return ids of nodes that do not exist; they are ignored."""

    def node(self, node: bytes, /) -> GraphNode | None: ...

    def parents(self, node: bytes, /) -> Iterable[bytes]:
        """The parents of a node, by id."""

    def children(self, node: bytes, /) -> Iterable[bytes]:
        """The children of a node, by id."""

    def siblings(self, node: bytes, limit: int, /) -> Iterable[bytes]:
        """Up to `limit` other children of the node's parents, the most salient first, then by id."""

    def edges(self, nodes: Collection[bytes], /) -> Iterable[SliceEdge]:
        """All edges that connect two of the given nodes, in any order."""


class ReadAhead(Protocol):
    """A graph that is read from the store, and reads what it will be asked for together."""

    def is_ready(self, node: bytes, /) -> bool:
        """Whether the node was prepared."""

    def prepare(self, nodes: Sequence[bytes], /) -> None:
        """Reads ahead what the neighbours and edges of several known nodes need."""


class SlicedNode(NamedTuple):
    id: bytes
    kind: str
    phase: Phase
    salience: float
    distance: int
    """From the anchor, when the node was first reached. A sibling is as far away as the node it was reached from."""


@dataclass(frozen=True, slots=True)
class Slice:
    slice_id: str
    anchor: bytes
    policy: Policy
    params_hash: str
    nodes: tuple[SlicedNode, ...]
    """By id."""
    edges: tuple[SliceEdge, ...]
    """By parent, child and type."""


@dataclass(frozen=True, slots=True)
class CorpusSlice:
    """A slice of one corpus at one revision."""

    slice: Slice
    corpus: CorpusId
    revision: Revision
    turns: Mapping[bytes, Turn]
    """The turns among its nodes, by id."""


def slice_graph(graph: Graph, anchor: bytes, policy: Policy, ahead: ReadAhead | None = None) -> Slice:
    """The slice around an anchor. Equal graphs give equal slices. Raises `Missing` if the graph lacks the anchor.

    `ahead` is the graph, if it must be told what it will be asked for. It makes no difference to the slice.
    """
    if graph.node(anchor) is None:
        raise missing_anchor(UUID(bytes=anchor))
    distances = _expanded(graph, anchor, policy, ahead)
    if ahead is not None:
        _prepare_all(ahead, distances)
    nodes = tuple(_sliced(graph, node, distances[node]) for node in sorted(distances))
    edges = tuple(sorted(graph.edges(distances.keys())))
    params_hash = policy.params_hash()
    return Slice(_slice_id(anchor, nodes, edges, policy, params_hash), anchor, policy, params_hash, nodes, edges)


def missing_anchor(anchor: UUID) -> Missing:
    message = f"there is no turn, node or fact {anchor} at this revision"
    return Missing(Reason.ANCHOR_NOT_FOUND, message, anchor=str(anchor))


def check_read(records: int) -> None:
    """Raises `BadInput` if the slices of one call have read too many records."""
    if records > READ_MAX:
        message = f"over {READ_MAX:,} records lie around these anchors; ask for fewer anchors, or a smaller max_nodes"
        raise BadInput(Reason.TOO_LARGE, message, field="anchors")


def most_salient(graph: Graph, candidates: Iterable[bytes], limit: int) -> list[bytes]:
    """Up to `limit` of the candidates, the most salient first, then by id."""
    found = [(-node.salience, id_) for id_ in set(candidates) if (node := graph.node(id_)) is not None]
    return [id_ for _, id_ in sorted(found)[:limit]]


def id_text(node: bytes) -> str:
    """Same result as `str(UUID(bytes=...))`, faster: this is a hot path."""
    text = node.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _expanded(graph: Graph, anchor: bytes, policy: Policy, ahead: ReadAhead | None) -> dict[bytes, int]:
    """The nodes of the slice with their distances. Takes the best candidate, adds its neighbours, and repeats."""
    rank, seen = policy.ranking(), {anchor}
    frontier = [((0.0, 0, b""), 0, anchor)]
    taken: dict[bytes, int] = {}

    def push(candidates: Iterable[bytes], distance: int) -> None:
        for candidate in candidates:
            if candidate in seen or (node := graph.node(candidate)) is None:
                continue
            seen.add(candidate)
            heappush(frontier, (rank(node.phase, node.salience, distance, candidate), distance, candidate))

    while frontier and len(taken) < policy.max_nodes:
        _, distance, best = heappop(frontier)
        taken[best] = distance
        if distance == policy.max_radius:
            continue  # the reference stops here, too, although siblings would be no farther away
        if ahead is not None and not ahead.is_ready(best):
            ahead.prepare([best, *(candidate for _, _, candidate in nsmallest(_PREPARED_AHEAD, frontier))])
        push(graph.parents(best), distance + 1)
        push(graph.children(best), distance + 1)
        if policy.include_siblings:
            push(graph.siblings(best, policy.max_siblings_per_node), distance)
    return taken


def _prepare_all(ahead: ReadAhead, nodes: Iterable[bytes]) -> None:
    left = [node for node in nodes if not ahead.is_ready(node)]
    for start in range(0, len(left), _PREPARED_AHEAD):
        ahead.prepare(left[start : start + _PREPARED_AHEAD])


def _sliced(graph: Graph, id_: bytes, distance: int) -> SlicedNode:
    node = graph.node(id_)
    assert node is not None, "only nodes are taken"
    return SlicedNode(id_, node.kind, node.phase, node.salience, distance)


def _slice_id(
    anchor: bytes, nodes: Iterable[SlicedNode], edges: Iterable[SliceEdge], policy: Policy, params_hash: str
) -> str:
    """xxHash64 of compact JSON. The JSON is built by hand, because it may be long and nothing in it needs quoting."""
    texts = {node.id: id_text(node.id) for node in nodes}
    ids = '","'.join(texts.values())
    links = ",".join([_EDGE % (texts[edge.parent], texts[edge.child], _NAMES[edge.type]) for edge in edges])
    last = f'"{policy.fingerprinted_as}","{params_hash}","{SCHEMA_VERSION}"'
    return xxhash.xxh64_hexdigest(f'["{texts[anchor]}",["{ids}"],[{links}],{last}]')


_EDGE: Final = '{"parent":"%s","child":"%s","edge_type":"%s"}'
_NAMES: Final = ["", *EDGE_NAMES.values()]
