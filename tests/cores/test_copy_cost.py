"""Copies of a corpus cost what their pages cost, and not what each record costs."""

from __future__ import annotations

from pathlib import Path

from tests.support.round_trips.calls import Call
from tests.support.round_trips.measured import costs
from tests.support.round_trips.world import request

COPIES = (
    Call(
        "ExportCorpus",
        0,
        requests=lambda world: [request("ExportCorpus", corpus_id=world.corpus, format="EXPORT_FORMAT_JSON")],
    ),
    Call("ExportCore", 0, requests=lambda world: [request("ExportCore", corpus_id=world.corpus)]),
)
FURTHER_MAX = 12
"""Further pages of a range, or of records that are read together."""


def test_a_copy_of_ten_times_as_many_documents_takes_a_few_round_trips_more(tmp_path: Path) -> None:
    small, large = costs(tmp_path / "small", 6, COPIES), costs(tmp_path / "large", 60, COPIES)
    for copy in COPIES:
        assert large[copy.name].round_trips <= small[copy.name].round_trips + FURTHER_MAX
