"""ServerService: facts about the server itself."""

from __future__ import annotations

from dataclasses import dataclass

from drillcore_proto.reasons import API_VERSION
from drillcore_proto.v1 import server_pb2 as pb
from drillcore_server import VERSION
from drillcore_server.kernel import access
from drillcore_server.kernel.unit import Call, Unit


@dataclass(frozen=True, slots=True)
class ServerService:
    unit: Unit
    engine: str
    format_version: int
    message_bytes_max: int

    def GetServerInfo(self, _request: pb.GetServerInfoRequest, call: Call) -> pb.GetServerInfoResponse:
        self.unit.read(call, access.anyone, lambda _tr, _granted, _trail: None)
        return pb.GetServerInfoResponse(
            version=VERSION,
            api_version=f"{API_VERSION[0]}.{API_VERSION[1]}",
            principal=call.principal.id,
            tenant_id=str(call.principal.tenant or ""),
            engine=self.engine,
            format_version=self.format_version,
            message_bytes_max=self.message_bytes_max,
        )
