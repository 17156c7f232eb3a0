"""Every call needs a valid token, except health checks and reflection."""

from __future__ import annotations

import hashlib
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from drillcore import Unauthenticated
from drillcore_proto.reasons import Reason
from drillcore_server.app.config import TokenSettings
from drillcore_server.transport.stages import OPEN_TO_NOBODY
from tests.support.servers.rpcs import METHODS, SERVICES, call, name_of, path_of, request_of
from tests.support.servers.running import OPERATOR, Running, running

HEADERS = {
    "missing": None,
    "empty": "",
    "no scheme": OPERATOR,
    "no token": "Bearer",
    "empty token": "Bearer ",
    "another scheme": f"Basic {OPERATOR}",
    "unknown token": "Bearer no-such-token-0123456789",
    "another case": f"Bearer {OPERATOR.upper()}",
    "only the beginning": f"Bearer {OPERATOR[:-1]}",
    "more than the token": f"Bearer {OPERATOR}x",
    "two tokens": f"Bearer {OPERATOR} {OPERATOR}",
    "no space": f"Bearer{OPERATOR}",
}


@pytest.mark.parametrize("method", METHODS, ids=name_of)
def test_no_rpc_answers_a_caller_without_a_valid_token(server: Running, method: MethodDescriptor) -> None:
    content = request_of(method).SerializeToString()
    for case, header in HEADERS.items():
        headers = {} if header is None else {"authorization": header}
        answer = call(server.address, path_of(method), content, **headers)
        assert answer.code is grpc.StatusCode.UNAUTHENTICATED, case
        expected = Reason.LOGIN_FAILED if method.name in OPEN_TO_NOBODY else Reason.UNAUTHENTICATED
        assert answer.info.reason == expected.name, case


def test_the_client_raises_unauthenticated(server: Running) -> None:
    for token in (None, "no-such-token-0123456789"):
        with pytest.raises(Unauthenticated) as caught:
            server.client(token).server_info()
        assert caught.value.reason is Reason.UNAUTHENTICATED


def test_a_stranger_learns_nothing_from_a_bad_request(server: Running) -> None:
    """Authentication comes before the request is checked."""
    path = "/drillcore_proto.v1.TenantService/GetTenant"
    answer = call(server.address, path, b"\x0a\x03abc", token="no-such-token-0123456789")
    assert answer.info.reason == Reason.UNAUTHENTICATED.name


def test_the_scheme_is_not_case_sensitive(server: Running) -> None:
    answer = call(
        server.address, "/drillcore_proto.v1.ServerService/GetServerInfo", b"", authorization=f"bearer {OPERATOR}"
    )
    assert answer.code is grpc.StatusCode.OK


def test_a_token_may_be_configured_by_its_digest(tmp_path: Path) -> None:
    token = "a-token-that-no-file-holds"
    digest = hashlib.sha256(token.encode()).hexdigest()
    with running(tmp_path, tokens=(TokenSettings(name="digested", token_sha256=digest),)) as server:
        assert server.client(token).server_info().principal == "digested"
        with pytest.raises(Unauthenticated):
            server.client(digest).server_info()


def test_a_caller_may_have_several_tokens(tmp_path: Path) -> None:
    old, new = "old-token-0123456789", "new-token-0123456789"
    with running(tmp_path, tokens=tuple(TokenSettings(name="ann", token=token) for token in (old, new))) as server:
        made = server.client(old).create_tenant("acme", request_id="one")
        assert server.client(new).create_tenant("acme", request_id="one") == made


def test_without_configured_callers_an_operators_token_is_made_once(tmp_path: Path) -> None:
    with running(tmp_path, tokens=()) as server:
        file = tmp_path / "operator.token"
        token = file.read_text().strip()
        assert file.stat().st_mode & 0o777 == 0o600
        assert server.client(token).server_info().tenant_id is None
        assert token not in server.log.getvalue()
    with running(tmp_path, tokens=()) as server:
        assert server.client(token).server_info().principal == "operator"


def test_health_needs_no_token(server: Running) -> None:
    with grpc.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", *(service.full_name for service in SERVICES)):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_needs_no_token_and_names_every_service(server: Running) -> None:
    with grpc.insecure_channel(server.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = stub.ServerReflectionInfo(iter([request]), timeout=10)
    named = {service.name for service in answer.list_services_response.service}
    assert {service.full_name for service in SERVICES} | {"grpc.health.v1.Health"} <= named


def test_reflection_can_be_switched_off(tmp_path: Path) -> None:
    with running(tmp_path, reflection=False) as server, grpc.insecure_channel(server.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            list(
                stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=10)
            )
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
