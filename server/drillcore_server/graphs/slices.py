"""What bounds a slice, and what it prefers: budgets, weights and the order in which candidates are taken.

Deterministic slices of a graph: a bounded neighbourhood of an anchor, best candidates first, with a fingerprint.

Ids are 16 bytes here, in the order of UUIDs: they are compared and looked up very often.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, NamedTuple, Protocol
from uuid import UUID

import xxhash

from drillcore_proto.reasons import Reason
from drillcore_server.graphs.turn_model import EdgeType, Phase, Turn
from drillcore_server.kernel.errors import BadInput, Missing
from drillcore_server.storage.ids import CorpusId, Revision

POLICY: Final = "slice_policy_v1"
REFERENCE_POLICY: Final = "slice_policy_v1_ref"
"""Priorities in single precision, and ties to the higher id: as the reference code has them."""
POLICIES: Final = (POLICY, REFERENCE_POLICY)

NODES_MAX: Final = 10_000
RADIUS_MAX: Final = 1_000
SIBLINGS_MAX: Final = 1_000
WEIGHT_MAX: Final = 1_000.0
_MILLION: Final = 1_000_000
_INVERTED: Final = bytes(255 - byte for byte in range(256))

Rank = tuple[float, int, bytes]
"""Of a candidate: the least is taken first."""


def single(value: float) -> float:
    """The nearest number of single precision, which is what policies and saliences are made of."""
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
        """At the number of each phase."""
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
        """The id that fingerprints are made with. The compatible policy has the reference's, to give the same ones."""
        return POLICY

    def params(self) -> dict[str, object]:
        """What `params_hash` is made of: in this order, every number whole."""
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
        """Raises `BadInput` for a value that no slice can be made with."""
        if self.id not in POLICIES:
            raise _refused(f"there is no policy of this id; there are {' and '.join(POLICIES)}", "policy_id")
        _check_between("max_nodes", self.max_nodes, 1, NODES_MAX)
        _check_between("max_radius", self.max_radius, 0, RADIUS_MAX)
        _check_between("max_siblings_per_node", self.max_siblings_per_node, 0, SIBLINGS_MAX)
        _check_between("distance_decay", self.distance_decay, 0, 1)
        _check_between("salience_weight", self.salience_weight, 0, WEIGHT_MAX)
        for phase in Phase:
            _check_between("phase_weights", getattr(self.phase_weights, phase.name.lower()), 0, WEIGHT_MAX)

    def ranking(self) -> Callable[[int, float, int, bytes], Rank]:
        """Ranks candidates, each given by phase, salience, distance and id."""
        return self._as_in_the_reference() if self.id == REFERENCE_POLICY else self._in_whole_millionths()

    def _in_whole_millionths(self) -> Callable[[int, float, int, bytes], Rank]:
        weights, salience_weight = self.phase_weights.by_phase(), self.salience_weight
        decays = _powers(self.distance_decay, self.max_radius)

        def rank(phase: int, salience: float, distance: int, node: bytes) -> Rank:
            priority = round((weights[phase] + salience * salience_weight) * decays[distance] * _MILLION)
            return -priority, distance, node

        return rank

    def _as_in_the_reference(self) -> Callable[[int, float, int, bytes], Rank]:
        """Its heap gives the greatest first, and so the higher of two ids."""
        weights, salience_weight = self.phase_weights.by_phase(), self.salience_weight
        decays = [_single_power(self.distance_decay, distance) for distance in range(self.max_radius + 1)]

        def rank(phase: int, salience: float, distance: int, node: bytes) -> Rank:
            base = single(weights[phase] + single(salience * salience_weight))
            return -single(base * decays[distance]), distance, node.translate(_INVERTED)

        return rank


def _powers(base: float, last: int) -> list[float]:
    """By multiplying, which every machine does alike."""
    found = [1.0]
    for _ in range(last):
        found.append(found[-1] * base)
    return found


def _single_power(base: float, exponent: int) -> float:
    """As compilers raise to a whole power: by squaring, each product rounded."""
    result = 1.0
    while True:
        if exponent & 1:
            result = single(result * base)
        exponent >>= 1
        if not exponent:
            return result
        base = single(base * base)


def _millionths(value: float) -> int:
    """Halves up, as the reference rounds them. Nothing is below zero, and of single precision the product is exact."""
    return math.floor(value * _MILLION + 0.5)


def _check_between(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:  # a NaN is not either
        raise _refused(f"{name} is from {least:g} to {most:g}", name)


def _refused(message: str, name: str) -> BadInput:
    return BadInput(Reason.INVALID_ARGUMENT, message, field=name)


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
