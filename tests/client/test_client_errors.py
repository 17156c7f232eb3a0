"""The errors that failed calls raise."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Iterator
from importlib.metadata import version

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty

import drillcore
from drillcore import AsyncClient, Client, DrillcoreError, Reason
from drillcore._api.server import to_server_info
from drillcore._transport.call import Call
from tests.support.servers.in_memory_server import Failure, Peer, because, explained, running

KINDS = {
    "INVALID_ARGUMENT": drillcore.InvalidArgument,
    "INVALID_ID": drillcore.InvalidArgument,
    "INVALID_PAGE_TOKEN": drillcore.InvalidArgument,
    "UNPARSABLE": drillcore.InvalidArgument,
    "UNKNOWN_FIELD": drillcore.InvalidArgument,
    "TENANT_REQUIRED": drillcore.InvalidArgument,
    "REQUEST_ID_REUSED": drillcore.InvalidArgument,
    "TOO_LARGE": drillcore.ResourceExhausted,
    "STORE_FULL": drillcore.ResourceExhausted,
    "UNAUTHENTICATED": drillcore.Unauthenticated,
    "PERMISSION_DENIED": drillcore.PermissionDenied,
    "TENANT_NOT_FOUND": drillcore.NotFound,
    "CORPUS_NOT_FOUND": drillcore.NotFound,
    "DOCUMENT_NOT_FOUND": drillcore.NotFound,
    "NODE_NOT_FOUND": drillcore.NotFound,
    "REVISION_NOT_FOUND": drillcore.NotFound,
    "FACT_NOT_FOUND": drillcore.NotFound,
    "FACT_TOO_SHORT": drillcore.InvalidArgument,
    "FACT_TOO_LONG": drillcore.InvalidArgument,
    "INVALID_DURATION": drillcore.InvalidArgument,
    "ILLEGAL_TRANSITION": drillcore.FailedPrecondition,
    "REVIEW_REQUIRED": drillcore.FailedPrecondition,
    "COMMUNITY_NOT_FOUND": drillcore.NotFound,
    "COMMUNITIES_UNAVAILABLE": drillcore.Unavailable,
    "SOURCE_NOT_FOUND": drillcore.NotFound,
    "SOURCE_ERASED": drillcore.FailedPrecondition,
    "ERASED": drillcore.NotFound,
    "NO_CKF_FACTS": drillcore.NotFound,
    "QUALITY_NOT_MET": drillcore.FailedPrecondition,
    "ENVELOPE_NOT_FOUND": drillcore.NotFound,
    "CONTINUATION_NOT_FOUND": drillcore.NotFound,
    "UNKNOWN_MODEL": drillcore.InvalidArgument,
    "BUDGET_TOO_SMALL": drillcore.InvalidArgument,
    "REGION_NOT_ALLOWED": drillcore.PermissionDenied,
    "REGION_FIXED": drillcore.FailedPrecondition,
    "TOO_MANY_WATCHERS": drillcore.ResourceExhausted,
    "INVALID_HIERARCHY": drillcore.InvalidArgument,
    "INVALID_VECTOR": drillcore.InvalidArgument,
    "NODE_EXISTS": drillcore.AlreadyExists,
    "TEXT_INCOMPLETE": drillcore.FailedPrecondition,
    "TENANT_EXISTS": drillcore.AlreadyExists,
    "CORPUS_EXISTS": drillcore.AlreadyExists,
    "TENANT_NOT_EMPTY": drillcore.FailedPrecondition,
    "MODEL_MISMATCH": drillcore.FailedPrecondition,
    "MODEL_UNAVAILABLE": drillcore.Unavailable,
    "REVISION_TRIMMED": drillcore.NotFound,
    "CORPUS_ON_HOLD": drillcore.FailedPrecondition,
    "CORPUS_NOT_ON_HOLD": drillcore.FailedPrecondition,
    "VERSION_MISMATCH": drillcore.Conflict,
    "CONFLICT": drillcore.Conflict,
    "CLIENT_TOO_OLD": drillcore.Incompatible,
    "CLIENT_TOO_NEW": drillcore.Incompatible,
    "SERVER_TOO_OLD": drillcore.Incompatible,
    "STREAM_IDLE": drillcore.DeadlineExceeded,
    "DEADLINE_EXCEEDED": drillcore.DeadlineExceeded,
    "OUTCOME_UNKNOWN": drillcore.Unavailable,
    "STORE_UNAVAILABLE": drillcore.Unavailable,
    "SHUTTING_DOWN": drillcore.Unavailable,
    "CANCELLED": drillcore.Cancelled,
    "INTERNAL": drillcore.Internal,
    "SESSION_OVER": drillcore.Unauthenticated,
    "LOGIN_FAILED": drillcore.Unauthenticated,
    "ACCOUNT_LOCKED": drillcore.Unauthenticated,
    "ACCOUNT_DISABLED": drillcore.Unauthenticated,
    "PASSWORD_EXPIRED": drillcore.FailedPrecondition,
    "PASSWORD_REFUSED": drillcore.InvalidArgument,
    "ACCOUNT_NOT_FOUND": drillcore.NotFound,
    "ACCOUNT_EXISTS": drillcore.AlreadyExists,
    "TOKEN_NOT_FOUND": drillcore.NotFound,
    "REASON_REQUIRED": drillcore.InvalidArgument,
    "CANNOT_SIGN": drillcore.PermissionDenied,
    "CHALLENGE_REFUSED": drillcore.FailedPrecondition,
    "SIGNATURE_NOT_FOUND": drillcore.NotFound,
    "AUDIT_RECORD_NOT_FOUND": drillcore.NotFound,
    "CHECKPOINT_NOT_FOUND": drillcore.NotFound,
    "AUDIT_UNAVAILABLE": drillcore.Unavailable,
    "EXPORT_MADE": drillcore.FailedPrecondition,
    "INVALID_QUAD": drillcore.InvalidArgument,
    "RESERVED_QUAD": drillcore.InvalidArgument,
    "INVALID_CORE": drillcore.InvalidArgument,
    "CORE_UNSIGNED": drillcore.FailedPrecondition,
    "CORE_CHANGED": drillcore.Conflict,
    "CORPUS_NOT_EMPTY": drillcore.FailedPrecondition,
    "INVALID_TURN": drillcore.InvalidArgument,
    "TURN_NOT_FOUND": drillcore.NotFound,
    "ANCHOR_NOT_FOUND": drillcore.NotFound,
}


@pytest.fixture(scope="module")
def server() -> Iterator[Peer]:
    with running() as peer:
        yield peer


@pytest.fixture
def peer(server: Peer) -> Peer:
    server.seen.clear()
    server.failures.clear()
    return server


def failed(peer: Peer, failure: Failure) -> DrillcoreError:
    peer.failures = [failure]
    with Client(peer.address, attempts=1) as client, pytest.raises(DrillcoreError) as caught:
        client.server_info(request_id="my-request")
    return caught.value


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_raises_its_kind_of_error(reason: Reason, peer: Peer) -> None:
    error = failed(peer, because(reason, "what went wrong"))
    assert type(error) is KINDS[reason.name]
    assert error.reason is reason
    assert error.code is reason.code
    assert (error.message, error.request_id) == ("what went wrong", "my-request")
    assert str(error).startswith(f"{reason.name}: what went wrong")


def test_an_error_names_the_argument_and_the_setting_that_help(peer: Peer) -> None:
    error = failed(peer, because(Reason.TENANT_REQUIRED, "name a tenant"))
    assert str(error).endswith("name a tenant: pass tenant_id=, or set tenant_id in the [client] settings")


def test_an_async_call_raises_the_same_error(peer: Peer) -> None:
    async def fail() -> None:
        peer.failures = [because(Reason.CORPUS_NOT_FOUND, "what went wrong")]
        async with AsyncClient(peer.address) as client:
            await client.server_info(request_id="my-request")

    with pytest.raises(drillcore.NotFound) as caught:
        asyncio.run(fail())
    assert caught.value.reason is Reason.CORPUS_NOT_FOUND
    assert str(caught.value) == "CORPUS_NOT_FOUND: what went wrong"
    assert caught.value.request_id == "my-request"


def test_an_error_keeps_the_metadata_of_its_reason(peer: Peer) -> None:
    error = failed(peer, explained(grpc.StatusCode.ABORTED, "VERSION_MISMATCH", actual="3"))
    assert error.metadata == {"actual": "3"}


def test_an_unknown_reason_of_a_newer_server_is_kept_as_text_and_classified_by_its_code(peer: Peer) -> None:
    error = failed(peer, explained(grpc.StatusCode.NOT_FOUND, "SECTION_NOT_FOUND", "no such section"))
    assert type(error) is drillcore.NotFound
    assert error.reason is None
    assert error.reason_name == "SECTION_NOT_FOUND"
    assert str(error) == "SECTION_NOT_FOUND: no such section"


def test_a_reason_of_another_system_is_ignored(peer: Peer) -> None:
    denied = grpc.StatusCode.PERMISSION_DENIED
    error = failed(peer, explained(denied, "CORPUS_NOT_FOUND", "the proxy says no", domain="example.org"))
    assert type(error) is drillcore.PermissionDenied
    assert error.reason is Reason.PERMISSION_DENIED
    assert "the proxy says no" in error.message


def test_if_details_do_not_parse_the_code_remains(peer: Peer) -> None:
    def fail(context: grpc.ServicerContext) -> None:
        context.set_trailing_metadata((("grpc-status-details-bin", b"\xff\xff"),))
        context.abort(grpc.StatusCode.NOT_FOUND, "no")

    error = failed(peer, fail)
    assert type(error) is drillcore.NotFound
    assert (error.reason, error.reason_name) == (None, "NOT_FOUND")


def test_a_call_unknown_to_an_older_server_names_both_versions_and_what_to_upgrade(peer: Peer) -> None:
    newer = Call("/drillcore_proto.v1.CorpusService/NotYet", Empty(), len, None, None)
    with Client(peer.address) as client, pytest.raises(drillcore.Incompatible) as caught:
        client._carry_out(newer)
    assert caught.value.reason is Reason.SERVER_TOO_OLD
    assert "server 9.8.7" in caught.value.message
    assert f"client is {version('drillcore')} (API 1.5)" in caught.value.message
    assert "upgrade the server" in caught.value.message


def test_the_error_suggests_that_the_server_may_not_be_drillcore() -> None:
    bare = grpc.server(None)
    port = bare.add_insecure_port("127.0.0.1:0")
    bare.start()
    with (
        Client(f"127.0.0.1:{port}") as client,
        pytest.raises(drillcore.Incompatible, match="if it is a Drillcore server"),
    ):
        client.server_info()
    bare.stop(None).wait()


def test_a_request_over_the_servers_limit_is_refused_as_too_large(peer: Peer) -> None:
    with Client(peer.address) as client, pytest.raises(drillcore.ResourceExhausted) as caught:
        client.create_tenant("x" * 400_000)
    assert caught.value.reason is Reason.TOO_LARGE
    assert peer.address in caught.value.message


def test_a_refused_connection_names_the_address() -> None:
    with running() as peer:
        address = peer.address
    with Client(address, attempts=1) as client, pytest.raises(drillcore.Unavailable) as caught:
        client.server_info()
    assert caught.value.reason_name == "UNAVAILABLE"
    assert f"no answer from {address}" in caught.value.message


def test_a_timeout_says_how_to_repeat_the_call(peer: Peer) -> None:
    released = threading.Event()
    peer.failures = [lambda _: released.wait()]
    with Client(peer.address, timeout_s=0.1) as client, pytest.raises(drillcore.DeadlineExceeded) as caught:
        client.create_tenant("acme")
    released.set()
    assert caught.value.reason is Reason.DEADLINE_EXCEEDED
    assert "repeat it under the same request id" in caught.value.message


def test_an_error_passes_between_processes(peer: Peer) -> None:
    error = failed(peer, explained(grpc.StatusCode.ABORTED, "VERSION_MISMATCH", "changed", actual="3"))
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_fields_that_only_a_newer_server_sends_are_ignored() -> None:
    pass
    from drillcore_proto.v1 import server_pb2

    known = server_pb2.GetServerInfoResponse(version="2.0.0", api_version="1.9").SerializeToString()
    newer = known + b"\xfa\x3f\x03new"  # field 1023, a string
    assert to_server_info(server_pb2.GetServerInfoResponse.FromString(newer)).api_version == "1.9"
