"""The log: a line of JSON for each call with its caller, its name and its outcome, and without content."""

from __future__ import annotations

import io
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from drillcore import Client, DrillcoreError, Unavailable
from drillcore_proto.reasons import Reason
from drillcore_proto.v1 import tenants_pb2
from drillcore_server.identity.bearer_tokens import Token, digest
from drillcore_server.kernel.access import Principal
from drillcore_server.kernel.telemetry import Metrics
from drillcore_server.kernel.unit import Call
from drillcore_server.storage.ids import PrincipalId
from drillcore_server.transport.pipeline import Pipeline
from tests.support.servers.concurrently import concurrently
from tests.support.servers.pipelines import LIMITS, opened_unit, stages
from tests.support.servers.rpcs import METHODS, RawAnswer, call, name_of, path_of, request_of
from tests.support.servers.running import ACME, OPERATOR, Running

LIST = "/drillcore_proto.v1.TenantService/ListTenants"


def test_a_call_is_one_line_with_who_what_and_how_it_ended(server: Running, acme: Client) -> None:
    before = len(server.log_lines())
    acme.create_corpus("trials", request_id="my request")
    (line,) = server.log_lines()[before:]
    assert (
        line.items()
        >= {
            "event": "call",
            "method": "CreateCorpus",
            "request_id": "my request",
            "principal": "ann@acme",
            "outcome": "OK",
        }.items()
    )
    assert 0 < line["ms"] < 30_000
    assert line.keys() == {"event", "method", "request_id", "principal", "outcome", "ms", "level", "timestamp"}


@pytest.mark.parametrize("method", METHODS, ids=name_of)
def test_every_call_is_one_line_however_it_ends(server: Running, method: MethodDescriptor) -> None:
    content = request_of(method).SerializeToString()
    for token in (OPERATOR, ACME, "wrong"):
        answer = call(server.address, path_of(method), content, token=token, drillcore_request_id=f"with {token}")
        (line,) = [line for line in server.logged_calls() if line["request_id"] == f"with {token}"]
        expected = "OK" if answer.code is grpc.StatusCode.OK else answer.info.reason
        assert (line["method"], line["outcome"]) == (method.name, expected)


def test_an_unknown_caller_has_no_name_in_the_log(server: Running) -> None:
    call(server.address, LIST, b"", token="wrong")
    (line,) = server.logged_calls()
    assert line["principal"] is None
    assert line["outcome"] == Reason.UNAUTHENTICATED.name


def test_a_call_refused_for_its_request_id_is_logged_too(server: Running) -> None:
    call(server.address, LIST, b"", token=OPERATOR, drillcore_request_id="i" * 1_000)
    (line,) = server.logged_calls()
    assert line["outcome"] == Reason.INVALID_ARGUMENT.name


def test_a_call_this_server_does_not_know_is_logged_too(server: Running) -> None:
    call(server.address, "/drillcore_proto.v1.TenantService/New", b"", token=OPERATOR, drillcore_request_id="mine")
    (line,) = server.logged_calls()
    assert (line["request_id"], line["outcome"]) == ("mine", Reason.SERVER_TOO_OLD.name)


def test_calls_at_the_same_time_do_not_mix_their_lines(server: Running, operator: Client) -> None:
    concurrently(8, lambda number: [operator.create_tenant(f"tenant {number} {n}") for n in range(5)])
    assert len(server.logged_calls()) == 40


def test_no_content_gets_into_the_log(server: Running, operator: Client, acme: Client) -> None:
    """This holds for calls that succeed and for calls that are refused for any reason."""
    marks = {"metadata": {"MARK key": "MARK value"}, "description": "MARK description"}
    corpus = acme.create_corpus("MARK name", **marks)
    acme.get_corpus(name="MARK name")
    acme.update_corpus(
        corpus.id, name="MARK renamed", set_metadata={"MARK other": "MARK"}, remove_metadata=["MARK key"]
    )
    for attempt in (
        lambda: acme.create_corpus("MARK renamed", **marks),
        lambda: acme.get_corpus(name="MARK missing"),
        lambda: acme.create_corpus("MARK \x00"),
        lambda: acme.create_corpus("ok", metadata={"MARK" * 100: ""}),
        lambda: acme.create_corpus("ok", description="MARK" * 10_000),
        lambda: acme.update_corpus(corpus.id, set_metadata={"MARK": ""}, remove_metadata=["MARK"]),
        lambda: acme.get_corpus("MARK id"),
        lambda: acme.list_corpora(page_token="MARK"),
        lambda: operator.create_tenant("MARK tenant " + "x" * 300, metadata={"MARK": "MARK"}),
        lambda: operator.get_tenant(name="MARK tenant"),
        lambda: server.client("MARK-token-0123456789").list_tenants(),
    ):
        with pytest.raises(DrillcoreError):
            attempt()
    operator.create_tenant("MARK tenant", metadata={"MARK": "MARK"})
    assert len(server.logged_calls()) >= 15
    assert "MARK" not in server.log.getvalue()


