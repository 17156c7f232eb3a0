"""An envelope is issued once for each request, with its record, its accesses and its place in the session's history,
whatever the engine reports about its commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import grpc
import pytest

from drillcore_proto.v1 import envelopes_pb2 as pb
from tests.support.callers.envelopes import EnvelopeCaller, filled, ids
from tests.support.servers.running import ACME, OPERATOR, create_tenants, running
from tests.support.stores.faulty_engine import Fault, Faults, FaultyEngine, rates
from tests.support.stores.trails import records

QUERY = "how long must records of transactions be kept?"
EVERYTHING = pb.ScoringOptions(relevance_floor=0.0, duplicate_similarity=1.0)
PACKS = 30
RATES = {
    "applied": {Fault.UNKNOWN_APPLIED: 0.7},
    "not": {Fault.UNKNOWN_NOT_APPLIED: 0.7},
    "all": rates(commit=0.6, read=0.001),
}
T = TypeVar("T")


class Failing:
    """A caller of a server whose engine fails on demand."""

    def __init__(self, caller: EnvelopeCaller, faults: Faults) -> None:
        self.caller = caller
        self.faults = faults

    def until_answered(self, call: Callable[[], T]) -> T:
        """Repeats a call under the same request id until it is answered, as a client does."""
        for _ in range(50):
            try:
                return call()
            except grpc.RpcError as error:
                if error.code() not in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}:
                    raise
        raise AssertionError("the call is never answered")


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[Failing]:
    faults = Faults(7, {})
    with running(tmp_path, wrap=lambda engine: FaultyEngine(engine, faults)) as server:
        create_tenants(server.client(OPERATOR))
        with EnvelopeCaller(server, ACME) as caller:
            yield Failing(caller, faults)
        faults.rates = {}


@pytest.mark.parametrize("name", RATES)
def test_an_envelope_is_issued_once_however_often_the_call_is_run(failing: Failing, name: str) -> None:
    caller, corpus = failing.caller, filled(failing.caller)
    failing.faults.rates = RATES[name]
    expected, made = Counter[str](), []
    for number in range(PACKS):
        for _ in range(2):  # the same request again gets the same answer
            answer = failing.until_answered(
                lambda n=number: caller.pack(QUERY, corpus, session_id="s", request_id=f"pack {n}")  # type: ignore[misc]
            )
        expected.update(ids(answer))
        made.append(answer.envelope_id)
    failing.faults.rates = {}
    assert failing.faults.injected.total() > PACKS / 4
    assert len(set(made)) == PACKS
    assert {fact.fact_id: fact.access_count for fact in caller.list(corpus)} == expected
    recorded = [record["detail"]["envelope"] for record in records(caller.server, call="PackEnvelope", outcome="OK")]
    assert recorded == made
    assert len(caller.pack(QUERY, corpus, session_id="s").quality_history) == PACKS + 1
    assert all(caller.replay(envelope).replay == pb.REPLAY_SAME for envelope in made)


def test_each_window_is_continued_once_under_faults(failing: Failing) -> None:
    caller, corpus = failing.caller, filled(failing.caller)
    failing.faults.rates = RATES["all"]
    answer = failing.until_answered(lambda: caller.pack(QUERY, corpus, budget=30, scoring=EVERYTHING, request_id="w"))
    windows = [answer]
    while answer.continuation_id:
        token, name = answer.continuation_id, f"window {len(windows)}"
        for _ in range(2):
            answer = failing.until_answered(lambda: caller.go_on(token, request_id=name))  # noqa: B023 - called at once
        windows.append(answer)
    failing.faults.rates = {}
    packed = Counter(fact for window in windows for fact in ids(window))
    assert len(windows) > 2
    assert set(packed.values()) == {1}
    assert {fact.fact_id: fact.access_count for fact in caller.list(corpus) if fact.access_count} == packed
    assert len(windows[-1].quality_history) == len(windows)
