"""Nearest neighbours against a plain comparison of every two rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from drillcore_server.communities.find import nearest
from drillcore_server.communities.find.nearest import NOBODY, ONE, Neighbours, approximate_neighbours, exact_neighbours
from drillcore_server.communities.find.process import Figures

Rows = npt.NDArray[np.float32]
Find = Callable[[Rows, int, float, Figures], Neighbours]


def unit(rows: npt.NDArray[np.float64]) -> Rows:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def clustered(count: int, seed: int = 1, clusters: int = 12, spread: float = 0.6) -> Rows:
    random = np.random.default_rng(seed)
    centres = random.standard_normal((clusters, 24))
    return unit(centres[random.integers(clusters, size=count)] + spread * random.standard_normal((count, 24)))


def plain(rows: Rows, count: int, least: float) -> list[list[tuple[int, int]]]:
    """For each row its neighbours and their cosines in millionths, computed pair by pair."""
    wide = rows.astype(np.float64)
    found = []
    for row, vector in enumerate(wide):
        cosines = [min(round(float(vector @ neighbour) * ONE), ONE) for neighbour in wide]
        near = [place for place, cosine in enumerate(cosines) if place != row and cosine >= round(least * ONE)]
        near.sort(key=lambda place, cosines=cosines: (-cosines[place], place))  # type: ignore[misc]
        found.append([(place, cosines[place]) for place in near[:count]])
    return found


def listed(found: Neighbours) -> list[list[tuple[int, int]]]:
    return [
        [(int(place), int(cosine)) for place, cosine in zip(places, cosines, strict=True) if place != NOBODY]
        for places, cosines in zip(found.places, found.cosines, strict=True)
    ]


def assert_near(found: Neighbours, expected: list[list[tuple[int, int]]]) -> None:
    """Ignores the last digit of a cosine, and so the order of neighbours that are equally near."""
    for ours, theirs in zip(listed(found), expected, strict=True):
        assert [cosine for _, cosine in ours] == pytest.approx([cosine for _, cosine in theirs], abs=1)
        clear = [place for place, cosine in theirs if cosine > theirs[-1][1] + 2]
        assert set(clear) <= {place for place, _ in ours}


@pytest.mark.parametrize("find", [exact_neighbours, approximate_neighbours])
@pytest.mark.parametrize("least", [0.6, 0.9])
def test_neighbours_are_those_of_a_plain_comparison(find: Find, least: float) -> None:
    rows = clustered(250)
    assert_near(find(rows, 20, least, Figures()), plain(rows, 20, least))


@pytest.mark.parametrize("spread", [0.2, 1.5])
def test_block_size_and_waiting_pairs_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch, spread: float) -> None:
    """With small blocks and frequent picking, both where nearly all rows are near and where few are."""
    rows = clustered(200, clusters=3, spread=spread)
    whole = exact_neighbours(rows, 7, 0.3, Figures())
    for name, value in (("_BAND_MIN", 3), ("_BAND_MAX", 20), ("_COLUMNS", 17), ("_WAITING_MAX", 50)):
        monkeypatch.setattr(nearest, name, value)
    assert_near(exact_neighbours(rows, 7, 0.3, Figures()), listed(whole))
    assert_near(exact_neighbours(rows, 7, 0.3, Figures()), plain(rows, 7, 0.3))


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_few_rows_have_the_neighbours_there_are(count: int) -> None:
    rows = np.tile(np.array([[0.6, 0.8]], np.float32), (count, 1))
    found = exact_neighbours(rows, 20, 0.6, Figures())
    assert listed(found) == [[(place, ONE) for place in range(count) if place != row] for row in range(count)]


def test_the_first_of_equal_rows_are_the_nearest() -> None:
    rows = np.tile(np.eye(2, dtype=np.float32)[:1], (3_000, 1))
    found = exact_neighbours(rows, 4, 0.6, Figures())
    assert found.places[0].tolist() == [1, 2, 3, 4]
    assert found.places[2].tolist() == [0, 1, 3, 4]
    assert (found.places[5:] == [0, 1, 2, 3]).all()
    assert (found.cosines == ONE).all()


def test_an_index_of_equal_rows_finds_neighbours_too() -> None:
    rows = np.tile(np.eye(2, dtype=np.float32)[:1], (2_000, 1))
    found = approximate_neighbours(rows, 4, 0.6, Figures())
    assert (found.cosines[:, 0] == ONE).all()
    assert (found.places != np.arange(2_000)[:, np.newaxis]).all()


def test_the_threshold_itself_is_near_enough() -> None:
    rows = np.array([[1.0, 0.0], [0.6, 0.8], [0.599_9, np.sqrt(1 - 0.599_9**2)]], np.float32)
    assert listed(exact_neighbours(rows, 20, 0.6, Figures()))[0] == [(1, 600_000)]
