"""What adding and removing one small document costs in a large corpus, compared with a small one.

Counts what each call reads and writes, its round trips and its transactions, on the embedded engine. `add_growth` and
`remove_growth` are the largest of these ratios. Removing a chunk makes its section anew from its others, which are 127
at most. So a removal costs more until sections have their full size, at about 1,000 of these documents.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.support.round_trips.growing import Costs, change_costs


def run(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks growth")
    parser.add_argument("--small", type=int, default=100, help="documents in the small corpus")
    parser.add_argument("--large", type=int, default=10_000, help="documents in the large corpus")
    options = parser.parse_args(arguments)
    small, large = _measured(options.small), _measured(options.large)
    growth = {call: {what: round(large[call][what] / small[call][what], 2) for what in small[call]} for call in small}
    return {
        "benchmark": "growth",
        "documents": [options.small, options.large],
        "small": small,
        "large": large,
        "growth": growth,
        "add_growth": max(growth["add"].values()),
        "remove_growth": max(growth["remove"].values()),
    }


def _measured(documents: int) -> dict[str, Costs]:
    with tempfile.TemporaryDirectory() as directory:
        return change_costs(Path(directory), documents)
