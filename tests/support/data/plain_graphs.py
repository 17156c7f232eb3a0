"""A graph in plain dictionaries, and its slices made in the most literal way: the standard for the server's slices."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple
from uuid import UUID

from drillcore_server.graphs.slice_model import Policy, SliceEdge, most_salient
from drillcore_server.graphs.turn_model import EdgeType, Phase


class PlainNode(NamedTuple):
    phase: Phase
    salience: float
    kind: str = "turn"


class PlainGraph:
    """A `slice_model.Graph`."""

    def __init__(self, nodes: dict[bytes, PlainNode], edges: Iterable[SliceEdge]) -> None:
        self.nodes = nodes
        self.all_edges = sorted(edges)

    def node(self, node: bytes) -> PlainNode | None:
        return self.nodes.get(node)

    def parents(self, node: bytes) -> list[bytes]:
        return sorted({edge.parent for edge in self.all_edges if edge.child == node})

    def children(self, node: bytes) -> list[bytes]:
        return sorted({edge.child for edge in self.all_edges if edge.parent == node})

    def siblings(self, node: bytes, limit: int) -> list[bytes]:
        found = {child for parent in self.parents(node) for child in self.children(parent)}
        return most_salient(self, found - {node}, limit)

    def edges(self, nodes: Collection[bytes]) -> Iterator[SliceEdge]:
        return (edge for edge in self.all_edges if edge.parent in nodes and edge.child in nodes)


def node_id(number: int) -> bytes:
    return UUID(int=number).bytes


def graph_of(nodes: dict[int, tuple[Phase, float]], edges: Iterable[tuple[int, int, EdgeType]]) -> PlainGraph:
    made = {node_id(number): PlainNode(*node) for number, node in nodes.items()}
    return PlainGraph(made, (SliceEdge(node_id(parent), node_id(child), kind) for parent, child, kind in edges))


def plain_slice(graph: PlainGraph, anchor: bytes, policy: Policy) -> dict[bytes, int]:
    """The nodes of a slice by `slice_policy_v1` with their distances, found by looking at all candidates each time."""
    waiting, taken = {anchor: 0}, dict[bytes, int]()
    while waiting and len(taken) < policy.max_nodes:
        best = min(waiting, key=lambda node: _place(graph, policy, node, waiting[node]))
        distance = taken[best] = waiting.pop(best)
        if distance == policy.max_radius:
            continue
        near = [*graph.parents(best), *graph.children(best)]
        beside = graph.siblings(best, policy.max_siblings_per_node) if policy.include_siblings else []
        for found, reached in [*((node, distance + 1) for node in near), *((node, distance) for node in beside)]:
            if found not in taken and found not in waiting:
                waiting[found] = reached
    return taken


def _place(graph: PlainGraph, policy: Policy, node: bytes, distance: int) -> tuple[int, int, bytes]:
    told = graph.nodes[node]
    decay = 1.0
    for _ in range(distance):
        decay *= policy.distance_decay
    weight = getattr(policy.phase_weights, told.phase.name.lower()) + told.salience * policy.salience_weight
    return -round(weight * decay * 1_000_000), distance, node
