"""The stored form of vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.cores.imports.graph_records import stored_vector
from drillcore_server.cores.writer.core_records import halves
from drillcore_server.vectors.stored_vectors import as_stored, dimensions_of, packed, size_bytes, unpacked

MODELS = (3, 64, 256, 384, 1_536, 4_096)

numbers = st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=40).filter(any)


def random_units(count: int, dimensions: int) -> np.ndarray:
    rows = np.random.default_rng(dimensions).standard_normal((count, dimensions))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@given(numbers)
def test_a_stored_vector_that_is_read_and_packed_again_keeps_its_bytes(vector: list[float]) -> None:
    stored = packed(vector)
    assert packed(unpacked(stored)) == stored
    assert packed(unpacked(stored).tolist()) == stored


@given(numbers)
def test_a_stored_vector_has_length_1_when_it_is_read(vector: list[float]) -> None:
    assert np.linalg.norm(unpacked(packed(vector)).astype(np.float64)) == pytest.approx(1, abs=2e-7)


@given(numbers)
def test_the_numbers_of_a_core_give_the_stored_bytes_again(vector: list[float]) -> None:
    stored = packed(vector)
    assert stored_vector(halves(stored)) == stored


@pytest.mark.parametrize("dimensions", MODELS)
def test_long_vectors_keep_their_bytes_too(dimensions: int) -> None:
    for vector in random_units(20, dimensions):
        stored = packed(vector)
        assert (len(stored), dimensions_of(stored)) == (size_bytes(dimensions), dimensions)
        assert packed(unpacked(stored)) == stored == stored_vector(halves(stored))


@pytest.mark.parametrize("dimensions", MODELS)
def test_storing_a_vector_hardly_turns_it(dimensions: int) -> None:
    for vector in random_units(20, dimensions):
        assert float(unpacked(packed(vector)) @ vector) > 0.9999


def test_only_the_direction_counts() -> None:
    vector = random_units(1, 256)[0]
    assert packed(vector) == packed(vector * 1e-30) == packed(vector.astype(np.float64) * 1e30)


def test_a_vector_gets_the_same_bits_alone_and_among_others() -> None:
    rows = random_units(50, 256)
    together = as_stored(rows)
    assert all(np.array_equal(unpacked(packed(row)), found) for row, found in zip(rows, together, strict=True))


def test_a_vector_without_a_direction_cannot_be_stored() -> None:
    with pytest.raises(AssertionError, match="direction"):
        packed([0.0, 0.0])
