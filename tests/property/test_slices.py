"""The four invariants of slices, for any graph and any policy; and every way to hold a graph gives the same slices."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from drillcore_server.graphs.slice_model import (
    POLICIES,
    POLICY,
    PhaseWeights,
    Policy,
    Slice,
    SliceEdge,
    single,
    slice_graph,
)
from drillcore_server.graphs.turn_graph import TurnGraph, TurnNode
from drillcore_server.graphs.turn_model import EdgeType, Phase, Trajectory, Turn, TurnRole
from drillcore_server.graphs.turn_store import TURN
from drillcore_server.storage.ids import TurnId
from drillcore_server.vectors.corpus_follower import Sharded
from tests.support.data.plain_graphs import PlainGraph, graph_of, node_id, plain_slice

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NUMBERS = st.integers(1, 14)
SALIENCES = st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]).map(single)
NODES = st.lists(st.tuples(st.sampled_from(Phase), SALIENCES), min_size=1, max_size=14)
MANY = st.lists(st.tuples(st.sampled_from(Phase), SALIENCES), min_size=8, max_size=14)
EDGES = st.lists(st.tuples(NUMBERS, NUMBERS, st.sampled_from(EdgeType)), min_size=4, max_size=30)
WEIGHTS = st.sampled_from([0.0, 0.3, 0.6, 1.0]).map(single)
POLICIES_DRAWN = st.builds(
    Policy,
    id=st.sampled_from(POLICIES),
    max_nodes=st.integers(1, 10) | st.just(16),
    max_radius=st.integers(0, 5),
    phase_weights=st.builds(PhaseWeights, WEIGHTS, WEIGHTS, WEIGHTS, WEIGHTS, WEIGHTS),
    salience_weight=WEIGHTS,
    distance_decay=WEIGHTS,
    include_siblings=st.booleans(),
    max_siblings_per_node=st.integers(0, 6),
)


@st.composite
def graphs(draw: st.DrawFn) -> PlainGraph:
    """A graph whose edges all join existing nodes, so that nodes get siblings and several parents."""
    nodes = dict(enumerate(draw(NODES | MANY)))
    drawn = {(parent % len(nodes), child % len(nodes), kind) for parent, child, kind in draw(EDGES)}
    return graph_of(nodes, {edge for edge in drawn if edge[0] != edge[1]})


def kept(graph: PlainGraph) -> TurnGraph:
    """The same graph as the server holds it in memory."""
    return TurnGraph(Sharded.of({node: turn_node(graph, node) for node in graph.nodes}))


def turn_node(graph: PlainGraph, node: bytes) -> TurnNode:
    told = graph.nodes[node]
    turn = Turn(TurnId(UUID(bytes=node)), "talk", TurnRole.USER, told.phase, told.salience, Trajectory(), AT)
    incoming = tuple((edge.parent, int(edge.type)) for edge in graph.all_edges if edge.child == node)
    return TurnNode(node, told.phase, told.salience, TURN.encode(turn), incoming, graph.children(node))


def anchor_of(graph: PlainGraph, number: int) -> bytes:
    return sorted(graph.nodes)[number % len(graph.nodes)]


def assert_invariants(found: Slice, anchor: bytes, policy: Policy) -> None:
    ids = [node.id for node in found.nodes]
    assert anchor in ids
    assert len(ids) <= policy.max_nodes
    assert ids == sorted(set(ids))
    assert list(found.edges) == sorted(set(found.edges))
    assert all(edge.parent in ids and edge.child in ids for edge in found.edges)
    assert all(node.distance <= policy.max_radius for node in found.nodes)


@given(graphs(), NUMBERS, POLICIES_DRAWN)
def test_every_slice_is_deterministic_and_keeps_anchor_budget_and_order(
    graph: PlainGraph, number: int, policy: Policy
) -> None:
    anchor = anchor_of(graph, number)
    found = slice_graph(graph, anchor, policy)
    assert_invariants(found, anchor, policy)
    again = PlainGraph(dict(reversed(graph.nodes.items())), reversed(graph.all_edges))
    assert slice_graph(again, anchor, policy) == found


@given(graphs(), NUMBERS, POLICIES_DRAWN)
def test_the_graph_in_memory_gives_the_same_slices(graph: PlainGraph, number: int, policy: Policy) -> None:
    anchor = anchor_of(graph, number)
    assert slice_graph(kept(graph), anchor, policy) == slice_graph(graph, anchor, policy)


@settings(max_examples=300)
@given(graphs(), NUMBERS, POLICIES_DRAWN.map(lambda policy: replace(policy, id=POLICY)))
def test_slices_equal_those_of_an_exhaustive_search(graph: PlainGraph, number: int, policy: Policy) -> None:
    anchor = anchor_of(graph, number)
    found = slice_graph(graph, anchor, policy)
    assert {node.id: node.distance for node in found.nodes} == plain_slice(graph, anchor, policy)


@given(graphs(), NUMBERS, st.integers(1, 14))
def test_a_larger_budget_only_adds_nodes(graph: PlainGraph, number: int, size: int) -> None:
    anchor = anchor_of(graph, number)
    small, large = (slice_graph(graph, anchor, Policy(max_nodes=nodes)) for nodes in (size, size + 1))
    assert {node.id for node in small.nodes} <= {node.id for node in large.nodes}


@settings(max_examples=200)
@given(graphs(), graphs(), NUMBERS)
def test_a_graph_that_follows_changes_equals_a_fresh_one(before: PlainGraph, after: PlainGraph, number: int) -> None:
    """The feed names the changed turns, and the children of changed edges."""
    changed = {node for node in before.nodes.keys() | after.nodes.keys() if before.node(node) != after.node(node)}
    changed |= {edge.child for edge in set(before.all_edges) ^ set(after.all_edges)}
    start = kept(before)
    told = {node: turn_node(after, node) if node in after.nodes else None for node in changed}
    for found in told.values():
        if found is not None:
            found.children = ()  # a graph that follows changes does not know them
    followed = start.changed(told)
    anchor = anchor_of(after, number)
    assert slice_graph(followed, anchor, Policy()) == slice_graph(after, anchor, Policy())
    everything = {edge for node in after.nodes for edge in followed.edges([*after.nodes]) if edge.child == node}
    assert everything == set(after.all_edges)
    for node in after.nodes:
        assert list(followed.children(node)) == after.children(node)
        assert followed.siblings(node, 5) == after.siblings(node, 5)
    untouched = anchor_of(before, number)
    assert slice_graph(start, untouched, Policy()) == slice_graph(before, untouched, Policy())


def test_siblings_of_several_parents_are_in_order_and_each_once() -> None:
    nodes = {number: (Phase.PLANNING, number / 10) for number in range(1, 7)}
    edges = [(1, 3, EdgeType.REPLY), (2, 3, EdgeType.REPLY), (1, 4, EdgeType.REPLY), (2, 4, EdgeType.REPLY)]
    graph = kept(graph_of(nodes, [*edges, (2, 6, EdgeType.REPLY), (1, 5, EdgeType.REPLY)]))
    assert graph.siblings(node_id(3), 10) == [node_id(6), node_id(5), node_id(4)]
    assert SliceEdge(node_id(2), node_id(4), EdgeType.REPLY) in set(graph.edges([node_id(2), node_id(4)]))
