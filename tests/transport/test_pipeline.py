"""The stages that every call passes through, and that every RPC has a handler."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor

from drillcore_server.kernel.unit import Unit
from drillcore_server.transport.exchange import Record
from drillcore_server.transport.pipeline import ORDER, Pipeline
from drillcore_server.transport.stages import Authenticate, Log, Measure, RequestIds
from tests.support.servers.pipelines import LIMITS, opened_unit, stages
from tests.support.servers.rpcs import METHODS, SERVICES, call, name_of, path_of, request_of
from tests.support.servers.running import OPERATOR, Running


@pytest.fixture
def unit(tmp_path: Path) -> Iterator[Unit]:
    with opened_unit(tmp_path) as made:
        yield made


def test_the_order_is_request_id_log_metrics_authentication(unit: Unit) -> None:
    """A new stage must not come between a refusal and the log, nor after authentication."""
    assert ORDER[:3] == (RequestIds, Log, Measure)
    assert ORDER[-2:] == (Record, Authenticate), "an unknown caller is recorded too"
    Pipeline(stages(unit), LIMITS)


def test_stages_in_any_other_order_are_refused(unit: Unit) -> None:
    for order in itertools.permutations(stages(unit)):
        if tuple(type(stage) for stage in order) != ORDER:
            with pytest.raises(AssertionError, match="wrong order"):
                Pipeline(order, LIMITS)


def test_no_stage_may_be_missing_or_duplicate(unit: Unit) -> None:
    for place in range(len(ORDER)):
        right = stages(unit)
        for wrong in ([*right[:place], *right[place + 1 :]], [*right[:place], right[place], *right[place:]]):
            with pytest.raises(AssertionError, match="wrong order"):
                Pipeline(wrong, LIMITS)


@pytest.mark.parametrize("method", METHODS, ids=name_of)
def test_every_rpc_has_a_handler(shared: Running, method: MethodDescriptor) -> None:
    answer = call(shared.address, path_of(method), request_of(method).SerializeToString(), token=OPERATOR)
    assert answer.code not in {grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
def test_a_service_without_a_method_for_an_rpc_is_found_when_it_is_bound(unit: Unit, service: object) -> None:
    with pytest.raises(AttributeError):
        Pipeline(stages(unit), LIMITS).bind(service, object())


def test_the_deadline_of_a_call_is_its_clients_up_to_the_servers_limit() -> None:
    assert LIMITS.of(5.0) == 5.0
    assert LIMITS.of(1_000.0) == 120.0
    assert LIMITS.of(-1.0) == 0.0
    assert LIMITS.of(None) == 30.0
