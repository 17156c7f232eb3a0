"""What erasing a source reads in a small and in a large corpus: it must cost what is erased, and not what is kept.

`reads` are keys and ranges that the call reads from the store, and `entries` those of all ranges. `growth` is how many
times more the large corpus takes, for the kind of source where that is most.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.support.round_trips.erasing import CASES, ErasureCost, erasure_costs


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
        "growth": max(_growth(small[case].reads, large[case].reads) for case in CASES),
        "round_trips_growth": max(_growth(small[case].round_trips, large[case].round_trips) for case in CASES),
        "entries_growth": max(_growth(small[case].entries, large[case].entries) for case in CASES),
    }


def _measured(documents: int) -> dict[str, ErasureCost]:
    with tempfile.TemporaryDirectory() as directory:
        return erasure_costs(Path(directory), documents)


def _figures(cost: ErasureCost) -> dict[str, int]:
    return {"reads": cost.reads, **asdict(cost)}


def _growth(small: int, large: int) -> float:
    return round(large / small, 2)
