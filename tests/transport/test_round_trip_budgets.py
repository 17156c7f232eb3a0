"""Every RPC keeps to its budget of round trips, and the budget does not grow with the store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.round_trips.calls import CALLS, Call
from tests.support.round_trips.measured import Measured, filled
from tests.support.servers.rpcs import METHODS


@pytest.fixture(scope="module", params=[50, 2_000], ids=["50 documents", "2,000 documents"])
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    with filled(tmp_path_factory.mktemp("round trips"), request.param) as found:
        yield found


def test_every_rpc_has_a_budget() -> None:
    assert {call.rpc for call in CALLS} == {method.name for method in METHODS}


@pytest.mark.parametrize("call", CALLS, ids=[call.name for call in CALLS])
def test_a_call_keeps_to_its_budget(measured: Measured, call: Call) -> None:
    cost = measured.cost(call)
    assert cost.round_trips <= call.budget, f"in {cost.transactions} transactions"
