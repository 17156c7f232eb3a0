"""Every RPC of the server, found by its services' descriptors, with a well-formed request for each, and raw calls.

A new RPC has no request here and fails every test that walks the RPCs until a request is added.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import grpc
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2

from drillcore_proto import v1

SERVICES: Final[Sequence[ServiceDescriptor]] = [
    service
    for module in pkgutil.iter_modules(v1.__path__)
    if module.name.endswith("_pb2")
    for service in importlib.import_module(f"{v1.__name__}.{module.name}").DESCRIPTOR.services_by_name.values()
]
METHODS: Final[Sequence[MethodDescriptor]] = [method for service in SERVICES for method in service.methods]
TENANT_METHODS: Final = [method for method in METHODS if method.containing_service.name == "TenantService"]
CORPUS_METHODS: Final = [method for method in METHODS if method.containing_service.name == "CorpusService"]
KNOWLEDGE_METHODS: Final = [
    method for method in METHODS if method.containing_service.name in {"DocumentService", "NodeService"}
]
FABRIC_METHODS: Final = [
    method
    for method in METHODS
    if method.containing_service.name
    in {
        "FactService",
        "CommunityService",
        "SourceService",
        "EventService",
        "EmbeddingService",
        "EnvelopeService",
        "CoreService",
        "QuadService",
        "ProvenanceService",
        "GraphService",
    }
    and not method.name.startswith("Export")
]
"""All but exports, which need a role that tenants' own tokens do not have."""


def _question() -> dict[str, Any]:
    return {"query": "how long are records kept", "corpus_ids": [str(uuid4())], "budget": {"tokens": 500}}


def _quad() -> dict[str, Any]:
    return {
        "subject": {"iri": "http://example.org/sop-7"},
        "predicate": {"iri": "http://example.org/title"},
        "object": {"literal": {"value": "How records are kept", "language": "en"}},
    }


def _turn() -> dict[str, Any]:
    return {"turn_id": str(uuid4()), "role": "TURN_ROLE_USER", "phase": "PHASE_PLANNING", "salience": 0.5}


def _edge() -> dict[str, Any]:
    return {"parent": str(uuid4()), "child": str(uuid4()), "edge_type": "EDGE_TYPE_REPLY"}


