"""Measures the round trips of calls to a real server on an embedded store, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.round_trips.calls import Call
from tests.support.round_trips.world import World, fill
from tests.support.servers.running import OPERATOR, Running, running

_RECORDED_S: Final = 5.0
"""How soon after its answer a call is counted."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call took."""

    round_trips: int
    transactions: int


@dataclass(frozen=True, slots=True)
class Measured:
    """A server with a filled store."""

    server: Running
    world: World

    def cost(self, call: Call) -> Cost:
        """Prepares and makes a call twice, and returns what the second time took. The first time fills caches."""
        call.prepare(self.world)()
        return cost_of(self.server, call.rpc, call.prepare(self.world))


def cost_of(server: Running, method: str, make: Callable[[], object]) -> Cost:
    """What one call of a method takes, which `make` makes."""
    before = _figures(server, method)
    make()
    deadline_s = time.monotonic() + _RECORDED_S
    while (after := _figures(server, method))[0] == before[0]:
        assert time.monotonic() < deadline_s, f"{method} was not counted"
        time.sleep(0.001)
    return Cost(after[1] - before[1], after[2] - before[2])


def _figures(server: Running, method: str) -> tuple[int, int, int]:
    """Calls of a method so far, their round trips, and their transactions."""
    metrics, labels = server.server.metrics.registry, {"method": method}
    names = ("call_round_trips_count", "call_round_trips_sum", "call_transactions_total")
    calls, trips, transactions = (int(metrics.get_sample_value(f"drillcore_{name}", labels) or 0) for name in names)
    return calls, trips, transactions


@contextmanager
def filled(path: Path, documents: int) -> Iterator[Measured]:
    """A server whose store has this many documents."""
    with running(path) as server:
        world = fill(server.address, OPERATOR, documents)
        try:
            yield Measured(server, world)
        finally:
            world.close()


def costs(path: Path, documents: int, calls: Sequence[Call]) -> dict[str, Cost]:
    with filled(path, documents) as measured:
        return {call.name: measured.cost(call) for call in calls}
