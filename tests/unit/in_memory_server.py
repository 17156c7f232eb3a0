# ruff: noqa: ARG002, N802  # arguments and names of the methods are those of the protocol
"""A gRPC server that keeps tenants and corpora in dictionaries: a peer to test the client against the protocol.

It checks nothing. What it is told to answer comes first: see `Peer.failures`.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2_grpc

from drillcore_proto.reasons import DOMAIN, REQUEST_ID_HEADER, SERVER_VERSION_HEADER, Reason
from drillcore_proto.v1 import (
    corpora_pb2,
    corpora_pb2_grpc,
    server_pb2,
    server_pb2_grpc,
    tenants_pb2,
    tenants_pb2_grpc,
)

Failure = Callable[[grpc.ServicerContext], None]


def explained(
    code: grpc.StatusCode, reason: str, message: str = "no", *, domain: str = DOMAIN, **metadata: str
) -> Failure:
    """A failure with an ErrorInfo, as the server gives it."""
    info = error_details_pb2.ErrorInfo(reason=reason, domain=domain, metadata=metadata)
    detail = any_pb2.Any()
    detail.Pack(info)
    status = status_pb2.Status(code=code.value[0], message=message, details=[detail])

    def fail(context: grpc.ServicerContext) -> None:
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(code, message)

    return fail


def because(reason: Reason, message: str = "no") -> Failure:
    return explained(reason.code, reason.name, message)


@dataclass
class Peer:
    """What the server holds, saw and is to answer."""

    address: str = ""
    api_version: str = "1.0"
    failures: list[Failure] = field(default_factory=list)
    """The next calls fail so, one each."""
    seen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Method and metadata of every call."""
    requests: list[Any] = field(default_factory=list)
    records: dict[str, Any] = field(default_factory=dict)
    """Tenants and corpora by id, oldest first."""
    health: health.HealthServicer = field(default_factory=health.HealthServicer)

    def request_ids(self) -> list[str]:
        return [metadata[REQUEST_ID_HEADER] for _, metadata in self.seen]

    def of(self, kind: type) -> list[Any]:
        return [record for record in self.records.values() if isinstance(record, kind)]

    def put(self, record: Any) -> Any:
        record.id = record.id or str(uuid.uuid4())
        record.version += 1
        record.created_by = "test"
        record.created_at.FromJsonString("2026-01-02T03:04:05Z")
        record.updated_at.FromJsonString("2026-01-02T03:04:06Z")
        self.records[record.id] = record
        return record

    def find(self, request: Any, kind: type, reason: Reason, context: grpc.ServicerContext) -> Any:
        for record in self.of(kind):
            if request.id == record.id or (not request.id and request.name == record.name):
                return record
        return because(reason, "there is no such thing")(context)

    def change(self, record: Any, request: Any) -> Any:
        if request.HasField("name"):
            record.name = request.name
        record.metadata.update(request.set_metadata)
        for key in request.remove_metadata:
            record.metadata.pop(key, None)
        return self.put(record)

    def page(self, request: Any, kind: type) -> tuple[list[Any], str]:
        start, size = int(request.page_token or 0), request.page_size or 2
        found = self.of(kind)
        return found[start : start + size], str(start + size) if start + size < len(found) else ""


class _Tenants(tenants_pb2_grpc.TenantServiceServicer):
    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def CreateTenant(self, request, context):
        tenant = tenants_pb2.Tenant(id=request.id, name=request.name, metadata=request.metadata)
        return tenants_pb2.CreateTenantResponse(tenant=self.peer.put(tenant))

    def GetTenant(self, request, context):
        found = self.peer.find(request, tenants_pb2.Tenant, Reason.TENANT_NOT_FOUND, context)
        return tenants_pb2.GetTenantResponse(tenant=found)

    def ListTenants(self, request, context):
        tenants, token = self.peer.page(request, tenants_pb2.Tenant)
        return tenants_pb2.ListTenantsResponse(tenants=tenants, next_page_token=token)

    def UpdateTenant(self, request, context):
        found = self.peer.find(request, tenants_pb2.Tenant, Reason.TENANT_NOT_FOUND, context)
        return tenants_pb2.UpdateTenantResponse(tenant=self.peer.change(found, request))

    def DeleteTenant(self, request, context):
        del self.peer.records[request.id]
        return tenants_pb2.DeleteTenantResponse()


