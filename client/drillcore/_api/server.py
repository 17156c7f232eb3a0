"""The server: its version, its health and how it knows the caller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from google.protobuf.empty_pb2 import Empty

from drillcore._api.messages import to_id
from drillcore._transport.call import Call
from drillcore_proto.v1 import server_pb2


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The server, and how it knows the caller."""

    version: str
    api_version: str
    """The version of the protocol, "major.minor"."""
    principal: str
    """The caller, as the server knows it."""
    tenant_id: UUID | None
    """The tenant of the caller; None for an operator."""
    engine: str
    format_version: int
    message_bytes_max: int


def to_server_info(message: server_pb2.GetServerInfoResponse) -> ServerInfo:
    return ServerInfo(
        version=message.version,
        api_version=message.api_version,
        principal=message.principal,
        tenant_id=to_id(message.tenant_id),
        engine=message.engine,
        format_version=message.format_version,
        message_bytes_max=message.message_bytes_max,
    )


_SERVER: Final = "/drillcore_proto.v1.ServerService/"


def server_info(*, request_id: str | None = None, timeout_s: float | None = None) -> Call[ServerInfo]:
    """The server, and how it knows the caller."""

    def decode(answer: bytes) -> ServerInfo:
        return to_server_info(server_pb2.GetServerInfoResponse.FromString(answer))

    return Call(f"{_SERVER}GetServerInfo", server_pb2.GetServerInfoRequest(), decode, request_id, timeout_s)


def health() -> Call[bool]:
    """Whether the server accepts calls, by the standard health protocol. Only the doctor uses it."""
    # These bytes are HealthCheckResponse{status: SERVING}. They are not worth a dependency on the health package.
    return Call("/grpc.health.v1.Health/Check", Empty(), b"\x08\x01".__eq__, None, None)
