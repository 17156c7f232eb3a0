"""How much the erasure of a source reads, in a small corpus and in a large one. It should be the same in both.

`reads` are keys and ranges that the call reads from the store, and `entries` those of all ranges. `growth` is how many
times more an erasure reads in the large corpus if nothing has to be made anew, as for a source of one fact.
`growth_by_case` also has documents. The sections that a document leaves are made anew from all their chunks: up to 128
in a large corpus, and fewer in a small one. Beyond that, the size of the corpus does not matter.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.support.round_trips.erasing import NOTHING_MADE_ANEW, ErasureCost, erasure_costs


def run(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks erasure")
    parser.add_argument("--small", type=int, default=200, help="documents in the small corpus")
    parser.add_argument("--large", type=int, default=5_000, help="documents in the large corpus")
    options = parser.parse_args(arguments)
    small, large = _measured(options.small), _measured(options.large)
    return {
        "benchmark": "erasure",
        "documents": [options.small, options.large],
        "small": {case: _figures(cost) for case, cost in small.items()},
        "large": {case: _figures(cost) for case, cost in large.items()},
        "growth": _growth(small, large, "reads")[NOTHING_MADE_ANEW],
        "growth_by_case": {figure: _growth(small, large, figure) for figure in ("reads", "entries", "round_trips")},
    }


def _measured(documents: int) -> dict[str, ErasureCost]:
    with tempfile.TemporaryDirectory() as directory:
        return erasure_costs(Path(directory), documents)


def _figures(cost: ErasureCost) -> dict[str, int]:
    return {"reads": cost.reads, **asdict(cost)}


def _growth(small: dict[str, ErasureCost], large: dict[str, ErasureCost], figure: str) -> dict[str, float]:
    return {case: round(getattr(large[case], figure) / getattr(small[case], figure), 2) for case in small}
