"""Limits of a call: its size and its time."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from drillcore import Client, DeadlineExceeded, NotFound, ResourceExhausted
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import tenants_pb2, tenants_pb2_grpc
from tests.support.servers.concurrently import concurrently
from tests.support.servers.running import ACME, ACME_ID, OPERATOR, Running, create_tenants, running
from tests.support.stores.held_store import held

KIB = 1 << 10


def test_a_request_over_the_limit_is_refused_and_the_server_goes_on(tmp_path: Path) -> None:
    with running(tmp_path, message_bytes_max=64 * KIB) as server:
        client = server.client()
        with pytest.raises(ResourceExhausted) as caught:
            client.create_tenant("acme", metadata={"key": "x" * 65 * KIB})
        assert caught.value.reason is Reason.TOO_LARGE
        assert list(client.iter_tenants()) == []


def test_the_server_reports_its_limit(tmp_path: Path) -> None:
    with running(tmp_path, message_bytes_max=64 * KIB) as server:
        assert server.client().server_info().message_bytes_max == 64 * KIB


def test_a_list_is_readable_though_it_is_larger_than_a_message(tmp_path: Path) -> None:
    """A page may have fewer records than were asked for, but it must arrive."""
    with running(tmp_path, message_bytes_max=64 * KIB) as server:
        create_tenants(server.client())
        acme = server.client(ACME)
        names = [acme.create_corpus(f"corpus {number}", description="d" * 10_000).name for number in range(10)]
        assert sorted(corpus.name for corpus in acme.iter_corpora()) == names


def test_a_call_ends_when_its_client_has_no_time_left(server: Running, operator: Client) -> None:
    with held(server.engine) as hold:
        with pytest.raises(DeadlineExceeded):
            operator.list_tenants(timeout_s=0.2)
        assert hold.begun.is_set(), "the call must have reached the store"


def test_a_write_whose_client_timed_out_is_answered_when_it_is_repeated(server: Running, operator: Client) -> None:
    with held(server.engine), pytest.raises(DeadlineExceeded):
        operator.create_tenant("acme", request_id="one", timeout_s=0.2)
    made = operator.create_tenant("acme", request_id="one")
    assert list(operator.iter_tenants()) == [made]


def test_the_server_ends_a_call_that_takes_longer_than_it_allows(tmp_path: Path) -> None:
    with running(tmp_path, timeout_max_s=1e-9) as server:
        for attempt in (lambda: server.client().create_tenant("acme"), lambda: server.client().list_tenants()):
            with pytest.raises(DeadlineExceeded) as caught:
                attempt()
            assert caught.value.reason is Reason.DEADLINE_EXCEEDED
    with running(tmp_path) as server, pytest.raises(NotFound):
        server.client().get_tenant(name="acme")


def test_a_call_without_a_deadline_gets_the_servers_own(tmp_path: Path) -> None:
    with running(tmp_path, timeout_default_s=1e-9) as server, grpc.insecure_channel(server.address) as channel:
        server.client().create_tenant("acme", tenant_id=ACME_ID)
        stub = tenants_pb2_grpc.TenantServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.ListTenants(tenants_pb2.ListTenantsRequest(), metadata=[("authorization", f"Bearer {OPERATOR}")])
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_more_calls_than_workers_wait_their_turn(tmp_path: Path) -> None:
    with running(tmp_path, workers=1) as server:
        client = server.client()
        concurrently(8, lambda number: client.create_tenant(f"tenant {number}"))
        assert len(list(client.iter_tenants())) == 8