class _Corpora(corpora_pb2_grpc.CorpusServiceServicer):
    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def CreateCorpus(self, request, context):
        if not request.tenant_id:
            because(Reason.TENANT_REQUIRED, "name a tenant")(context)
        corpus = corpora_pb2.Corpus(
            id=request.id,
            tenant_id=request.tenant_id,
            name=request.name,
            description=request.description,
            metadata=request.metadata,
        )
        return corpora_pb2.CreateCorpusResponse(corpus=self.peer.put(corpus))

    def GetCorpus(self, request, context):
        found = self.peer.find(request, corpora_pb2.Corpus, Reason.CORPUS_NOT_FOUND, context)
        return corpora_pb2.GetCorpusResponse(corpus=found)

    def ListCorpora(self, request, context):
        corpora, token = self.peer.page(request, corpora_pb2.Corpus)
        return corpora_pb2.ListCorporaResponse(corpora=corpora, next_page_token=token)

    def UpdateCorpus(self, request, context):
        found = self.peer.find(request, corpora_pb2.Corpus, Reason.CORPUS_NOT_FOUND, context)
        if request.HasField("description"):
            found.description = request.description
        return corpora_pb2.UpdateCorpusResponse(corpus=self.peer.change(found, request))

    def DeleteCorpus(self, request, context):
        del self.peer.records[request.id]
        return corpora_pb2.DeleteCorpusResponse()


class _Server(server_pb2_grpc.ServerServiceServicer):
    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def GetServerInfo(self, request, context):
        return server_pb2.GetServerInfoResponse(
            version="9.8.7",
            api_version=self.peer.api_version,
            principal="operator",
            engine="embedded",
            format_version=1,
            message_bytes_max=1000,
        )


class _Watch(grpc.ServerInterceptor):
    """Notes each call, then fails it if it is to fail."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    def intercept_service(self, continuation, details):
        handler = continuation(details)
        if "grpc.health" in details.method:
            return handler

        def answer(request, context):
            self.peer.requests.append(request)
            context.set_trailing_metadata(((SERVER_VERSION_HEADER, "9.8.7"),))
            if self.peer.failures:
                self.peer.failures.pop(0)(context)
            if handler is None:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
            return handler.unary_unary(request, context)

        self.peer.seen.append((details.method, dict(details.invocation_metadata)))
        return grpc.unary_unary_rpc_method_handler(
            answer, handler and handler.request_deserializer, handler and handler.response_serializer
        )


@contextlib.contextmanager
def running(
    peer: Peer | None = None, *, address: str = "127.0.0.1:0", credentials: grpc.ServerCredentials | None = None
) -> Iterator[Peer]:
    """The peer, listening until the block ends."""
    peer = peer or Peer()
    pool = futures.ThreadPoolExecutor(4)
    server = grpc.server(pool, interceptors=[_Watch(peer)], options=[("grpc.max_receive_message_length", 100_000)])
    tenants_pb2_grpc.add_TenantServiceServicer_to_server(_Tenants(peer), server)
    corpora_pb2_grpc.add_CorpusServiceServicer_to_server(_Corpora(peer), server)
    server_pb2_grpc.add_ServerServiceServicer_to_server(_Server(peer), server)
    health_pb2_grpc.add_HealthServicer_to_server(peer.health, server)
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    peer.address = f"127.0.0.1:{port}"
    server.start()
    try:
        yield peer
    finally:
        server.stop(None).wait()
        pool.shutdown()