def test_no_token_gets_into_the_log(server: Running, acme: Client) -> None:
    acme.list_corpora()
    for header in (OPERATOR, f"Basic {OPERATOR}", "Bearer wrong-token-0123456789"):
        call(server.address, LIST, b"", authorization=header)
    log = server.log.getvalue()
    assert len(server.logged_calls()) == 6
    assert not [token for token in (OPERATOR, ACME, "wrong-token", digest(OPERATOR).hex()) if token in log]


def test_a_failing_store_is_unavailable_and_shows_no_details(server: Running, operator: Client) -> None:
    server.engine.close()
    for attempt in (lambda: operator.create_tenant("acme"), operator.list_tenants):
        with pytest.raises(Unavailable) as caught:
            attempt()
        assert caught.value.reason is Reason.STORE_UNAVAILABLE
        assert "closed" not in caught.value.message


def test_the_log_says_why_the_store_failed(server: Running, operator: Client) -> None:
    """The refusal tells the caller that the operator finds the cause there."""
    server.engine.close()
    with pytest.raises(Unavailable):
        operator.list_tenants()
    assert re.search("the (store|engine) is closed", server.log.getvalue(), re.IGNORECASE)


class Defective:
    """A service whose methods all raise an unexpected exception."""

    def __getattr__(self, method: str) -> object:
        def fail(request: Message, call: Call) -> Message:
            raise RuntimeError("secret text")

        return fail


def call_defective(path: Path, log: io.StringIO, metrics: Metrics) -> RawAnswer:
    token = Token(Principal(PrincipalId("root"), None), digest(OPERATOR))
    service = tenants_pb2.DESCRIPTOR.services_by_name["TenantService"]
    with opened_unit(path) as unit:
        pipeline = Pipeline(stages(unit, token, log=log, metrics=metrics), LIMITS)
        server = grpc.server(ThreadPoolExecutor(1))
        server.add_generic_rpc_handlers((pipeline.bind(service, Defective()),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            return call(f"127.0.0.1:{port}", LIST, b"", token=OPERATOR, drillcore_request_id="mine")
        finally:
            server.stop(grace=1).wait()


def test_a_defect_is_internal_and_its_text_is_not_shown(tmp_path: Path) -> None:
    answer = call_defective(tmp_path, io.StringIO(), Metrics())
    assert answer.code is grpc.StatusCode.INTERNAL
    assert answer.info.reason == Reason.INTERNAL.name
    assert answer.info.metadata["request_id"] == "mine"
    assert "secret" not in repr(answer)


def test_a_defect_is_logged_with_its_place_and_without_its_text(tmp_path: Path) -> None:
    log = io.StringIO()
    call_defective(tmp_path, log, Metrics())
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    (called,) = [line for line in lines if line["event"] == "call"]
    (defect,) = [line for line in lines if line["event"] == "defect"]
    assert called["outcome"] == Reason.INTERNAL.name
    assert (defect["request_id"], defect["error"], defect["level"]) == ("mine", "RuntimeError", "error")
    assert defect["at"].rpartition(" > ")[2].startswith("test_logs.py:")
    assert "secret" not in log.getvalue()


def test_a_defect_is_counted(tmp_path: Path) -> None:
    metrics = Metrics()
    call_defective(tmp_path, io.StringIO(), metrics)
    labels = {"method": "ListTenants", "outcome": Reason.INTERNAL.name}
    assert metrics.registry.get_sample_value("drillcore_calls_total", labels) == 1
