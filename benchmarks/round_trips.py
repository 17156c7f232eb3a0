"""How often each RPC waits for the store, one wait after the other, on a store with some documents.

The server runs on the embedded engine, which counts as a cluster would. `over_budget` lists the calls that take more
than `tests/support/round_trips/calls.py` allows.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.support.round_trips.calls import CALLS
from tests.support.round_trips.measured import filled


def run(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="benchmarks round_trips")
    parser.add_argument("--documents", type=int, default=300, help="documents in the store")
    parser.add_argument("--calls", default="", help="only calls whose name contains this")
    options = parser.parse_args(arguments)
    calls = [call for call in CALLS if options.calls in call.name]
    with tempfile.TemporaryDirectory() as directory, filled(Path(directory), options.documents) as measured:
        costs = {call.name: measured.cost(call) for call in calls}
    return {
        "benchmark": "round_trips",
        "documents": options.documents,
        "round_trips": {name: cost.round_trips for name, cost in costs.items()},
        "transactions": {name: cost.transactions for name, cost in costs.items()},
        "over_budget": {
            call.name: {"round_trips": costs[call.name].round_trips, "budget": call.budget}
            for call in calls
            if costs[call.name].round_trips > call.budget
        },
    }
