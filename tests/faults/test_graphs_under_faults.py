"""Quads and turns are put and removed exactly once for each request, whatever the engine reports about commits."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import grpc
import pytest

from drillcore_server.graphs.quad_model import Quad
from drillcore_server.kernel import revise
from tests.support.callers.erasures import problems
from tests.support.callers.graphs import GraphCaller, edge, name, turn
from tests.support.callers.quads import QuadCaller, quad
from tests.support.servers.running import ACME, OPERATOR, Running, create_tenants, running
from tests.support.stores.faulty_engine import Fault, Faults, FaultyEngine, rates

REQUESTS = 30
RATES = {
    "applied": {Fault.UNKNOWN_APPLIED: 0.6},
    "not": {Fault.UNKNOWN_NOT_APPLIED: 0.6},
    "all": rates(commit=0.5, read=0.001),
}
T = TypeVar("T")


@pytest.fixture
def faults() -> Faults:
    return Faults(7, {})


@pytest.fixture(params=["small", "staged"])
def server(
    tmp_path: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Running]:
    if request.param == "staged":
        monkeypatch.setattr(revise, "SMALL_BYTES_MAX", 0)
        monkeypatch.setattr(revise, "BATCH_BYTES_MAX", 2_000)
        monkeypatch.setattr(revise, "LEASE_S", 0.05)
    with running(tmp_path, wrap=lambda engine: FaultyEngine(engine, faults)) as found:
        create_tenants(found.client(OPERATOR))
        yield found
        faults.rates = {}


def until_answered(call: Callable[[], T]) -> T:
    """Repeats a call under the same request id until it is answered, as a client does."""
    for _ in range(200):
        try:
            return call()
        except grpc.RpcError as error:
            if error.code() not in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}:
                raise
    raise AssertionError("the call is never answered")


@pytest.mark.parametrize("rate", RATES)
def test_quads_are_put_and_removed_once(server: Running, faults: Faults, rate: str) -> None:
    dice, every = random.Random(3), [quad(f"s{number}", "p", "o") for number in range(20)]
    there: set[Quad] = set()
    revisions = 0
    with QuadCaller(server, ACME) as caller:
        corpus = caller.corpus()
        faults.rates = RATES[rate]
        for number in range(REQUESTS):
            some = set(dice.sample(every, 5))
            if dice.random() < 0.4:
                gone = until_answered(lambda s=some, n=number: caller.remove_quads(corpus, *s, request_id=f"r{n}"))  # type: ignore[misc]
                assert gone.removed == len(some & there)
                revisions += bool(some & there)
                there -= some
            else:
                put = until_answered(lambda s=some, n=number: caller.put_quads(corpus, *s, request_id=f"r{n}"))  # type: ignore[misc]
                assert (put.added, put.known) == (len(some - there), len(some & there))
                revisions += bool(some - there)
                there |= some
        faults.rates = {}
        assert caller.match(corpus).keys() == there
        assert caller.head(corpus) == revisions
    assert faults.injected.total() > 5
    assert problems(server) == ()


@pytest.mark.parametrize("rate", RATES)
def test_turns_are_put_and_removed_once(server: Running, faults: Faults, rate: str) -> None:
    dice = random.Random(4)
    there: set[int] = set()
    with GraphCaller(server, ACME) as caller:
        corpus = caller.corpus()
        faults.rates = RATES[rate]
        for number in range(REQUESTS):
            some = set(dice.sample(range(1, 20), 4))
            if there and dice.random() < 0.4:
                some = set(dice.sample(sorted(there), 1))
                until_answered(lambda s=some, n=number: caller.remove_turns(corpus, *s, request_id=f"r{n}"))  # type: ignore[misc]
                there -= some
            else:
                first, *rest = sorted(some)
                put = until_answered(
                    lambda s=some, f=first, o=rest, n=number: caller.put_turns(  # type: ignore[misc]
                        corpus, [turn(node) for node in s], [edge(f, child) for child in o], request_id=f"r{n}"
                    )
                )
                assert (put.added, put.replaced) == (len(some - there), len(some & there))
                there |= some
            sliced = until_answered(lambda t=there: caller.slice(min(t)))  # type: ignore[misc]
            assert {node.id for node in sliced.nodes} <= set(map(name, there))
        faults.rates = {}
        assert [turn.turn_id for turn in caller.turns(corpus)] == sorted(map(name, there))
    assert faults.injected.total() > 5
    assert problems(server) == ()