_REQUESTS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "CreateTenant": lambda: {"name": f"tenant {uuid4()}"},
    "GetTenant": lambda: {"id": str(uuid4())},
    "ListTenants": dict,
    "UpdateTenant": lambda: {"id": str(uuid4()), "set_metadata": {"key": "value"}},
    "DeleteTenant": lambda: {"id": str(uuid4())},
    "CreateCorpus": lambda: {"name": f"corpus {uuid4()}"},
    "GetCorpus": lambda: {"id": str(uuid4())},
    "ListCorpora": dict,
    "UpdateCorpus": lambda: {"id": str(uuid4()), "set_metadata": {"key": "value"}},
    "DeleteCorpus": lambda: {"id": str(uuid4())},
    "TrimCorpus": lambda: {"id": str(uuid4())},
    "GetServerInfo": dict,
    "AddDocuments": lambda: {"corpus_id": str(uuid4())},
    "UpdateDocument": lambda: {"corpus_id": str(uuid4()), "document_id": str(uuid4())},
    "PutHierarchy": lambda: {"corpus_id": str(uuid4())},
    "RemoveDocuments": lambda: {"corpus_id": str(uuid4()), "document_ids": [str(uuid4())]},
    "GetDocument": lambda: {"corpus_id": str(uuid4()), "id": str(uuid4())},
    "ListDocuments": lambda: {"corpus_id": str(uuid4())},
    "GetNode": lambda: {"id": str(uuid4())},
    "Query": lambda: {"corpus_ids": [str(uuid4())], "level": "LEVEL_CHUNK"},
    "DrillDown": lambda: {"id": str(uuid4()), "target": "LEVEL_RAW"},
    "RollUp": lambda: {"ids": [str(uuid4())], "target": "LEVEL_SECTION"},
    "GetHistory": lambda: {"corpus_id": str(uuid4())},
    "QueryAudit": dict,
    "WaitProof": lambda: {"record_id": str(uuid4())},
    "GetCheckpoint": dict,
    "GetConsistencyProof": lambda: {"first_size": 0, "second_size": 0},
    "VerifyAudit": dict,
    "ExportAudit": lambda: {"format": "AUDIT_FORMAT_NDJSON"},
    "ReviewAudit": lambda: {"first": 0, "last": 0, "findings": "none"},
    "ListReviews": dict,
    "RotateAuditKey": dict,
    "CreateAccount": lambda: {
        "login": f"login-{uuid4()}",
        "name": "Ann Example",
        "kind": "ACCOUNT_KIND_PERSON",
        "password": "a long enough first password",
    },
    "GetAccount": lambda: {"id": str(uuid4())},
    "ListAccounts": dict,
    "UpdateAccount": lambda: {"id": str(uuid4()), "name": "Ann Other"},
    "SetGrants": lambda: {"id": str(uuid4())},
    "SetPassword": lambda: {"id": str(uuid4()), "new_password": "a long enough new password"},
    "Login": lambda: {"login": "nobody", "password": "a wrong password"},
    "Logout": dict,
    "CreateToken": lambda: {"account_id": str(uuid4()), "name": "job"},
    "ListTokens": lambda: {"account_id": str(uuid4())},
    "RevokeToken": lambda: {"account_id": str(uuid4())},
    "PrepareSignature": lambda: {
        "target": {"kind": "SIGNATURE_TARGET_KIND_NODE", "id": str(uuid4())},
        "meaning": "approved",
    },
    "SignRecord": lambda: {
        "target": {"kind": "SIGNATURE_TARGET_KIND_NODE", "id": str(uuid4()), "version": 1},
        "meaning": "approved",
        "challenge": b"0123456789abcdef",
        "content_hash": bytes(32),
        "password": "a wrong password",
    },
    "ListSignatures": dict,
    "ExportCorpus": lambda: {"corpus_id": str(uuid4()), "format": "EXPORT_FORMAT_JSON"},
    "PutFacts": lambda: {
        "corpus_id": str(uuid4()),
        "facts": [{"content": "Records of the trial are kept for five years after its end.", "source_id": "sop-7"}],
    },
    "GetFacts": lambda: {"fact_ids": [str(uuid4())]},
    "ListFacts": lambda: {"corpus_id": str(uuid4())},
    "UpdateFact": lambda: {"fact_id": str(uuid4()), "importance_weight": 0.5},
    "SetFactStatus": lambda: {"fact_ids": [str(uuid4())], "status": "FACT_STATUS_STALE"},
    "ArchiveFacts": lambda: {"fact_ids": [str(uuid4())]},
    "RestoreFacts": lambda: {"fact_ids": [str(uuid4())]},
    "SearchFacts": lambda: {"corpus_ids": [str(uuid4())], "text": "how long are records kept"},
    "GetState": lambda: {"corpus_ids": [str(uuid4())]},
    "EndSession": lambda: {"session_id": f"session {uuid4()}"},
    "PreviewEnvelope": lambda: {"question": _question()},
    "PackEnvelope": lambda: {"question": _question()},
    "ContinueEnvelope": lambda: {"continuation_id": str(uuid4())},
    "GetEnvelope": lambda: {"envelope_id": str(uuid4())},
    "ListCommunities": lambda: {"corpus_id": str(uuid4())},
    "GetCommunity": lambda: {"corpus_id": str(uuid4()), "id": str(uuid4())},
    "RecomputeCommunities": lambda: {"corpus_id": str(uuid4())},
    "GetSource": lambda: {"corpus_id": str(uuid4()), "source_id": "sop-7"},
    "ListSources": lambda: {"corpus_id": str(uuid4())},
    "EraseSource": lambda: {"corpus_id": str(uuid4()), "source_id": "sop-7", "reason": "asked for"},
    "ListErasures": lambda: {"corpus_id": str(uuid4())},
    "PurgeErased": lambda: {"corpus_id": str(uuid4())},
    "WatchEvents": lambda: {"corpus_ids": [str(uuid4())]},
    "MigrateEmbeddings": lambda: {"corpus_id": str(uuid4())},
    "GetMigration": lambda: {"corpus_id": str(uuid4())},
    "PutTurns": lambda: {"corpus_id": str(uuid4()), "turns": [_turn()]},
    "PutEdges": lambda: {"corpus_id": str(uuid4()), "edges": [_edge()]},
    "RemoveTurns": lambda: {"corpus_id": str(uuid4()), "turn_ids": [str(uuid4())]},
    "ListTurns": lambda: {"corpus_id": str(uuid4())},
    "Slice": lambda: {"anchors": [str(uuid4())]},
    "PutQuads": lambda: {"corpus_id": str(uuid4()), "quads": [_quad()]},
    "RemoveQuads": lambda: {"corpus_id": str(uuid4()), "quads": [_quad()]},
    "MatchQuads": lambda: {"corpus_id": str(uuid4())},
    "ImportQuads": lambda: {"corpus_id": str(uuid4()), "format": "QUAD_FORMAT_N_QUADS"},
    "ExportQuads": lambda: {"corpus_id": str(uuid4()), "format": "QUAD_FORMAT_N_QUADS"},
    "Explain": lambda: {"node": str(uuid4())},
    "ExportCore": lambda: {"corpus_id": str(uuid4())},
    "ImportCore": lambda: {"corpus_id": str(uuid4())},
}
_FIRST: Final = {
    "AddDocuments": "target",
    "PutHierarchy": "target",
    "UpdateDocument": "target",
    "ImportQuads": "target",
    "ImportCore": "target",
}
"""For calls that stream: the part of the first request that names the call's subject."""


