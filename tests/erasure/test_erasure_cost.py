"""Erasing a source costs what the source has, and not what the corpus has."""

from __future__ import annotations

from pathlib import Path

from benchmarks import erasure
from tests.support.round_trips.erasing import NOTHING_MADE_ANEW, erasure_costs

FURTHER_ROUND_TRIPS_MAX = 4
"""The sections that documents leave are made anew, from more chunks in a larger corpus."""


def test_an_erasure_costs_the_same_in_a_small_and_in_a_large_corpus(tmp_path: Path) -> None:
    small, large = erasure_costs(tmp_path / "small", 20), erasure_costs(tmp_path / "large", 100)
    assert large[NOTHING_MADE_ANEW] == small[NOTHING_MADE_ANEW]
    assert small[NOTHING_MADE_ANEW].reads > 0
    for case, cost in large.items():
        assert cost.round_trips <= small[case].round_trips + FURTHER_ROUND_TRIPS_MAX


def test_the_benchmark_compares_a_small_corpus_with_a_large_one() -> None:
    found = erasure.run(["--small", "5", "--large", "10"])
    assert found["documents"] == [5, 10]
    assert found["growth"] == 1.0
