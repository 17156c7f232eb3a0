"""The error model: every refusal carries a machine-readable reason and the id of its request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import grpc
import pytest
from google.protobuf.message import Message

from drillcore import Client
from drillcore_proto.reasons import DOMAIN, REQUEST_ID_HEADER, SERVER_VERSION_HEADER, Reason
from drillcore_proto.v1 import (
    communities_pb2,
    corpora_pb2,
    documents_pb2,
    facts_pb2,
    graphs_pb2,
    nodes_pb2,
    quads_pb2,
    sources_pb2,
    tenants_pb2,
)
from drillcore_server import VERSION
from drillcore_server.transport.stages import REQUEST_ID_CHARACTERS_MAX
from tests.support.servers.rpcs import METHODS, RawAnswer, call, name_of, path_of, request_of
from tests.support.servers.running import ACME, ACME_ID, OPERATOR, Running

PATHS = {method.input_type.name: path_of(method) for method in METHODS}
CORPUS_ID = uuid4()
ASSERTION = "Records of the trial are kept for five years after its end."
INFO = "/drillcore_proto.v1.ServerService/GetServerInfo"


def ask(server: Running, request: Message, token: str = OPERATOR, **headers: str) -> RawAnswer:
    path = PATHS[request.DESCRIPTOR.name]
    return call(server.address, path, request.SerializeToString(), token=token, **headers)


def create_corpus(**fields: str) -> Message:
    return corpora_pb2.CreateCorpusRequest(tenant_id=str(ACME_ID), **fields)


def in_corpus(kind: Callable[..., Message], **fields: Any) -> Message:
    return kind(tenant_id=str(ACME_ID), corpus_id=str(CORPUS_ID), **fields)


def put_fact(**draft: str) -> Message:
    return in_corpus(facts_pb2.PutFactsRequest, facts=[facts_pb2.FactDraft(**draft)])


def put_quad(subject: str, graph: str = "") -> Message:
    named = quads_pb2.Term(iri="http://example.org/p")
    quad = quads_pb2.Quad(subject=quads_pb2.Term(iri=subject), predicate=named, object=named, graph=graph)
    return in_corpus(quads_pb2.PutQuadsRequest, quads=[quad])


def put_turn(turn: graphs_pb2.Turn) -> Message:
    return in_corpus(graphs_pb2.PutTurnsRequest, turns=[turn])


REFUSALS: dict[Reason, Callable[[Running], RawAnswer]] = {
    Reason.INVALID_ARGUMENT: lambda server: ask(server, tenants_pb2.CreateTenantRequest(name="")),
    Reason.INVALID_ID: lambda server: ask(server, tenants_pb2.GetTenantRequest(id="x")),
    Reason.INVALID_PAGE_TOKEN: lambda server: ask(server, tenants_pb2.ListTenantsRequest(page_token="x")),
    Reason.UNKNOWN_FIELD: lambda server: call(server.address, INFO, b"\x08\x01", token=OPERATOR),
    Reason.TOO_LARGE: lambda server: ask(server, create_corpus(name="n", description="d" * 10_001)),
    Reason.UNAUTHENTICATED: lambda server: ask(server, tenants_pb2.ListTenantsRequest(), token="wrong"),
    Reason.PERMISSION_DENIED: lambda server: ask(server, tenants_pb2.ListTenantsRequest(), token=ACME),
    Reason.TENANT_REQUIRED: lambda server: ask(server, corpora_pb2.ListCorporaRequest()),
    Reason.TENANT_NOT_FOUND: lambda server: ask(server, tenants_pb2.GetTenantRequest(id=str(uuid4()))),
    Reason.TENANT_EXISTS: lambda server: ask(server, tenants_pb2.CreateTenantRequest(name="acme")),
    Reason.TENANT_NOT_EMPTY: lambda server: ask(server, tenants_pb2.DeleteTenantRequest(id=str(ACME_ID))),
    Reason.CORPUS_NOT_FOUND: lambda server: ask(server, corpora_pb2.GetCorpusRequest(name="none"), token=ACME),
    Reason.DOCUMENT_NOT_FOUND: lambda server: ask(server, in_corpus(documents_pb2.GetDocumentRequest, id=str(uuid4()))),
    Reason.NODE_NOT_FOUND: lambda server: ask(server, nodes_pb2.GetNodeRequest(id=str(uuid4())), token=ACME),
    Reason.FACT_NOT_FOUND: lambda server: ask(server, facts_pb2.GetFactsRequest(fact_ids=[str(uuid4())]), token=ACME),
    Reason.FACT_TOO_SHORT: lambda server: ask(server, put_fact(content="Short.", source_id="s")),
    Reason.FACT_TOO_LONG: lambda server: ask(server, put_fact(content="long " * 2_100, source_id="s")),
    Reason.INVALID_DURATION: lambda server: ask(server, put_fact(content=ASSERTION, source_id="s", ttl="P-1D")),
    Reason.COMMUNITY_NOT_FOUND: lambda server: ask(
        server, in_corpus(communities_pb2.GetCommunityRequest, id=str(uuid4()))
    ),
    Reason.SOURCE_NOT_FOUND: lambda server: ask(server, in_corpus(sources_pb2.GetSourceRequest, source_id="none")),
    Reason.INVALID_TURN: lambda server: ask(server, put_turn(graphs_pb2.Turn(turn_id=str(uuid4()), salience=2.0))),
    Reason.TURN_NOT_FOUND: lambda server: ask(
        server, in_corpus(graphs_pb2.RemoveTurnsRequest, turn_ids=[str(uuid4())])
    ),
    Reason.ANCHOR_NOT_FOUND: lambda server: ask(server, graphs_pb2.SliceRequest(anchors=[str(uuid4())]), token=ACME),
    Reason.REVISION_NOT_FOUND: lambda server: ask(
        server, in_corpus(documents_pb2.ListDocumentsRequest, as_of=nodes_pb2.AsOf(revision=99))
    ),
    Reason.INVALID_QUAD: lambda server: ask(server, put_quad("no IRI")),
    Reason.RESERVED_QUAD: lambda server: ask(server, put_quad("urn:drillcore:fact:1", graph="urn:graph:source")),
    Reason.CORPUS_EXISTS: lambda server: ask(server, create_corpus(name="taken")),
    Reason.VERSION_MISMATCH: lambda server: ask(
        server, tenants_pb2.UpdateTenantRequest(id=str(ACME_ID), expected_version=99)
    ),
    Reason.REQUEST_ID_REUSED: lambda server: ask(server, create_corpus(name="other"), drillcore_request_id="used"),
    Reason.CLIENT_TOO_OLD: lambda server: call(server.address, INFO, b"", token=OPERATOR, drillcore_api_version="0.9"),
    Reason.SERVER_TOO_OLD: lambda server: call(server.address, "/drillcore_proto.v1.New/Call", b"", token=OPERATOR),
    Reason.CLIENT_TOO_NEW: lambda server: call(server.address, INFO, b"", token=OPERATOR, drillcore_api_version="2.0"),
}

MADE_ELSEWHERE = {
    Reason.CORE_CHANGED: "needs a core that was begun: test_core_exports",
    Reason.INVALID_CORE: "needs a whole stream: test_import_core",
    Reason.CORE_UNSIGNED: "needs a whole stream: test_full_cores",
    Reason.CORPUS_NOT_EMPTY: "needs a whole stream: test_full_cores",
    Reason.REASON_REQUIRED: "needs a server that asks for it: test_audit_records",
    Reason.AUDIT_UNAVAILABLE: "needs a key that is not there: test_audit_records",
    Reason.CANNOT_SIGN: "test_signatures",
    Reason.COMMUNITIES_UNAVAILABLE: "needs a process that fails: test_community_runs",
    Reason.CHALLENGE_REFUSED: "test_signatures",
    Reason.SIGNATURE_NOT_FOUND: "test_signatures",
    Reason.AUDIT_RECORD_NOT_FOUND: "test_audit_proofs",
    Reason.CHECKPOINT_NOT_FOUND: "test_audit_proofs",
    Reason.UNPARSABLE: "needs a whole stream: test_update_document",
    Reason.DEADLINE_EXCEEDED: "test_limits",
    Reason.STREAM_IDLE: "needs a caller who waits: test_stalled_streams",
    Reason.TOO_MANY_WATCHERS: "test_events",
    Reason.ILLEGAL_TRANSITION: "test_facts",
    Reason.REVIEW_REQUIRED: "test_quarantine",
    Reason.STORE_UNAVAILABLE: "test_logs",
    Reason.INTERNAL: "test_logs",
    Reason.REVISION_TRIMMED: "needs revisions that are days old: test_retention",
    Reason.CORPUS_ON_HOLD: "test_legal_hold",
    Reason.CORPUS_NOT_ON_HOLD: "test_legal_hold",
    Reason.MODEL_MISMATCH: "needs another embedder: test_models",
    Reason.MODEL_UNAVAILABLE: "needs a model that fails: test_models",
    Reason.NODE_EXISTS: "test_put_hierarchy",
    Reason.INVALID_HIERARCHY: "test_put_hierarchy",
    Reason.INVALID_VECTOR: "test_put_vectors",
    Reason.TEXT_INCOMPLETE: "test_put_hierarchy",
    Reason.SESSION_OVER: "test_login, test_tokens",
    Reason.LOGIN_FAILED: "test_login",
    Reason.ACCOUNT_LOCKED: "test_login",
    Reason.ACCOUNT_DISABLED: "test_login",
    Reason.PASSWORD_EXPIRED: "test_login",
    Reason.PASSWORD_REFUSED: "test_login",
    Reason.ACCOUNT_NOT_FOUND: "test_accounts",
    Reason.ACCOUNT_EXISTS: "test_accounts",
    Reason.TOKEN_NOT_FOUND: "test_tokens",
    Reason.EXPORT_MADE: "needs a whole stream: test_export",
    Reason.SOURCE_ERASED: "test_erasure",
    Reason.ERASED: "test_erasure",
    Reason.NO_CKF_FACTS: "test_fact_sessions",
    Reason.QUALITY_NOT_MET: "test_envelopes",
    Reason.ENVELOPE_NOT_FOUND: "test_envelope_replay",
    Reason.CONTINUATION_NOT_FOUND: "test_envelope_chains",
    Reason.UNKNOWN_MODEL: "test_envelope_bad_input",
    Reason.BUDGET_TOO_SMALL: "test_envelope_bad_input",
    Reason.REGION_NOT_ALLOWED: "test_residency",
    Reason.REGION_FIXED: "test_residency",
    Reason.CONFLICT: "needs a failing engine: tests/faults",
    Reason.OUTCOME_UNKNOWN: "needs a failing engine: tests/faults",
    Reason.STORE_FULL: "needs a full disk: tests/faults",
    Reason.SHUTTING_DOWN: "only while the server stops: test_shutdown",
    Reason.CANCELLED: "by the client",
}


@pytest.fixture
def prepared(server: Running, operator: Client, acme: Client) -> Running:
    """A server with the records that the refusals above need."""
    operator.create_corpus("taken", corpus_id=CORPUS_ID, tenant_id=ACME_ID, request_id="used")
    return server


@pytest.mark.parametrize("reason", REFUSALS, ids=lambda reason: reason.name)
def test_a_refusal_carries_its_reason_and_the_reasons_code(prepared: Running, reason: Reason) -> None:
    answer = REFUSALS[reason](prepared)
    assert answer.info.reason == reason.name
    assert answer.code is reason.code
    assert answer.info.domain == DOMAIN
    assert answer.status.code == reason.code.value[0]
    assert answer.status.message == answer.details != ""


@pytest.mark.parametrize("reason", REFUSALS, ids=lambda reason: reason.name)
def test_a_refusal_carries_the_id_of_its_request(prepared: Running, reason: Reason) -> None:
    answer = REFUSALS[reason](prepared)
    assert answer.info.metadata["request_id"] == answer.trailing[REQUEST_ID_HEADER]


def test_every_reason_is_tested_here_or_elsewhere() -> None:
    assert set(REFUSALS) | set(MADE_ELSEWHERE) == set(Reason)
    assert not set(REFUSALS) & set(MADE_ELSEWHERE)


@pytest.mark.parametrize("method", METHODS, ids=name_of)
def test_every_answer_repeats_the_request_id(shared: Running, method: object) -> None:
    for token in (OPERATOR, "wrong"):
        content = request_of(method).SerializeToString()
        answer = call(shared.address, path_of(method), content, token=token, drillcore_request_id="my own id")
        assert answer.trailing[REQUEST_ID_HEADER] == "my own id"


@pytest.mark.parametrize("method", METHODS, ids=name_of)
def test_every_answer_names_the_servers_version(shared: Running, method: object) -> None:
    for token in (OPERATOR, "wrong"):
        answer = call(shared.address, path_of(method), request_of(method).SerializeToString(), token=token)
        assert answer.trailing[SERVER_VERSION_HEADER] == VERSION


def test_a_call_without_a_request_id_gets_one(shared: Running) -> None:
    first, second = (call(shared.address, INFO, b"", token=OPERATOR).trailing[REQUEST_ID_HEADER] for _ in range(2))
    assert UUID(str(first)) != UUID(str(second))


@pytest.mark.parametrize("wrong", ["", "i" * (REQUEST_ID_CHARACTERS_MAX + 1), "i" * 5_000], ids=len)
def test_a_bad_request_id_is_refused(shared: Running, wrong: str) -> None:
    answer = call(shared.address, INFO, b"", token=OPERATOR, drillcore_request_id=wrong)
    assert answer.code is grpc.StatusCode.INVALID_ARGUMENT
    assert answer.info.reason == Reason.INVALID_ARGUMENT.name
    assert answer.info.metadata["field"] == REQUEST_ID_HEADER


def test_the_longest_request_id_is_accepted(shared: Running) -> None:
    longest = "i" * REQUEST_ID_CHARACTERS_MAX
    answer = call(shared.address, INFO, b"", token=OPERATOR, drillcore_request_id=longest)
    assert answer.trailing[REQUEST_ID_HEADER] == longest


def test_a_request_that_does_not_parse_is_refused(shared: Running) -> None:
    """gRPC refuses it before the server sees it."""
    answer = call(shared.address, "/drillcore_proto.v1.TenantService/GetTenant", b"\xff\xff\xff", token=OPERATOR)
    assert answer.code is not grpc.StatusCode.OK
    assert answer.content is None


def test_text_that_is_not_utf8_is_refused(shared: Running) -> None:
    request = b"\x0a\x04a\xff\xfeb"
    answer = call(shared.address, "/drillcore_proto.v1.TenantService/CreateTenant", request, token=OPERATOR)
    assert answer.code is not grpc.StatusCode.OK