def name_of(method: MethodDescriptor) -> str:
    """The method's name among a test's parameters."""
    return method.name


def path_of(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def fields_of(method: MethodDescriptor) -> dict[str, FieldDescriptor]:
    """The fields that `request_of` takes, by name."""
    fields = method.input_type.fields_by_name
    part = _FIRST.get(method.name)
    return dict(fields[part].message_type.fields_by_name if part else fields)


def request_of(method: MethodDescriptor, **fields: Any) -> Message:
    """A well-formed request with some fields changed. It names records that do not exist.

    For a call that streams, this is the first request: a caller who sends no more has given up.
    """
    assert method.name in _REQUESTS, f"{method.name} is new: add a well-formed request for it to {__name__}"
    content = {**_REQUESTS[method.name](), **fields}
    part = _FIRST.get(method.name)
    return GetMessageClass(method.input_type)(**{part: content} if part else content)


@dataclass(frozen=True)
class RawAnswer:
    """What came over the wire: the last answer's bytes or None, the status and the trailing metadata."""

    content: bytes | None
    code: grpc.StatusCode
    details: str
    trailing: dict[str, str | bytes]

    @property
    def status(self) -> status_pb2.Status:
        packed = self.trailing["grpc-status-details-bin"]
        assert isinstance(packed, bytes)
        return status_pb2.Status.FromString(packed)

    @property
    def info(self) -> error_details_pb2.ErrorInfo:
        """The refusal's details. There must be exactly one."""
        (detail,) = self.status.details
        info = error_details_pb2.ErrorInfo()
        assert detail.Unpack(info), "the detail is not an ErrorInfo"
        return info


def call(address: str, path: str, content: bytes, *, token: str | None = None, **headers: str) -> RawAnswer:
    """Makes a call of one request without the client's help. In the names of headers, underscores become dashes.

    On the wire, a call with one request and one answer is a stream of each, so this works for every RPC.
    """
    metadata = [(name.replace("_", "-"), value) for name, value in headers.items()]
    if token is not None:
        metadata.append(("authorization", f"Bearer {token}"))
    with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0)]) as channel:
        ended = channel.stream_stream(path)(iter([content]), metadata=metadata, timeout=10)
        try:
            (*_, answer) = ended
        except grpc.RpcError:
            answer = None
        return RawAnswer(answer, ended.code(), ended.details() or "", dict(ended.trailing_metadata() or ()))
