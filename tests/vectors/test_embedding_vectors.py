"""Vectors from clients and models, and vectors in the cache."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.vectors.embedding.embedders import ModelUnusable, VectorProblem, VectorRefused, Vectors
from drillcore_server.vectors.embedding.unit_vectors import (
    checked_vector,
    checked_vectors,
    pack,
    unit_rows,
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


def test_a_wrong_length_is_refused_with_the_right_length() -> None:
    with pytest.raises(VectorRefused, match="2 components, not 3"):
        checked_vector([1.0, 2.0], 3)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=40).filter(any))
def test_every_finite_nonzero_vector_is_scaled_to_length_one(values: list[float]) -> None:
    unit = checked_vector(values, len(values))
    assert unit.dtype == np.float32
    assert math.isclose(float(np.linalg.norm(unit.astype(np.float64))), 1, abs_tol=3e-7)


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40).filter(any))
def test_sending_back_a_vector_that_was_read_changes_no_bit(values: list[float]) -> None:
    once = checked_vector(values, len(values))
    assert checked_vector(once.tolist(), len(values)).tobytes() == once.tobytes()


def test_scaling_keeps_the_direction() -> None:
    np.testing.assert_allclose(checked_vector([3, 0, -4], 3), [0.6, 0, -0.8], rtol=1e-7)


@pytest.mark.parametrize("bad", [0.0, math.nan, math.inf])
def test_a_model_that_gives_zeros_or_nan_is_unusable(bad: float) -> None:
    with pytest.raises(ModelUnusable):
        unit_rows(np.full((1, 4), bad, np.float32))


def test_full_precision_is_packed_little_endian_and_comes_back_bit_for_bit() -> None:
    assert pack(np.array([1.0, -0.5], np.float32)).hex() == "0000803f000000bf"
    rows = unit_vectors(20)
    assert unpack_many([pack(row) for row in rows], 256).tobytes() == rows.tobytes()


@pytest.mark.parametrize("data", [b"", b"\0" * 1023, b"\0" * 1028, b"\0" * 512])
def test_a_packed_vector_of_the_wrong_size_is_damage(data: bytes) -> None:
    with pytest.raises(ValueError, match="bytes, not 1024"):
        unpack_many([data], 256)


def test_empty_bytes_unpack_to_no_rows() -> None:
    assert unpack_many([], 256).shape == (0, 256)
    assert checked_vectors([], 256).shape == (0, 256)
