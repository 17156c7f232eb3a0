"""Changing a document costs what is changed, whatever the corpus has."""

from __future__ import annotations

import pytest

from benchmarks import growth
from drillcore_server.documents.ingestion.section_choice import SECTION_CHUNKS_MAX
from tests.support.round_trips.growing import Costs, change_costs

SMALL, LARGE = 300, 900
TRIPS_MAX = 30


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Costs]]:
    return [change_costs(tmp_path_factory.mktemp("corpus"), documents) for documents in (SMALL, LARGE)]


@pytest.mark.parametrize("what", ["reads", "entries", "written", "bytes", "round_trips", "transactions"])
def test_adding_a_document_costs_the_same_in_a_larger_corpus(costs: list[dict[str, Costs]], what: str) -> None:
    small, large = (cost["add"][what] for cost in costs)
    assert 0 < large <= 1.2 * small


def test_adding_a_document_takes_four_transactions_and_few_round_trips(costs: list[dict[str, Costs]]) -> None:
    for cost in costs:
        assert cost["add"]["transactions"] <= 4
        assert cost["add"]["round_trips"] <= TRIPS_MAX


def test_removing_a_document_costs_at_most_what_its_section_has(costs: list[dict[str, Costs]]) -> None:
    for cost in costs:
        assert cost["remove"]["transactions"] <= 2
        assert cost["remove"]["round_trips"] <= TRIPS_MAX
        assert cost["remove"]["reads"] <= 5 * SECTION_CHUNKS_MAX


def test_the_benchmark_compares_a_small_corpus_with_a_large_one() -> None:
    found = growth.run(["--small", "5", "--large", "10"])
    assert found["documents"] == [5, 10]
    assert isinstance(found["add_growth"], float)
    assert isinstance(found["remove_growth"], float)
