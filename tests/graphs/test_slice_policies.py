"""Slices: the fingerprints of the reference, preferences, ties, and the limits of a policy."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from typing import Any

import pytest

from drillcore_proto.reasons import Reason
from drillcore_server.graphs.slice_model import SCHEMA_VERSION, PhaseWeights, Policy, Slice, single, slice_graph
from drillcore_server.graphs.turn_model import EdgeType, Phase
from drillcore_server.kernel.errors import BadInput, Missing
from tests.support.data.plain_graphs import PlainGraph, graph_of, node_id

REPLY, BRANCH, REFERENCE, DEFAULT = EdgeType
GOLDEN = graph_of(
    dict.fromkeys(range(1, 7), (Phase.EXPLORATION, 0.5)),
    [(1, 2, REPLY), (1, 3, BRANCH), (1, 4, BRANCH), (2, 5, REPLY), (2, 6, REPLY)],
)
REFERENCE_POLICY = Policy("slice_policy_v1_ref")


def star(leaves: int, salience: float = 0.5) -> PlainGraph:
    """A turn with many equal answers."""
    nodes = dict.fromkeys(range(leaves + 1), (Phase.PLANNING, salience))
    return graph_of(nodes, [(0, number, REPLY) for number in range(1, leaves + 1)])


def taken(found: Slice) -> set[int]:
    return {int.from_bytes(node.id, "big") for node in found.nodes}


def test_the_golden_vectors_of_the_reference() -> None:
    found = slice_graph(GOLDEN, node_id(1), Policy())
    assert (found.params_hash, found.slice_id) == ("02005444cae1117d", "5d90b92e253778cf")
    assert Policy(max_nodes=3).params_hash() == "72097b33b768458d"
    assert SCHEMA_VERSION == "1.0.0"


def test_halves_of_a_millionth_are_rounded_up_as_the_reference_does() -> None:
    """1/128 is 7812.5 millionths. Rust rounds halves away from zero, Python to the even number."""
    assert Policy(salience_weight=1 / 128).params()["salience_weight"] == 7_813
    assert Policy(distance_decay=3 / 128).params()["distance_decay"] == 23_438


def test_the_compatible_policy_gives_the_fingerprints_of_the_reference() -> None:
    found = slice_graph(GOLDEN, node_id(1), REFERENCE_POLICY)
    assert (found.params_hash, found.slice_id) == ("02005444cae1117d", "5d90b92e253778cf")


def test_a_hundred_runs_give_the_same_slice() -> None:
    for policy in (Policy(max_nodes=4), REFERENCE_POLICY):
        assert len({slice_graph(GOLDEN, node_id(1), policy) for _ in range(100)}) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"max_nodes": 5},
        {"max_radius": 9},
        {"phase_weights": PhaseWeights(planning=0.8)},
        {"salience_weight": 0.2},
        {"distance_decay": 0.8},
        {"include_siblings": False},
        {"max_siblings_per_node": 4},
    ],
    ids=str,
)
def test_every_parameter_changes_the_slice_id(changed: dict[str, Any]) -> None:
    policy = replace(Policy(), **changed)
    assert policy.params_hash() != Policy().params_hash()
    assert slice_graph(GOLDEN, node_id(1), policy).slice_id != slice_graph(GOLDEN, node_id(1), Policy()).slice_id


def test_the_anchor_and_the_types_of_edges_change_the_slice_id() -> None:
    different = graph_of({1: (Phase.PLANNING, 0.5), 2: (Phase.PLANNING, 0.5)}, [(1, 2, BRANCH)])
    same = graph_of({1: (Phase.PLANNING, 0.5), 2: (Phase.PLANNING, 0.5)}, [(1, 2, REPLY)])
    ids = {slice_graph(graph, node_id(anchor), Policy()).slice_id for graph in (different, same) for anchor in (1, 2)}
    assert len(ids) == 4


def test_ties_go_to_the_lower_id_but_in_the_reference_to_the_higher() -> None:
    graph = star(10)
    assert taken(slice_graph(graph, node_id(0), Policy(max_nodes=4))) == {0, 1, 2, 3}
    assert taken(slice_graph(graph, node_id(0), replace(REFERENCE_POLICY, max_nodes=4))) == {0, 8, 9, 10}


def test_priorities_closer_than_a_millionth_are_equal() -> None:
    nodes = {0: (Phase.PLANNING, 0.5), 1: (Phase.PLANNING, 0.5), 2: (Phase.PLANNING, 0.5 + 1e-6)}
    graph = graph_of(nodes, [(0, 1, REPLY), (0, 2, REPLY)])
    assert taken(slice_graph(graph, node_id(0), Policy(max_nodes=2))) == {0, 1}
    assert taken(slice_graph(graph, node_id(0), replace(REFERENCE_POLICY, max_nodes=2))) == {0, 2}


def test_phases_come_before_salience_and_both_before_ids() -> None:
    nodes = {
        0: (Phase.EXPLORATION, 0.0),
        1: (Phase.EXPLORATION, 1.0),
        2: (Phase.SYNTHESIS, 0.0),
        3: (Phase.SYNTHESIS, 0.1),
    }
    graph = graph_of(nodes, [(0, number, REPLY) for number in (1, 2, 3)])
    found = [taken(slice_graph(graph, node_id(0), Policy(max_nodes=size))) for size in (2, 3, 4)]
    assert found == [{0, 3}, {0, 2, 3}, {0, 1, 2, 3}]


def test_distance_decays_priority() -> None:
    nodes = dict.fromkeys(range(5), (Phase.PLANNING, 0.5))
    graph = graph_of(nodes, [(0, 4, REPLY), (4, 1, REPLY), (0, 3, REPLY)])
    assert taken(slice_graph(graph, node_id(0), Policy(max_nodes=3))) == {0, 3, 4}


@pytest.mark.parametrize("policy", [Policy(), REFERENCE_POLICY], ids=lambda policy: policy.id)
@pytest.mark.parametrize("farther", [1, 9])
def test_the_nearer_of_two_equal_nodes_comes_first_whatever_their_ids(policy: Policy, farther: int) -> None:
    nodes = dict.fromkeys([0, 3, farther], (Phase.PLANNING, 0.5)) | {5: (Phase.SYNTHESIS, 0.5)}
    graph = graph_of(nodes, [(0, 5, REPLY), (0, 3, REPLY), (5, farther, REPLY)])
    flat = replace(policy, max_nodes=3, distance_decay=1.0)
    assert taken(slice_graph(graph, node_id(0), flat)) == {0, 3, 5}


def test_the_radius_bounds_a_slice() -> None:
    chain = graph_of(dict.fromkeys(range(8), (Phase.PLANNING, 0.5)), [(n, n + 1, REPLY) for n in range(7)])
    for radius in range(7):
        found = slice_graph(chain, node_id(0), Policy(max_radius=radius))
        assert taken(found) == set(range(radius + 1))
        assert [node.distance for node in found.nodes] == list(range(radius + 1))


def test_siblings_have_the_distance_of_the_node_beside_them() -> None:
    graph = star(10)
    found = slice_graph(graph, node_id(7), Policy(max_radius=1, max_siblings_per_node=3))
    distances = {int.from_bytes(node.id, "big"): node.distance for node in found.nodes}
    assert distances[0] == 1, "the parent is at distance 1"
    assert {distances[number] for number in (7, 1, 2, 3)} == {0}
    for policy in (Policy(max_radius=1, include_siblings=False), Policy(max_radius=1, max_siblings_per_node=0)):
        assert taken(slice_graph(graph, node_id(7), policy)) == {0, 7}


@pytest.mark.parametrize("policy", [Policy(), REFERENCE_POLICY], ids=lambda policy: policy.id)
def test_nodes_at_the_radius_add_no_nodes_not_even_siblings(policy: Policy) -> None:
    """The reference does the same: with a radius of 0 the slice is the anchor alone."""
    graph = star(10)
    assert taken(slice_graph(graph, node_id(7), replace(policy, max_radius=0))) == {7}
    beside = graph_of(
        dict.fromkeys(range(5), (Phase.PLANNING, 0.5)), [(0, 1, REPLY), (1, 2, REPLY), (3, 2, REPLY), (3, 4, REPLY)]
    )
    assert taken(slice_graph(beside, node_id(1), replace(policy, max_radius=1))) == {0, 1, 2}, "4 stands beside 2"


def test_the_most_salient_siblings_come_first() -> None:
    nodes = {number: (Phase.PLANNING, number / 10) for number in range(10)}
    graph = graph_of(nodes, [(0, number, REPLY) for number in range(1, 10)])
    assert graph.siblings(node_id(5), 3) == [node_id(9), node_id(8), node_id(7)]


def test_a_missing_anchor_is_named() -> None:
    with pytest.raises(Missing, match="00000000-0000-0000-0000-000000000063") as caught:
        slice_graph(GOLDEN, node_id(99), Policy())
    assert caught.value.reason is Reason.ANCHOR_NOT_FOUND
    assert caught.value.details["anchor"] == "00000000-0000-0000-0000-000000000063"


def test_a_cycle_is_sliced_once() -> None:
    graph = graph_of(dict.fromkeys(range(3), (Phase.PLANNING, 0.5)), [(0, 1, REPLY), (1, 2, REPLY), (2, 0, REPLY)])
    assert taken(slice_graph(graph, node_id(0), Policy())) == {0, 1, 2}


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"id": "slice_policy_v2"}, "policy_id"),
        ({"max_nodes": 0}, "max_nodes"),
        ({"max_nodes": 10_001}, "max_nodes"),
        ({"max_radius": 1_001}, "max_radius"),
        ({"max_siblings_per_node": 1_001}, "max_siblings_per_node"),
        ({"distance_decay": 1.5}, "distance_decay"),
        ({"distance_decay": math.nan}, "distance_decay"),
        ({"salience_weight": -0.1}, "salience_weight"),
        ({"salience_weight": math.inf}, "salience_weight"),
        ({"phase_weights": PhaseWeights(debugging=math.nan)}, "phase_weights"),
    ],
    ids=str,
)
def test_an_invalid_policy_is_refused(changed: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as caught:
        replace(Policy(), **changed).check()
    assert caught.value.details["field"] == field


def test_priorities_of_the_reference_are_computed_in_single_precision() -> None:
    """(0.6 + 0.7 x 0.3) x 0.9^5, with each step rounded to 32 bits and the power computed by squaring."""
    rank = REFERENCE_POLICY.ranking()
    base = single(single(0.6) + single(single(0.7) * single(0.3)))
    square = single(single(0.9) * single(0.9))
    expected = single(base * single(single(0.9) * single(square * square)))
    assert rank(Phase.CONSOLIDATION, single(0.7), 5, node_id(1))[0] == -expected
    assert struct.unpack("<f", struct.pack("<f", expected))[0] == expected
