"""Every RPC of the server, found by its services' descriptors, with a well-formed request for each, and raw calls.

A new RPC has no request here and fails every test that walks the RPCs, until it gets one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2

from drillcore_proto.v1 import corpora_pb2, server_pb2, tenants_pb2

SERVICES: Final[Sequence[ServiceDescriptor]] = [
    service for file in (tenants_pb2, corpora_pb2, server_pb2) for service in file.DESCRIPTOR.services_by_name.values()
]
METHODS: Final[Sequence[MethodDescriptor]] = [method for service in SERVICES for method in service.methods]
TENANT_METHODS: Final = [method for method in METHODS if method.containing_service.name == "TenantService"]
CORPUS_METHODS: Final = [method for method in METHODS if method.containing_service.name == "CorpusService"]

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
    "GetServerInfo": dict,
}


def name_of(method: MethodDescriptor) -> str:
    """How a method is shown among a test's parameters."""
    return method.name


def path_of(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def request_of(method: MethodDescriptor, **fields: Any) -> Message:
    """A request that has nothing wrong with it, with some fields changed. It names records that are not there."""
    assert method.name in _REQUESTS, f"{method.name} is new: add a well-formed request for it to {__name__}"
    return GetMessageClass(method.input_type)(**{**_REQUESTS[method.name](), **fields})


@dataclass(frozen=True)
class RawAnswer:
    """What came over the wire: an answer's bytes or nothing, the status and the trailing metadata."""

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
        """The refusal's details: there must be one, and nothing else."""
        (detail,) = self.status.details
        info = error_details_pb2.ErrorInfo()
        assert detail.Unpack(info), "the detail is no ErrorInfo"
        return info


def call(address: str, path: str, content: bytes, *, token: str | None = None, **headers: str) -> RawAnswer:
    """One call without the client's help. Headers: underscores become dashes."""
    metadata = [(name.replace("_", "-"), value) for name, value in headers.items()]
    if token is not None:
        metadata.append(("authorization", f"Bearer {token}"))
    with grpc.insecure_channel(address, [("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0)]) as channel:
        method = channel.unary_unary(path)
        try:
            answer, ended = method.with_call(content, metadata=metadata, timeout=10)
        except grpc.RpcError as error:
            answer, ended = None, error
        return RawAnswer(answer, ended.code(), ended.details() or "", dict(ended.trailing_metadata() or ()))
