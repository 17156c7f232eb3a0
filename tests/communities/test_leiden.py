"""The Leiden algorithm on graphs whose communities are known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from drillcore_server.communities.find.neighbour_graph import NONE, groups, numbered, partition, similarity_graph
from drillcore_server.communities.find.process import Figures
from drillcore_server.communities.find.worker import find_communities
from drillcore_server.communities.settings import CommunitySettings, Parameters

Rows = npt.NDArray[np.float32]


def planted(sizes: list[int], seed: int = 3) -> tuple[Rows, npt.NDArray[np.int64]]:
    """Shuffled rows around a direction for each size, and for each row the number of its direction."""
    random = np.random.default_rng(seed)
    belongs = random.permutation(np.repeat(np.arange(len(sizes)), sizes))
    rows = 4.0 * np.eye(len(sizes), 32)[belongs] + random.standard_normal((len(belongs), 32)) * 0.5
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), belongs


def found(rows: Rows, **changes: object) -> npt.NDArray[np.int32]:
    return find_communities(rows, Parameters(**changes), Figures())  # type: ignore[arg-type]


def as_sets(communities: npt.NDArray[np.int64] | npt.NDArray[np.int32]) -> set[frozenset[int]]:
    numbers = set(communities.tolist()) - {NONE}
    return {frozenset(np.flatnonzero(communities == number).tolist()) for number in numbers}


@pytest.mark.parametrize("exact_facts_max", [0, 150_000])
def test_planted_communities_are_found(exact_facts_max: int) -> None:
    rows, belongs = planted([40, 30, 20, 10, 5, 3])
    assert as_sets(found(rows, exact_facts_max=exact_facts_max)) == as_sets(belongs)


def test_the_same_rows_give_the_same_communities() -> None:
    random = np.random.default_rng(5)
    rows = random.standard_normal((1_500, 6))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    first = found(rows)
    assert len(as_sets(first)) > 3
    assert (found(rows) == first).all()


def test_communities_too_small_dissolve() -> None:
    rows, belongs = planted([20, 20, 20, 3, 2, 1])
    assert as_sets(found(rows)) == {group for group in as_sets(belongs) if len(group) >= 3}
    assert as_sets(found(rows, size_min=2)) == {group for group in as_sets(belongs) if len(group) >= 2}
    assert as_sets(found(rows, size_min=31)) == set()


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_rows_are_in_no_community(count: int) -> None:
    rows, _ = planted([count])
    assert found(rows).tolist() == [NONE] * count


@pytest.mark.parametrize("count", [3, 50, 5_000])
def test_equal_rows_are_one_community(count: int) -> None:
    rows = np.tile(np.eye(8, dtype=np.float32)[:1], (count, 1))
    assert found(rows).tolist() == [0] * count


def test_rows_far_from_all_others_are_in_no_community() -> None:
    assert found(np.eye(20, dtype=np.float32)).tolist() == [NONE] * 20


def test_a_higher_resolution_gives_more_communities() -> None:
    random = np.random.default_rng(7)
    rows = random.standard_normal((800, 5))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    assert len(as_sets(found(rows, resolution=4.0))) > len(as_sets(found(rows, resolution=0.5)))


def test_more_iterations_give_better_communities() -> None:
    rows = np.random.default_rng(1).standard_normal((300, 8))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    once, repeated = Figures(), Figures()
    find_communities(rows, Parameters(iterations=1), once)
    find_communities(rows, Parameters(), repeated)
    assert repeated.modularity > once.modularity + 0.01


def test_figures_report_edges_and_modularity() -> None:
    rows, belongs = planted([20, 20])
    figures = Figures()
    graph = similarity_graph(rows, Parameters(), figures)
    own = partition(graph, Parameters(), figures)
    begin = np.repeat(np.arange(len(rows)), np.diff(graph.starts))
    within = graph.weights[own[begin] == own[graph.ends]].sum() / graph.weights.sum()
    shares = [graph.weights[own[begin] == number].sum() / graph.weights.sum() for number in (0, 1)]
    assert figures.modularity == pytest.approx(within - sum(share**2 for share in shares))
    assert as_sets(own) == as_sets(belongs)


def test_an_edge_is_listed_once_at_each_end_with_its_cosine() -> None:
    rows, _ = planted([12, 9])
    graph = similarity_graph(rows, Parameters(neighbours=4), Figures())
    begin = np.repeat(np.arange(len(rows)), np.diff(graph.starts)).tolist()
    edges = {
        (first, second): weight for first, second, weight in zip(begin, graph.ends.tolist(), graph.weights, strict=True)
    }
    assert len(edges) == 2 * graph.edges
    for (first, second), weight in edges.items():
        assert first != second
        assert edges[second, first] == weight
        assert weight == pytest.approx(float(rows[first] @ rows[second]), abs=2e-6)
    assert all(len([1 for first, _ in edges if first == row]) >= 4 for row in range(len(rows)))


def test_communities_are_numbered_in_the_order_of_their_first_rows() -> None:
    assert numbered(np.array([7, 7, 2, 7, 2, 9, 2]), 2).tolist() == [0, 0, 1, 0, 1, NONE, 1]


def test_groups_have_the_most_important_rows_first() -> None:
    communities = np.array([1, 0, 1, NONE, 0, 1, 2], np.int32)
    importances = np.array([0.2, 0.5, 0.9, 1.0, 0.5, 0.2, 0.1])
    assert [rows.tolist() for rows in groups(communities, importances, 2)] == [[1, 4], [2, 0, 5]]
    assert groups(np.full(4, NONE, np.int32), np.ones(4), 2) == []
    assert groups(np.empty(0, np.int32), np.empty(0), 2) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"neighbours": 0},
        {"similarity_min": 0.0},
        {"similarity_min": 1.1},
        {"resolution": 0.0},
        {"iterations": 0},
        {"size_min": 0},
        {"new_facts_min": 0},
        {"pause_s": -1.0},
        {"every_days": 0.0},
        {"check_every_s": 0.0},
        {"seed": -1},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CommunitySettings(**wrong)  # type: ignore[arg-type]
