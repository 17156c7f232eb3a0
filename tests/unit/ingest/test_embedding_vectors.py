"""Vectors from clients, in storage, and in comparison."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.ingest.embedding.errors import ModelUnusable, VectorProblem, VectorRefused
from drillcore_server.ingest.embedding.ports import Vectors
from drillcore_server.ingest.embedding.vectors import (
    Hit,
    Precision,
    checked_vector,
    checked_vectors,
    pack,
    top_k,
    unit_rows,
    unpack,
    unpack_many,
)


def unit_vectors(count: int, dimensions: int = 256, seed: int = 1) -> Vectors:
    return unit_rows(np.random.default_rng(seed).standard_normal((count, dimensions)).astype(np.float32))


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([1.0, math.nan, 0.0], VectorProblem.NOT_FINITE),
        ([1.0, math.inf, 0.0], VectorProblem.NOT_FINITE),
        ([1.0, -math.inf, 0.0], VectorProblem.NOT_FINITE),
        ([0.0, 0.0, -0.0], VectorProblem.ZERO),
        ([1.0, 2.0], VectorProblem.WRONG_LENGTH),
        ([1.0, 2.0, 3.0, 4.0], VectorProblem.WRONG_LENGTH),
        ([], VectorProblem.WRONG_LENGTH),
        ([[1.0, 2.0, 3.0]], VectorProblem.NOT_NUMBERS),
        ([1.0, [2.0], 3.0], VectorProblem.NOT_NUMBERS),
        (["1", "2", "3"], VectorProblem.NOT_NUMBERS),
        ([1.0, None, 3.0], VectorProblem.NOT_NUMBERS),
        ([True, False, True], VectorProblem.NOT_NUMBERS),
        ([1j, 2.0, 3.0], VectorProblem.NOT_NUMBERS),
    ],
)
def test_a_vector_that_cannot_be_used_is_refused_with_its_position(values: Any, problem: VectorProblem) -> None:
    with pytest.raises(VectorRefused) as refused:
        checked_vectors([[1.0, 0.0, 0.0], values], 3)
    assert (refused.value.problem, refused.value.position) == (problem, 1)


def test_a_wrong_length_is_told_with_the_right_one() -> None:
    with pytest.raises(VectorRefused, match="2 components, not 3"):
        checked_vector([1.0, 2.0], 3)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=40).filter(any))
def test_every_finite_nonzero_vector_becomes_one_of_length_one(values: list[float]) -> None:
    unit = checked_vector(values, len(values))
    assert unit.dtype == np.float32
    assert math.isclose(float(np.linalg.norm(unit.astype(np.float64))), 1, abs_tol=3e-7)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40).filter(any))
def test_sending_back_what_was_read_changes_no_bit(values: list[float]) -> None:
    once = checked_vector(values, len(values))
    assert checked_vector(once.tolist(), len(values)).tobytes() == once.tobytes()


def test_the_direction_stays() -> None:
    np.testing.assert_allclose(checked_vector([3, 0, -4], 3), [0.6, 0, -0.8], rtol=1e-7)


@pytest.mark.parametrize("bad", [0.0, math.nan, math.inf])
def test_a_model_that_gives_zeros_or_nan_is_unusable(bad: float) -> None:
    with pytest.raises(ModelUnusable):
        unit_rows(np.full((1, 4), bad, np.float32))


def test_full_precision_is_packed_little_endian_and_comes_back_bit_for_bit() -> None:
    assert pack(np.array([1.0, -0.5], np.float32)).hex() == "0000803f000000bf"
    rows = unit_vectors(20)
    assert unpack_many([pack(row) for row in rows], 256).tobytes() == rows.tobytes()


def test_half_precision_halves_the_bytes_and_moves_no_cosine_by_a_thousandth() -> None:
    rows = unit_vectors(300)
    packed = [pack(row, Precision.FLOAT16) for row in rows]
    halves = unpack_many(packed, 256, Precision.FLOAT16)
    assert {len(data) for data in packed} == {512}
    np.testing.assert_allclose(np.linalg.norm(halves, axis=1), 1, atol=1e-6)
    error = np.abs(rows @ rows.T - halves @ halves.T).max()
    assert 0 < error < 3e-4  # measured 1e-4


@pytest.mark.parametrize("data", [b"", b"\0" * 1023, b"\0" * 1028, b"\0" * 512])
def test_a_packed_vector_of_the_wrong_size_is_damage(data: bytes) -> None:
    with pytest.raises(ValueError, match="bytes, not 1024"):
        unpack(data, 256)


def test_nothing_packed_is_no_rows() -> None:
    assert unpack_many([], 256).shape == (0, 256)
    assert checked_vectors([], 256).shape == (0, 256)


def test_top_k_is_what_sorting_all_scores_in_double_precision_gives() -> None:
    rows, query = unit_vectors(2_000, 64), unit_vectors(1, 64, seed=2)[0]
    scores = (rows.astype(np.float64) * query).sum(axis=1)
    steps = [round(score * 1e6) for score in scores.tolist()]
    expected = [Hit(row, steps[row] / 1e6) for row in sorted(range(2_000), key=lambda row: (-steps[row], row))]
    for k in (1, 10, 1_999, 2_000, 5_000):
        assert top_k(query, range(2_000), rows, k) == expected[:k]


def test_equal_vectors_are_ranked_by_id_whatever_their_order() -> None:
    """A fast matrix product rounds by a row's place, so equal rows could differ in their last bits."""
    query, distinct = unit_vectors(1)[0], unit_vectors(30, seed=3)
    ids = [UUID(int=number) for number in range(300)]
    rows = np.concatenate([distinct] * 10)
    expected = top_k(query, ids, rows, 45)
    order = list(range(300))
    random.Random(4).shuffle(order)
    assert top_k(query, [ids[row] for row in order], rows[order], 45) == expected
    assert all(a.score > b.score or a.id < b.id for a, b in itertools.pairwise(expected))


def test_scores_closer_than_a_millionth_are_a_tie() -> None:
    query = checked_vector([1.0, 0.0], 2)
    rows = checked_vectors([[1.0, 0.0008], [1.0, 0.0], [1.0, 0.01]], 2)
    assert rows[0] @ query < rows[1] @ query
    assert top_k(query, ["a", "b", "c"], rows, 3) == [Hit("a", 1.0), Hit("b", 1.0), Hit("c", 0.99995)]
    assert top_k(query, ["a", "b", "c"], rows, 1) == [Hit("a", 1.0)]


def test_opposites_score_minus_one() -> None:
    query = checked_vector([0.0, 2.0], 2)
    assert top_k(query, [1], -query[np.newaxis], 1) == [Hit(1, -1.0)]


def test_nothing_wanted_or_nothing_there_is_no_hits() -> None:
    rows = unit_vectors(3)
    assert top_k(rows[0], [1, 2, 3], rows, 0) == []
    assert top_k(rows[0], [], rows[:0], 5) == []


def test_ids_and_vectors_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="2 ids for 3 vectors"):
        top_k(unit_vectors(1)[0], [1, 2], unit_vectors(3), 1)
