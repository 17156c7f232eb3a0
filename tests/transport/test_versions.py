"""Clients older and newer than the server are served if nothing is lost, or told which side must be upgraded."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from drillcore import Client, Incompatible
from drillcore._transport.call import Call
from drillcore_proto.reasons import API_VERSION, Reason
from drillcore_proto.v1 import corpora_pb2, tenants_pb2
from drillcore_server import VERSION
from drillcore_server.kernel.errors import BadInput
from drillcore_server.kernel.messages import check_known_fields
from tests.support.servers.rpcs import METHODS, RawAnswer, call, name_of, path_of, request_of
from tests.support.servers.running import OPERATOR, Running

MAJOR, MINOR = API_VERSION
UNKNOWN = b"\xfa\x7f\x05hello"
"""Field 2047, which no message has."""


def ask(server: Running, version: str) -> RawAnswer:
    path = "/drillcore_proto.v1.ServerService/GetServerInfo"
    return call(server.address, path, b"", token=OPERATOR, drillcore_api_version=version)


@pytest.mark.parametrize("method", METHODS, ids=name_of)
def test_a_client_of_another_major_version_is_refused_by_every_rpc(shared: Running, method: MethodDescriptor) -> None:
    for version, reason in ((f"{MAJOR - 1}.0", Reason.CLIENT_TOO_OLD), (f"{MAJOR + 1}.0", Reason.CLIENT_TOO_NEW)):
        content = request_of(method).SerializeToString()
        answer = call(shared.address, path_of(method), content, token=OPERATOR, drillcore_api_version=version)
        assert answer.info.reason == reason.name
        assert f"{MAJOR}.{MINOR}" in answer.details
        assert version in answer.details


@pytest.mark.parametrize("minor", [MINOR, MINOR + 1, MINOR + 1000])
def test_a_client_of_a_newer_minor_version_is_served(shared: Running, minor: int) -> None:
    assert ask(shared, f"{MAJOR}.{minor}").code is grpc.StatusCode.OK


def test_a_client_that_sends_no_version_is_served(shared: Running) -> None:
    path = "/drillcore_proto.v1.ServerService/GetServerInfo"
    assert call(shared.address, path, b"", token=OPERATOR).code is grpc.StatusCode.OK


@pytest.mark.parametrize("version", ["", "1", "1.", ".1", "one.two", "1.0.0", "-1.0", "1,0", "v1.0", "1. 0", "1.0b"])
def test_a_malformed_version_is_refused(shared: Running, version: str) -> None:
    answer = ask(shared, version)
    assert answer.info.reason == Reason.INVALID_ARGUMENT.name
    assert answer.info.metadata["field"] == "drillcore-api-version"


@pytest.mark.parametrize("version", ["9" * 5_000 + ".0", "1." + "9" * 5_000], ids=["major", "minor"])
def test_an_absurdly_long_version_is_no_defect(shared: Running, version: str) -> None:
    """Python refuses to convert more than 4,300 digits to a number."""
    assert ask(shared, version).code is not grpc.StatusCode.INTERNAL


@pytest.mark.parametrize("method", METHODS, ids=name_of)
def test_a_field_this_server_does_not_know_is_refused_by_every_rpc(server: Running, method: MethodDescriptor) -> None:
    """Otherwise a newer client that sets the field would believe that it has an effect."""
    content = request_of(method).SerializeToString() + UNKNOWN
    answer = call(server.address, path_of(method), content, token=OPERATOR)
    assert answer.info.reason == Reason.UNKNOWN_FIELD.name
    assert answer.info.metadata["field"] == "2047"
    assert list(server.client().iter_tenants()) == []


@pytest.mark.parametrize(
    "message",
    [
        tenants_pb2.CreateTenantResponse(tenant=tenants_pb2.Tenant.FromString(UNKNOWN)),
        tenants_pb2.CreateTenantResponse(tenant=tenants_pb2.Tenant(created_at=Timestamp.FromString(UNKNOWN))),
        corpora_pb2.ListCorporaResponse(corpora=[corpora_pb2.Corpus(), corpora_pb2.Corpus.FromString(UNKNOWN)]),
    ],
    ids=["in a message", "two messages deep", "in a list of messages"],
)
def test_an_unknown_field_is_found_at_any_depth(message: Message) -> None:
    """This calls the check directly, since no request has nested messages yet."""
    with pytest.raises(BadInput) as caught:
        check_known_fields(message)
    assert caught.value.reason is Reason.UNKNOWN_FIELD


def test_a_message_without_unknown_fields_passes_the_check() -> None:
    corpus = corpora_pb2.Corpus(metadata={"key": "value"}, created_at=Timestamp(seconds=1))
    check_known_fields(corpora_pb2.ListCorporaResponse(corpora=[corpus]))


@pytest.mark.parametrize(
    "path",
    ["/drillcore_proto.v1.TenantService/NewCall", "/drillcore_proto.v9.NewService/Call", "/x/" + "y" * 7_000],
    ids=["method", "service", "long"],
)
def test_a_call_this_server_does_not_know_tells_the_client_that_the_server_is_too_old(
    operator: Client, path: str
) -> None:
    request = tenants_pb2.GetTenantRequest()
    with pytest.raises(Incompatible) as caught:
        operator._carry_out(Call(path, request, bytes, None, None))
    assert caught.value.reason is Reason.SERVER_TOO_OLD
    assert VERSION in caught.value.message
    assert "upgrade the server" in caught.value.message
