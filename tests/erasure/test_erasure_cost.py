"""Erasing a source costs what the source has, and not what the corpus has."""

from __future__ import annotations

from pathlib import Path

from benchmarks import erasure
from tests.support.round_trips.erasing import erasure_costs


def test_the_erasure_of_a_fact_reads_the_same_in_a_small_and_in_a_large_corpus(tmp_path: Path) -> None:
    (small,) = erasure_costs(tmp_path / "small", 20, ["a fact"]).values()
    (large,) = erasure_costs(tmp_path / "large", 100, ["a fact"]).values()
    assert large == small
    assert small.reads > 0


def test_the_benchmark_compares_a_small_corpus_with_a_large_one() -> None:
    found = erasure.run(["--small", "5", "--large", "10"])
    assert found["documents"] == [5, 10]
    assert isinstance(found["growth"], float)
